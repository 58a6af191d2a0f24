"""Programs that call CUDA's runtime libraries by name, for test_runtime_libraries.py.

Each prints one JSON object. The libraries are preloaded, so that their names are global.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np

CUDA = ctypes.CDLL(None)
COLUMN = "F"
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
OPS = {"N": 0, "T": 1, "C": 2}
NUMBER = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5}
COMPUTE = {"float64": 70, "complex128": 70}


def check(status: int) -> None:
    if status != 0:
        raise SystemExit(f"status {status}")


class Buffer:
    """Device memory with the contents of an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.address = c_void_p()
        check(CUDA.cudaMalloc(byref(self.address), c_size_t(values.nbytes)))
        self._copy(self.address, values.ctypes.data_as(c_void_p), HOST_TO_DEVICE)

    def _copy(self, to: Any, source: Any, kind: int) -> None:
        check(CUDA.cudaMemcpy(to, source, c_size_t(self.values.nbytes), kind))

    def read(self) -> np.ndarray:
        out = np.empty_like(self.values)
        self._copy(out.ctypes.data_as(c_void_p), self.address, DEVICE_TO_HOST)
        return out


def handle() -> c_void_p:
    made = c_void_p()
    check(CUDA.cublasCreate_v2(byref(made)))
    return made


def applied(op: str, matrix: np.ndarray) -> np.ndarray:
    return {"N": matrix, "T": matrix.swapaxes(-1, -2), "C": matrix.conj().swapaxes(-1, -2)}[op]


def random(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if name.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(name)


def column_major(batch: np.ndarray) -> np.ndarray:
    """Returns a batch of matrices as cuBLAS stores them: each column by column."""
    return np.ascontiguousarray(batch.swapaxes(-1, -2))


def worst_error(got: np.ndarray, expected: np.ndarray, name: str) -> float:
    """Returns the largest difference, relative to the allowed rounding."""
    allowed = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5}.get(name, 1e-12)
    return float(np.abs(got - expected).max() / (allowed * max(1.0, np.abs(expected).max())))


def scalar(value: complex, name: str) -> Any:
    if name.startswith("complex"):
        part = c_float if name == "complex64" else c_double
        return byref((part * 2)(value.real, value.imag))
    return byref((c_double if name == "float64" else c_float)(value.real))


def one_case(blas: c_void_p, name: str, op_a: str, op_b: str, batch: int) -> float:
    m, n, k = 37, 19, 53
    a = random((batch, k, m) if op_a != "N" else (batch, m, k), name, 1)
    b = random((batch, n, k) if op_b != "N" else (batch, k, n), name, 2)
    c = random((batch, m, n), name, 3)
    alpha, beta = 1.5 + 0.5j, 0.25 - 1j
    if not name.startswith("complex"):
        alpha, beta = complex(alpha.real), complex(beta.real)
    device = [Buffer(column_major(values)) for values in (a, b, c)]
    ld = [values.shape[1] for values in (a, b, c)]
    step = [c_longlong(values.shape[1] * values.shape[2]) for values in (a, b, c)]
    kind = NUMBER[name]
    check(
        CUDA.cublasGemmStridedBatchedEx(
            *(blas, OPS[op_a], OPS[op_b], m, n, k, scalar(alpha, name)),
            *(device[0].address, kind, ld[0], step[0]),
            *(device[1].address, kind, ld[1], step[1], scalar(beta, name)),
            *(device[2].address, kind, ld[2], step[2]),
            *(batch, COMPUTE.get(name, 68), 0),
        )
    )
    wide = np.complex128 if name.startswith("complex") else np.float64
    product = applied(op_a, a).astype(wide) @ applied(op_b, b).astype(wide)
    if not name.startswith("complex"):
        expected = alpha.real * product + beta.real * c.astype(wide)
    else:
        expected = alpha * product + beta * c.astype(wide)
    return worst_error(device[2].read().swapaxes(-1, -2), expected, name)


