"""libcuda through ctypes and cuda-bindings: declarations, errors, timed calls. Holds no device."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from probe.figures import Json, now

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK = 2 * MIB  # the unit of migration


EXIT_USAGE, EXIT_NO_DRIVER = 2, 3


U32, U64, SIZE, INT, PTR = (
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_void_p,
)


NOT_SUPPORTED = 801


class UnsupportedError(Exception):
    """The driver, the device or this machine does not offer what a question needs."""


class GuardError(UnsupportedError):
    """The requested memory exceeds what the probe may use."""


class NoDriverError(Exception):
    """There is no libcuda, no device, or no cuda-bindings: nothing can be asked."""


class CudaError(Exception):
    """A driver call returned an error code."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code} ({error_name(code)})")
        self.code = code


class MemLocation(ctypes.Structure):
    """CUmemLocation: type 0 none, 1 device, 2 host."""

    _fields_ = (("type", INT), ("id", INT))


class PoolProps(ctypes.Structure):
    """CUmemPoolProps (88 bytes)."""

    _fields_ = (
        ("alloc_type", INT),
        ("handle_types", INT),
        ("location", MemLocation),
        ("win32", PTR),
        ("max_size", SIZE),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


TO_HOST, NON_BLOCKING, BLOCKING_SYNC, DISABLE_TIMING, ATTACH_GLOBAL = -1, 1, 1, 2, 1
NOT_READY, INVALID_VALUE = 600, 1

# Argument types by exact ELF symbol: libcuda's unversioned names often have old ABIs.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuDriverGetVersion": (PTR,),
    "cuCtxGetCurrent": (PTR,),
    "cuCtxSetCurrent": (PTR,),
    "cuCtxCreate_v2": (PTR, U32, INT),
    "cuCtxDestroy_v2": (PTR,),
    "cuThreadExchangeStreamCaptureMode": (PTR,),
    "cuMemGetInfo_v2": (PTR, PTR),
    "cuMemAlloc_v2": (PTR, SIZE),
    "cuMemAllocManaged": (PTR, SIZE, U32),
    "cuMemFree_v2": (U64,),
    "cuMemHostAlloc": (PTR, SIZE, U32),
    "cuMemPrefetchAsync": (U64, SIZE, INT, PTR),
    "cuMemPrefetchAsync_v2": (U64, SIZE, MemLocation, U32, PTR),
    "cuMemAdvise": (U64, SIZE, INT, INT),
    "cuMemAdvise_v2": (U64, SIZE, INT, MemLocation),
    "cuMemPrefetchBatchAsync": (PTR, PTR, SIZE, PTR, PTR, SIZE, U64, PTR),
    "cuMemDiscardBatchAsync": (PTR, PTR, SIZE, U64, PTR),
    "cuMemDiscardAndPrefetchBatchAsync": (PTR, PTR, SIZE, PTR, PTR, SIZE, U64, PTR),
    "cuMemRangeGetAttribute": (PTR, SIZE, INT, U64, SIZE),
    "cuPointerGetAttribute": (PTR, INT, U64),
    "cuMemcpyHtoD_v2": (U64, PTR, SIZE),
    "cuMemcpyDtoH_v2": (PTR, U64, SIZE),
    "cuMemcpyHtoDAsync_v2": (U64, PTR, SIZE, PTR),
    "cuMemcpyDtoHAsync_v2": (PTR, U64, SIZE, PTR),
    "cuMemcpyDtoDAsync_v2": (U64, U64, SIZE, PTR),
    "cuMemsetD8Async": (U64, ctypes.c_ubyte, SIZE, PTR),
    "cuMemPoolCreate": (PTR, PTR),
    "cuMemPoolDestroy": (PTR,),
    "cuMemAllocFromPoolAsync": (PTR, SIZE, PTR, PTR),
    "cuMemFreeAsync": (U64, PTR),
    "cuMemGetDefaultMemPool": (PTR, PTR, INT),
    "cuStreamCreate": (PTR, U32),
    "cuStreamCreateWithPriority": (PTR, U32, INT),
    "cuStreamDestroy_v2": (PTR,),
    "cuCtxGetStreamPriorityRange": (PTR, PTR),
    "cuTensorMapEncodeTiled": (PTR, INT, U32, U64, PTR, PTR, PTR, PTR, INT, INT, INT, INT),
    "cuStreamSynchronize": (PTR,),
    "cuStreamQuery": (PTR,),
    "cuStreamIsCapturing": (PTR, PTR),
    "cuStreamBeginCapture_v2": (PTR, INT),
    "cuStreamEndCapture": (PTR, PTR),
    "cuGraphDestroy": (PTR,),
    "cuStreamWaitValue32": (PTR, U64, U32, U32),
    "cuStreamWaitValue32_v2": (PTR, U64, U32, U32),
    "cuStreamWriteValue32": (PTR, U64, U32, U32),
    "cuStreamWriteValue32_v2": (PTR, U64, U32, U32),
    "cuEventCreate": (PTR, U32),
    "cuEventRecord": (PTR, PTR),
    "cuEventQuery": (PTR,),
    "cuEventSynchronize": (PTR,),
    "cuEventElapsedTime": (PTR, PTR, PTR),
    "cuModuleGetLoadingMode": (PTR,),
    "cuLaunchKernel": (PTR, U32, U32, U32, U32, U32, U32, U32, PTR, PTR, PTR),
    "cuFuncGetParamInfo": (PTR, SIZE, PTR, PTR),
    "cuKernelGetParamInfo": (PTR, SIZE, PTR, PTR),
    "cuKernelGetFunction": (PTR, PTR),
    "cuGetProcAddress_v2": (ctypes.c_char_p, PTR, INT, U64, PTR),
}


