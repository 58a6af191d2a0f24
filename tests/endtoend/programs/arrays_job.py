"""Creates and destroys arrays and mipmapped arrays with cuda-python; prints the used memory."""

from __future__ import annotations

import json
from typing import Any

KIB = 1 << 10


def main() -> None:
    from cuda.bindings import driver as cu

    def ask(answer: tuple[Any, ...]) -> Any:
        if int(answer[0]) != 0:
            raise SystemExit(f"error {answer[0].name}")
        return answer[1] if len(answer) == 2 else answer[1:]

    ask(cu.cuInit(0))
    device = ask(cu.cuDeviceGet(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(device))))
    first = int(ask(cu.cuMemGetInfo())[0])
    taken: list[int] = []

    def note() -> None:
        taken.append((first - int(ask(cu.cuMemGetInfo())[0])) // KIB)

    flat = cu.CUDA_ARRAY_DESCRIPTOR()
    flat.Width, flat.Height = 1024, 1024
    flat.Format, flat.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 4
    one = ask(cu.cuArrayCreate(flat))
    note()
    solid = cu.CUDA_ARRAY3D_DESCRIPTOR()
    solid.Width, solid.Height, solid.Depth = 256, 256, 64
    solid.Format, solid.NumChannels = cu.CUarray_format.CU_AD_FORMAT_HALF, 1
    two = ask(cu.cuArray3DCreate(solid))
    note()
    solid.Width, solid.Height, solid.Depth = 1024, 1024, 0
    solid.Format, solid.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 4
    three = ask(cu.cuMipmappedArrayCreate(solid, 3))
    note()
    ask(cu.cuArrayDestroy(two))
    note()
    ask(cu.cuMipmappedArrayDestroy(three))
    note()
    codes = [int(cu.cuArrayDestroy(two)[0]), int(cu.cuMemFree(int(one))[0])]
    ask(cu.cuDevicePrimaryCtxReset(device))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(device))))
    note()
    print(json.dumps({"taken_kib": taken, "codes": codes}))


if __name__ == "__main__":
    main()