def vector_case(blas: c_void_p, name: str) -> float:
    """Multiplies a matrix with every third element of a vector, and computes a scalar product."""
    m, n, step = 21, 33, 3
    letter, part = ("S", c_float) if name == "float32" else ("D", c_double)
    a, x, y = random((m, n), name, 4), random((n * step,), name, 5), random((m,), name, 6)
    device = [Buffer(column_major(a)), Buffer(x), Buffer(y)]
    one, half = byref(part(1)), byref(part(0.5))
    gemv = getattr(CUDA, f"cublas{letter}gemv_v2")
    matrix = (device[0].address, m, device[1].address, step)
    check(gemv(blas, OPS["N"], m, n, one, *matrix, half, device[2].address, 1))
    worst = worst_error(device[2].read(), a @ x[::step] + 0.5 * y, name)
    result = part()
    dot = getattr(CUDA, f"cublas{letter}dot_v2")
    check(dot(blas, n, device[1].address, step, device[1].address, step, byref(result)))
    expected = np.array([x[::step] @ x[::step]])
    return max(worst, worst_error(np.array([result.value]), expected, name))


def bias_case(name: str) -> float:
    """Runs cuBLASLt's product with bias and ReLU, as PyTorch's addmm does."""
    m, n, k = 24, 18, 40
    a, b, bias = random((m, k), name, 7), random((k, n), name, 8), random((m,), name, 9)
    out = Buffer(column_major(np.zeros((m, n), name)))
    device = [Buffer(column_major(a)), Buffer(column_major(b)), Buffer(bias)]
    lt, operation = c_void_p(), c_void_p()
    check(CUDA.cublasLtCreate(byref(lt)))
    check(CUDA.cublasLtMatmulDescCreate(byref(operation), COMPUTE.get(name, 68), NUMBER[name]))
    epilogue = ctypes.c_uint32(2 | 4)
    check(CUDA.cublasLtMatmulDescSetAttribute(operation, 7, byref(epilogue), c_size_t(4)))
    place = ctypes.c_uint64(device[2].address.value or 0)
    check(CUDA.cublasLtMatmulDescSetAttribute(operation, 8, byref(place), c_size_t(8)))
    layouts = []
    for rows, columns in ((m, k), (k, n), (m, n)):
        layouts.append(c_void_p())
        size = [ctypes.c_uint64(rows), ctypes.c_uint64(columns), c_longlong(rows)]
        check(CUDA.cublasLtMatrixLayoutCreate(byref(layouts[-1]), NUMBER[name], *size))
    matrices = (device[0].address, layouts[0], device[1].address, layouts[1])
    result = (out.address, layouts[2], out.address, layouts[2])
    scalars = scalar(1, name), scalar(0, name)
    check(
        CUDA.cublasLtMatmul(
            *(lt, operation, scalars[0], *matrices, scalars[1], *result),
            *(None, None, c_size_t(0), None),
        )
    )
    expected = np.maximum(a @ b + bias[:, None], 0)
    return worst_error(out.read().T, expected, name)


def rows_case(name: str, orders: tuple[int, int, int]) -> float:
    """Runs cuBLASLt's product of transposed A and B, each stored by columns (0) or rows (1). Like
    XLA, it sets unused attributes to null, and reads layouts back."""
    m, n, k = 24, 18, 40
    a, b = random((k, m), name, 7), random((k, n), name, 8)
    device = []
    lt, operation, null = c_void_p(), c_void_p(), c_void_p()
    check(CUDA.cublasLtCreate(byref(lt)))
    check(CUDA.cublasLtMatmulDescCreate(byref(operation), COMPUTE.get(name, 68), NUMBER[name]))
    check(CUDA.cublasLtMatmulDescSetAttribute(operation, 3, byref(c_int(1)), c_size_t(4)))
    check(CUDA.cublasLtMatmulDescSetAttribute(operation, 21, byref(null), c_size_t(8)))
    layouts = []
    for values, order in zip((a, b, np.zeros((m, n), name)), orders, strict=True):
        device.append(Buffer(values if order else column_major(values)))
        layouts.append(c_void_p())
        rows, columns = values.shape
        size = [ctypes.c_uint64(rows), ctypes.c_uint64(columns)]
        leading = c_longlong(columns if order else rows)
        check(CUDA.cublasLtMatrixLayoutCreate(byref(layouts[-1]), NUMBER[name], *size, leading))
        given, read, length = c_int(order), c_int(-1), c_size_t(0)
        check(CUDA.cublasLtMatrixLayoutSetAttribute(layouts[-1], 1, byref(given), c_size_t(4)))
        out = (byref(read), c_size_t(4), byref(length))
        check(CUDA.cublasLtMatrixLayoutGetAttribute(layouts[-1], 1, *out))
        assert (read.value, length.value) == (order, 4)
    matrices = (device[0].address, layouts[0], device[1].address, layouts[1])
    result = (device[2].address, layouts[2], device[2].address, layouts[2])
    scalars = scalar(1, name), scalar(0, name)
    check(
        CUDA.cublasLtMatmul(
            *(lt, operation, scalars[0], *matrices, scalars[1], *result),
            *(None, None, c_size_t(0), None),
        )
    )
    got = device[2].read() if orders[2] else device[2].read().T
    return worst_error(got, a.T @ b, name)