@functools.cache
def bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDriverError(
            f"cuda-bindings cannot be imported ({error}); pip install cuda-bindings"
        ) from error
    return driver


def error_name(code: int) -> str:
    with contextlib.suppress(Exception):
        return str(bindings().CUresult(code).name)
    return "unknown code"


def must(answer: tuple[Any, ...], call: str) -> Any:
    """Returns the values of a cuda-bindings call. Raises CudaError."""
    if int(answer[0]) != 0:
        raise CudaError(call, int(answer[0]))
    return answer[1] if len(answer) == 2 else answer[1:]


@functools.cache
def load_libcuda() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDriverError(f"no CUDA driver: libcuda.so.1 cannot be loaded ({error})") from error


@functools.cache
@functools.cache
def native(name: str) -> Any:
    """Returns the typed function of that exact ELF name. Raises UnsupportedError if missing."""
    function: Any = getattr(load_libcuda(), name, None)
    if function is None:
        raise UnsupportedError(f"libcuda has no {name}")
    function.argtypes, function.restype = SIGNATURES[name], INT
    return function


def call(name: str, *args: Any) -> None:
    """Calls a function. Raises UnsupportedError if the driver does not support it, or CudaError."""
    code = native(name)(*args)
    if code == NOT_SUPPORTED:
        raise UnsupportedError(f"{name} answered {code} ({error_name(code)})")
    if code != 0:
        raise CudaError(name, code)


def timed(name: str, *args: Any) -> int:
    """Returns the nanoseconds that the calling thread spends in the call."""
    function = native(name)
    start = now()
    code = function(*args)
    spent = now() - start
    if code != 0:
        raise CudaError(name, code)
    return spent


def refused(name: str, *args: Any) -> Callable[[], int]:
    """Returns a call with arguments that the driver rejects, to measure the base cost of a call."""
    return functools.partial(native(name), *args)


def handle_of(name: str, *args: Any) -> int:
    """Calls name(&out, *args) and returns the pointer-sized value that it stored."""
    out = U64(0)
    call(name, ctypes.byref(out), *args)
    return out.value


def elapsed_ns(first: int, last: int) -> float:
    """Returns the GPU nanoseconds between two completed recorded events."""
    spent = ctypes.c_float(0)
    call("cuEventElapsedTime", ctypes.byref(spent), first, last)
    return float(spent.value) * 1e6


def outcome(work: Callable[[], Any]) -> Json:
    """Returns {"code": 0}, or the error raised by `work` as data."""
    try:
        work()
    except CudaError as error:
        return {"code": error.code, "name": error_name(error.code), "message": str(error)}
    except UnsupportedError as error:
        return {"code": None, "message": str(error)}
    return {"code": 0}
