"""Runs every form of copy and memset with cuda-python; prints a sha256 that tests can compute.

Each step works on two buffers of 8 MiB and has a twin in numpy. So `expected()` computes the
contents without a GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

BYTES = 8 << 20
PITCH, ROWS, WIDTH = 4096, 512, 1000
DEVICE, HOST = 2, 1


def check(answer: tuple[Any, ...]) -> Any:
    """Returns the value of a driver call; exits if the call failed."""
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) > 1 else None


def start() -> tuple[np.ndarray, np.ndarray]:
    first = np.arange(BYTES, dtype=np.uint32).astype(np.uint8)
    return first, (first[::-1] ^ 0x5A).copy()


def rows_of(values: np.ndarray) -> np.ndarray:
    return values[: PITCH * ROWS].reshape(ROWS, PITCH)


def box_of(values: np.ndarray) -> np.ndarray:
    return values[: 16 * 16 * PITCH].reshape(16, 16, PITCH)


def expected() -> str:
    a, b = start()
    rows_of(b)[:, :WIDTH] = rows_of(a)[:, :WIDTH]  # cuMemcpy2D, three times
    rows_of(a)[1:400, 64:WIDTH] = rows_of(b)[1:400, 64:WIDTH]  # cuMemcpy2DAsync
    box_of(b)[2:6, 3:9, 8:WIDTH] = box_of(a)[2:6, 3:9, 8:WIDTH]  # cuMemcpy3D, async, peer
    a[4 << 20 : 5 << 20] = b[: 1 << 20]  # a batch of three
    a[5 << 20 : 6 << 20] = b[1 << 20 : 2 << 20]
    b[6 << 20 : 6291456 + 100] = a[:100]
    box_of(a)[:2, :4, :500] = box_of(b)[:2, :4, :500]  # cuMemcpy3DBatchAsync
    b[7 << 20 :] = 7  # memsets
    rows_of(a)[:100, :10] = 9
    return hashlib.sha256(a.tobytes() + b.tobytes()).hexdigest()


def rows(cu: Any, kind: int, to: int, source: int, **more: Any) -> Any:
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype(kind)
    copy.srcDevice, copy.dstDevice = source, to
    copy.srcPitch = copy.dstPitch = PITCH
    copy.WidthInBytes, copy.Height = WIDTH, ROWS
    for name, value in more.items():
        setattr(copy, name, value)
    return copy


def box(cu: Any, copy: Any, to: int, source: int) -> Any:
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype(DEVICE)
    copy.srcDevice, copy.dstDevice = source, to
    copy.srcPitch = copy.dstPitch = PITCH
    copy.srcHeight = copy.dstHeight = 16
    copy.srcZ = copy.dstZ = 2
    copy.srcY = copy.dstY = 3
    copy.srcXInBytes = copy.dstXInBytes = 8
    copy.WidthInBytes, copy.Height, copy.Depth = WIDTH - 8, 6, 4
    return copy


def operands(cu: Any, to: int, source: int) -> Any:
    copy = cu.CUDA_MEMCPY3D_BATCH_OP()
    for operand, address in ((copy.src, source), (copy.dst, to)):
        operand.type = cu.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
        operand.op.ptr.ptr = address
        operand.op.ptr.rowLength, operand.op.ptr.layerHeight = PITCH, 16
    copy.extent.width, copy.extent.height, copy.extent.depth = 500, 4, 2
    order = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    copy.srcAccessOrder = order
    return copy


def copy_everything(cu: Any, a: int, b: int, stream: Any) -> None:
    check(cu.cuMemcpy2D(rows(cu, DEVICE, b, a)))
    check(cu.cuMemcpy2DUnaligned(rows(cu, DEVICE, b, a)))
    host = np.empty(PITCH * ROWS, np.uint8)
    out = {"dstMemoryType": cu.CUmemorytype(HOST), "dstHost": host.ctypes.data}
    back = {"srcMemoryType": cu.CUmemorytype(HOST), "srcHost": host.ctypes.data}
    check(cu.cuMemcpy2D(rows(cu, DEVICE, 0, a, **out)))
    check(cu.cuMemcpy2D(rows(cu, DEVICE, b, 0, **back)))
    some = {"srcXInBytes": 64, "dstXInBytes": 64, "srcY": 1, "dstY": 1}
    some |= {"WidthInBytes": WIDTH - 64, "Height": 399}
    check(cu.cuMemcpy2DAsync(rows(cu, DEVICE, a, b, **some), stream))
    check(cu.cuStreamSynchronize(stream))
    check(cu.cuMemcpy3D(box(cu, cu.CUDA_MEMCPY3D(), b, a)))
    check(cu.cuMemcpy3DAsync(box(cu, cu.CUDA_MEMCPY3D(), b, a), stream))
    check(cu.cuMemcpy3DPeer(box(cu, cu.CUDA_MEMCPY3D_PEER(), b, a)))
    check(cu.cuMemcpy3DPeerAsync(box(cu, cu.CUDA_MEMCPY3D_PEER(), b, a), stream))
    mib = 1 << 20
    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    to = [cu.CUdeviceptr(x) for x in (a + 4 * mib, a + 5 * mib, b + 6 * mib)]
    source = [cu.CUdeviceptr(x) for x in (b, b + mib, a)]
    sizes = [mib, mib, 100]
    check(cu.cuMemcpyBatchAsync(to, source, sizes, 3, [attributes], [0], 1, stream))
    check(cu.cuMemcpy3DBatchAsync(1, [operands(cu, a, b)], 0, stream))
    check(cu.cuMemsetD8Async(b + 7 * mib, 7, mib, stream))
    check(cu.cuMemsetD2D8Async(a, PITCH, 9, 10, 100, stream))
    check(cu.cuStreamSynchronize(stream))


def main() -> None:
    from cuda.bindings import driver as cu

    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(check(cu.cuDeviceGet(0))))))
    stream = check(cu.cuStreamCreate(1))
    values = start()
    a, b = (int(check(cu.cuMemAlloc(BYTES))) for _ in values)
    for address, value in zip((a, b), values, strict=True):
        check(cu.cuMemcpyHtoD(address, value.ctypes.data, BYTES))
    copy_everything(cu, a, b, stream)
    digest = hashlib.sha256()
    for address in (a, b):
        back = np.empty(BYTES, np.uint8)
        check(cu.cuMemcpyDtoH(back.ctypes.data, address, BYTES))
        digest.update(back.tobytes())
    json.dump({"sha256": digest.hexdigest()}, sys.stdout)


if __name__ == "__main__":
    main()