def products(name: str) -> dict[str, float]:
    blas = handle()
    turns = "NTC" if name.startswith("complex") else "NT"
    cases = {f"{a}{b}": one_case(blas, name, a, b, 1) for a in turns for b in turns}
    cases["batch"] = one_case(blas, name, "N", "T", 3)
    if name in ("float32", "float64"):
        cases["vector"] = vector_case(blas, name)
        cases["bias"] = bias_case(name)
        for orders in itertools.product((0, 1), repeat=3):
            cases[f"orders {orders}"] = rows_case(name, orders)
    return cases


def run_matmul(side_text: str = "64") -> dict[str, int]:
    blas, one, side = handle(), byref(c_float(1)), int(side_text)
    places = [c_void_p() for _ in range(3)]
    for place in places:
        check(CUDA.cudaMalloc(byref(place), c_size_t(side * side * 4)))
    a, b, c = places
    shape = (side, side, side)
    status = CUDA.cublasSgemm_v2(blas, 0, 0, *shape, one, a, side, b, side, one, c, side)
    check(CUDA.cudaDeviceSynchronize())
    return {"status": status}


class Attributes(ctypes.Structure):
    """cudaPointerAttributes."""

    _fields_ = (
        ("type", c_int),
        ("device", c_int),
        ("device_pointer", c_void_p),
        ("host_pointer", c_void_p),
        ("reserved", ctypes.c_long * 8),
    )


def memory() -> dict[str, Any]:
    values = np.arange(1000, dtype=np.int32)
    buffer = Buffer(values)
    nothing = c_void_p(1)
    check(CUDA.cudaMalloc(byref(nothing), c_size_t(0)))
    out: dict[str, Any] = {"round_trip": bool((buffer.read() == values).all())}
    out["nothing"] = nothing.value or 0
    out["free_of_nothing"] = [CUDA.cudaFree(None), CUDA.cudaFreeHost(None)]
    out["unknown_free"] = CUDA.cudaFree(c_void_p(0x1234))
    out["last_error"] = [CUDA.cudaGetLastError(), CUDA.cudaGetLastError()]
    managed, pinned = c_void_p(), c_void_p()
    check(CUDA.cudaMallocManaged(byref(managed), c_size_t(4096), 1))
    check(CUDA.cudaMallocHost(byref(pinned), c_size_t(4096)))
    types = []
    for pointer in (buffer.address, managed, pinned, values.ctypes.data_as(c_void_p)):
        attributes = Attributes()
        check(CUDA.cudaPointerGetAttributes(byref(attributes), pointer))
        types.append(attributes.type)
    out["types"] = types
    read_mostly, device = c_int(), (c_int * 2)(1, 0)
    place = ctypes.cast(device, ctypes.POINTER(c_longlong)).contents  # by value, in a register
    check(CUDA.cudaMemAdvise(managed, c_size_t(4096), 1, place))
    ask, one = CUDA.cudaMemRangeGetAttribute, c_size_t(4)
    out["advised"] = [ask(byref(read_mostly), one, 1, managed, one), read_mostly.value]
    data, kinds = c_void_p(ctypes.addressof(read_mostly)), c_int(1)
    read_mostly.value, several = 0, CUDA.cudaMemRangeGetAttributes
    out["advised"] += [several(byref(data), byref(one), byref(kinds), c_size_t(1), managed, one)]
    out["advised"] += [read_mostly.value, ask(byref(read_mostly), one, 1, buffer.address, one)]
    out["direction"] = CUDA.cudaMemcpy(managed, pinned, c_size_t(8), 9)
    out["kernel"] = CUDA.cudaFuncSetAttribute(c_void_p(0x1234), 8, 1024)
    return out


def flags() -> list[int]:
    """Sets flags before a context takes them; reads them then, and in it; wrong ones fail."""
    set_before = CUDA.cudaSetDeviceFlags(4 | 8)
    read = [ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()]
    check(CUDA.cudaGetDeviceFlags(byref(read[0])))
    check(CUDA.cudaCtxResetPersistingL2Cache())
    check(ctypes.CDLL("libcuda.so.1").cuCtxGetFlags(byref(read[1])))
    check(CUDA.cudaGetDeviceFlags(byref(read[2])))
    wrong = [CUDA.cudaSetDeviceFlags(0x100), CUDA.cudaGetDeviceFlags(None)]
    return [set_before, *(one.value for one in read), *wrong]


def per_thread() -> dict[str, Any]:
    """Calls the twins for per-thread default streams."""
    values = np.arange(1000, dtype=np.int32)
    buffer, host = Buffer(values), np.empty(1000, np.int32)
    size = c_size_t(values.nbytes)
    check(CUDA.cudaMemsetAsync_ptsz(buffer.address, 1, size, None))
    target = host.ctypes.data_as(c_void_p)
    check(CUDA.cudaMemcpyAsync_ptsz(target, buffer.address, size, DEVICE_TO_HOST, None))
    check(CUDA.cudaStreamSynchronize_ptsz(None))
    ids = [ctypes.c_ulonglong(), ctypes.c_ulonglong()]
    check(CUDA.cudaStreamGetId(None, byref(ids[0])))
    check(CUDA.cudaStreamGetId_ptsz(None, byref(ids[1])))
    return {"set": bool((host == 0x01010101).all()), "other": ids[0].value != ids[1].value}


def stubs() -> dict[str, int]:
    return {name: getattr(CUDA, name)() for name in ("cudaGraphDebugDotPrint", "cublasSsyrk_v2")}


def start() -> dict[str, int]:
    made = c_void_p()
    return {
        "cudaFree": CUDA.cudaFree(None),
        "cublasCreate_v2": CUDA.cublasCreate_v2(byref(made)),
    }


def vectors() -> Any:
    """Copies to the card with stride 2 and back with stride 3, without gaps in a stream, and a part
    of a matrix. Also tries strides that make no sense, and nothing at all."""
    there, back = Buffer(np.zeros(6, np.float32)), np.full(7, -1, np.float32)
    given = np.arange(10, 13, dtype=np.float32)
    pointer = given.ctypes.data_as(c_void_p)
    check(CUDA.cublasSetVector(3, 4, pointer, 1, there.address, 2))
    check(CUDA.cublasGetVector(3, 4, there.address, 2, back.ctypes.data_as(c_void_p), 3))
    dense = Buffer(np.zeros(4, np.float32))
    four = np.arange(1, 5, dtype=np.float32)
    one, count = c_longlong(1), c_longlong(4)
    at = four.ctypes.data_as(c_void_p)
    check(CUDA.cublasSetVectorAsync_64(count, count, at, one, dense.address, one, None))
    rows = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    part = Buffer(np.zeros((3, 2), np.float32))
    check(CUDA.cublasSetMatrix(2, 3, 4, rows.ctypes.data_as(c_void_p), 3, part.address, 2))
    return {
        "there": there.read().tolist(),
        "back": back.tolist(),
        "dense": dense.read().tolist(),
        "matrix": part.read().tolist(),
        "refused": [
            CUDA.cublasSetVector(3, 4, pointer, 0, there.address, 1),
            CUDA.cublasSetMatrix(2, 3, 4, pointer, 1, part.address, 2),
        ],
        "nothing": CUDA.cublasSetVector(0, 4, pointer, 1, there.address, 1),
    }


def pools() -> Any:
    usual, current, other = c_void_p(), c_void_p(), c_void_p()
    device, host = (c_int * 2)(1, 0), (c_int * 2)(2, 0)
    pinned, flags = 1, c_int()
    check(CUDA.cudaDeviceGetDefaultMemPool(byref(usual), 0))
    check(CUDA.cudaMemGetDefaultMemPool(byref(other), device, pinned))
    same = [other.value == usual.value]
    check(CUDA.cudaMemGetMemPool(byref(current), device, pinned))
    same.append(current.value == usual.value)
    check(CUDA.cudaMemSetMemPool(device, pinned, usual))
    check(CUDA.cudaDeviceGetMemPool(byref(current), 0))
    same.append(current.value == usual.value)
    check(CUDA.cudaMemPoolGetAccess(byref(flags), usual, device))
    refused = CUDA.cudaMemGetDefaultMemPool(byref(other), host, pinned)
    return {"same": same, "access": flags.value, "host": refused}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
