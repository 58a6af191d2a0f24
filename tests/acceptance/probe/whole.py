#!/usr/bin/env python3
"""Ask a real GPU the questions on which pump's design rests; JSON out. Not a benchmark of pump.

It needs cuda-bindings (with NVRTC for the kernels) and the standard library, nothing of pump's.
docs/uvm.md says which claim each question settles and how to read the answer.

DESIGN
- One question, one child process (this file again, with --question). A hang meets the watchdog,
  a sticky CUDA error dies with its child, and what a child has noted so far is kept. The parent
  never calls the driver.
- cuda-bindings sets the stage: init, context, attributes, NVRTC, modules, error names. Every
  call that is timed, or whose ABI must be exact (prefetch has two), goes straight to libcuda
  through ctypes: the binding's overhead would drown microseconds, and its flavour of a call
  changes between versions. `call_cost` publishes what an empty ctypes call costs.
- Managed memory stays within --max-managed (at most 4 GiB) and below 90 % of what the card has
  free at that moment: managed memory beyond the free memory can hang a machine. Nothing here
  oversubscribes, changes a setting or resets anything. What only oversubscription could tell is
  listed as not asked.
- Times are wall-clock nanoseconds around calls (perf_counter) or CUDA event times for kernels;
  every figure is a summary of repeats: n, median, p10, p90, p99, min, max.

Exit status: 0 questions asked (each has its own status), 2 bad arguments, 3 no usable driver.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import ctypes
import datetime
import faulthandler
import functools
import itertools
import json
import math
import mmap
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

SCHEMA = 1
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK = 2 * MIB  # the unit of migration
MANAGED_CAP = 4 * GIB  # hard rule: never more managed memory than this in one process
FREE_SHARE = 0.9  # and never more than this share of the card's free memory
TOTAL_LIMIT_S = 345.0  # the whole run, below six minutes
KILL_GRACE_S = 10.0
RECORD = "@@probe "  # lines of a child's stdout that are ours
EXIT_USAGE, EXIT_NO_DRIVER = 2, 3

U32, U64, SIZE, INT, PTR = (
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_void_p,
)
T = TypeVar("T")
Json = dict[str, Any]


class UnsupportedError(Exception):
    """The driver, the device or this machine does not offer what a question needs."""


class GuardError(UnsupportedError):
    """The memory asked for is above what the probe may take."""


class NoDriverError(Exception):
    """No libcuda, no device, or no cuda-bindings: nothing can be asked."""


class CudaError(Exception):
    """A driver call answered with an error code."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code} ({error_name(code)})")
        self.code = code


# ---------------------------------------------------------------- statistics


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value at `share` (0..1) of an ascending sequence, by linear interpolation."""
    if not ordered:
        raise ValueError("percentile of nothing")
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rounded(value: float) -> float:
    """Five significant digits: enough for any figure here, and readable JSON."""
    return float(f"{value:.5g}")


def summary(samples: Iterable[float], scale: float = 1.0) -> Json:
    """Median and spread of samples, each multiplied by `scale`; {"n": 0} if there are none."""
    ordered = sorted(sample * scale for sample in samples)
    if not ordered:
        return {"n": 0}
    points = {"median": 0.5, "p10": 0.1, "p90": 0.9, "p99": 0.99, "min": 0.0, "max": 1.0}
    return {"n": len(ordered)} | {k: rounded(percentile(ordered, v)) for k, v in points.items()}


def us(samples_ns: Iterable[float]) -> Json:
    """Summary in microseconds of samples in nanoseconds."""
    return summary(samples_ns, 1e-3)


def line_fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(intercept, slope) through (x, y) by least squares of relative errors; two x needed.

    Relative, because a cost's noise grows with the cost: otherwise the largest size alone would
    decide, and the intercept would be its error.
    """
    weighted = [(x, y, 1.0 / max(abs(y), 1e-9) ** 2) for x, y in points]
    total = sum(w for _, _, w in weighted) or 1.0
    mean_x = sum(w * x for x, _, w in weighted) / total
    mean_y = sum(w * y for _, y, w in weighted) / total
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in weighted)
    if len({x for x, _ in points}) < 2 or spread == 0:
        raise ValueError("a line needs at least two different x values")
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in weighted) / spread
    return mean_y - slope * mean_x, slope


def gbps(length_bytes: float, time_ns: float) -> float:
    """Bytes per nanosecond, which is GB/s (1e9)."""
    return rounded(length_bytes / time_ns) if time_ns > 0 else 0.0


def undisturbed(samples: Iterable[float]) -> float:
    """The 10th percentile: other work on the machine only ever adds to a cost."""
    return percentile(sorted(samples), 0.1)


def median(samples: Iterable[float]) -> float:
    return percentile(sorted(samples), 0.5)


def now() -> int:
    return time.perf_counter_ns()


# ---------------------------------------------------------------- memory guard


def managed_refusal(asked: int, held: int, free: int, cap: int) -> str | None:
    """Why `asked` more bytes of managed memory may not be had, or None if they may.

    `held` is what this process holds already, `free` what the card reports free now. Resident
    managed memory has left `free` already, so counting `held` too errs on the safe side.
    """
    wanted, cap = asked + held, min(cap, MANAGED_CAP)
    if asked <= 0:
        return f"{asked} bytes of managed memory make no sense"
    if wanted > cap:
        return f"{wanted} bytes of managed memory are above the cap of {cap} (--max-managed)"
    if wanted > FREE_SHARE * free:
        return f"{wanted} bytes of managed memory are above 90 % of the {free} bytes free"
    return None


# ---------------------------------------------------------------- driver access


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


TO_HOST, NON_BLOCKING, DISABLE_TIMING, ATTACH_GLOBAL = -1, 1, 2, 1
NOT_READY, INVALID_VALUE = 600, 1

# ELF name -> argument types. Exact symbols: libcuda's plain names are often old ABIs.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuDriverGetVersion": (PTR,),
    "cuCtxGetCurrent": (PTR,),
    "cuCtxSetCurrent": (PTR,),
    "cuThreadExchangeStreamCaptureMode": (PTR,),
    "cuMemGetInfo_v2": (PTR, PTR),
    "cuMemAlloc_v2": (PTR, SIZE),
    "cuMemAllocManaged": (PTR, SIZE, U32),
    "cuMemFree_v2": (U64,),
    "cuMemHostAlloc": (PTR, SIZE, U32),
    "cuMemPrefetchAsync": (U64, SIZE, INT, PTR),
    "cuMemPrefetchAsync_v2": (U64, SIZE, MemLocation, U32, PTR),
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
    "cuLaunchKernel": (PTR, U32, U32, U32, U32, U32, U32, U32, PTR, PTR, PTR),
    "cuFuncGetParamInfo": (PTR, SIZE, PTR, PTR),
    "cuKernelGetParamInfo": (PTR, SIZE, PTR, PTR),
    "cuKernelGetFunction": (PTR, PTR),
    "cuGetProcAddress_v2": (ctypes.c_char_p, PTR, INT, U64, PTR),
}

KERNELS = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct pair { u32 *data; u64 words; };
static __device__ u64 clock_ns(void) {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
#define FIRST (blockIdx.x * (u64)blockDim.x + threadIdx.x)
#define STEP (gridDim.x * (u64)blockDim.x)

extern "C" __global__ void probe_empty(void) {}
extern "C" __global__ void probe_spin(u64 time_ns) {
  u64 start = clock_ns();
  while (clock_ns() - start < time_ns) {}
}
extern "C" __global__ void probe_fill(u32 *data, u64 words, u32 value) {
  for (u64 i = FIRST; i < words; i += STEP) data[i] = value;
}
extern "C" __global__ void probe_sum(const uint4 *data, u64 quads, u32 *sink) {
  u32 acc = 0;
  for (u64 i = FIRST; i < quads; i += STEP) { uint4 v = data[i]; acc += v.x ^ v.y ^ v.z ^ v.w; }
  if (acc == 0x9e3779b9u) *sink = acc;
}
extern "C" __global__ void probe_copy(uint4 *to, const uint4 *from, u64 quads) {
  for (u64 i = FIRST; i < quads; i += STEP) to[i] = from[i];
}
/* Thread i adds 1 to one word of slot order[i] (or i): one page a thread, all at once. */
extern "C" __global__ void probe_touch(u32 *data, u64 stride_words, const u32 *order, u64 count) {
  u64 i = FIRST;
  if (i < count) data[(order ? order[i] : i) * stride_words] += 1;
}
/* One thread, one word after the other, each load waiting for the one before. */
extern "C" __global__ void probe_chain(u32 *data, u64 stride_words, u64 count, u32 *sink) {
  u64 shift = 0;
  for (u64 i = 0; i < count; i++)
    shift += ((volatile u32 *)data)[i * stride_words + shift] == 0xfffffff7u;
  if (shift) *sink = (u32)shift;
}
extern "C" __global__ void probe_struct(u32 tag, struct pair p, unsigned short scale, double last) {
  if (p.words == 77 && FIRST == 0) p.data[0] = tag + scale + (u32)last;
}
"""


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments; `values` keeps alive what `holder` points to."""

    head: tuple[int, ...]
    holder: Any
    values: tuple[Any, ...]

    def on(self, stream: int) -> tuple[Any, ...]:
        """All arguments of cuLaunchKernel."""
        return (*self.head, stream, self.holder, None)


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
    """The values of a cuda-bindings call, or CudaError."""
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
    """The function of that exact ELF name, typed; UnsupportedError if libcuda lacks it."""
    function: Any = getattr(load_libcuda(), name, None)
    if function is None:
        raise UnsupportedError(f"libcuda has no {name}")
    function.argtypes, function.restype = SIGNATURES[name], INT
    return function


def call(name: str, *args: Any) -> None:
    code = native(name)(*args)
    if code != 0:
        raise CudaError(name, code)


def timed(name: str, *args: Any) -> int:
    """Nanoseconds that the calling thread spends in the call."""
    function = native(name)
    start = now()
    code = function(*args)
    spent = now() - start
    if code != 0:
        raise CudaError(name, code)
    return spent


def refused(name: str, *args: Any) -> Callable[[], int]:
    """The call with arguments that the driver turns down: what it costs to ask at all."""
    return functools.partial(native(name), *args)


def handle_of(name: str, *args: Any) -> int:
    """Call name(&out, *args) and return the pointer-sized value it stored."""
    out = U64(0)
    call(name, ctypes.byref(out), *args)
    return out.value


def elapsed_ns(first: int, last: int) -> float:
    """GPU nanoseconds between two recorded events that have completed."""
    spent = ctypes.c_float(0)
    call("cuEventElapsedTime", ctypes.byref(spent), first, last)
    return float(spent.value) * 1e6


COVER_NS = 200_000.0  # what issuing one operation from Python may take, and more
COVER_BYTES = GIB


class Gpu:
    """Device 0, its primary context current on this thread, and guarded allocation."""

    def __init__(self, managed_cap: int) -> None:
        load_libcuda()
        driver = bindings()
        try:
            must(driver.cuInit(0), "cuInit")
            if must(driver.cuDeviceGetCount(), "cuDeviceGetCount") == 0:
                raise NoDriverError("the CUDA driver reports no device")
            self.device = must(driver.cuDeviceGet(0), "cuDeviceGet")
        except (CudaError, RuntimeError) as error:
            raise NoDriverError(f"the CUDA driver cannot be used: {error}") from error
        self.context = int(must(driver.cuDevicePrimaryCtxRetain(self.device), "primary context"))
        call("cuCtxSetCurrent", self.context)
        self.managed_cap = managed_cap
        self.held: dict[int, int] = {}
        self.stream = self.new_stream()

    def attribute(self, name: str) -> int:
        """Device attribute by name; 0 when this cuda-bindings or driver does not know it."""
        driver = bindings()
        which = getattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name, None)
        if which is None:
            return 0
        code, value = driver.cuDeviceGetAttribute(which, self.device)
        return int(value) if int(code) == 0 else 0

    def require_managed(self) -> None:
        for name in ("MANAGED_MEMORY", "CONCURRENT_MANAGED_ACCESS"):
            if not self.attribute(name):
                raise UnsupportedError(f"device attribute {name} is 0")

    # -- memory

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        free, total = SIZE(0), SIZE(0)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def check_managed(self, length: int) -> None:
        held = sum(self.held.values())
        reason = managed_refusal(length, held, self.memory_info()[0], self.managed_cap)
        if reason is not None:
            raise GuardError(reason)

    def managed(self, length: int) -> int:
        """Address of fresh managed memory; refused above the guard."""
        self.check_managed(length)
        address = handle_of("cuMemAllocManaged", length, ATTACH_GLOBAL)
        self.held[address] = length
        return address

    def plain(self, length: int) -> int:
        """Address of device memory; leaves room for the managed memory held and 10 %."""
        free = self.memory_info()[0]
        if length + sum(self.held.values()) > FREE_SHARE * free:
            raise GuardError(f"{length} bytes of device memory leave too little of {free} free")
        return handle_of("cuMemAlloc_v2", length)

    def free(self, *addresses: int) -> None:
        for address in addresses:
            call("cuMemFree_v2", address)
            self.held.pop(address, None)

    def pinned(self, length: int) -> int:
        """Page-locked host memory, mapped (one address for both sides) and portable."""
        address = handle_of("cuMemHostAlloc", length, 3)
        ctypes.memset(address, 0, length)
        return address

    # -- streams, events, kernels

    def new_stream(self) -> int:
        return handle_of("cuStreamCreate", NON_BLOCKING)

    def sync(self, stream: int | None = None) -> None:
        call("cuStreamSynchronize", self.stream if stream is None else stream)

    @functools.cached_property
    def prefetch_call(self) -> tuple[str, Callable[[int], tuple[Any, ...]]]:
        """(ELF name, destination -> its arguments) of the prefetch that this driver has."""
        if hasattr(load_libcuda(), "cuMemPrefetchAsync_v2"):
            host, device = MemLocation(2, 0), MemLocation(1, int(self.device))
            return "cuMemPrefetchAsync_v2", lambda to: (host if to == TO_HOST else device, 0)
        return "cuMemPrefetchAsync", lambda to: (to,)

    def prefetch(self, address: int, length: int, to: int, stream: int | None = None) -> int:
        """Prefetch to TO_HOST or to device 0; returns the caller's nanoseconds."""
        name, where = self.prefetch_call
        to = TO_HOST if to == TO_HOST else int(self.device)
        stream = self.stream if stream is None else stream
        return timed(name, address, length, *where(to), stream)

    def move(self, address: int, length: int, to: int) -> tuple[int, int]:
        """Prefetch and wait: nanoseconds (in the call, until the stream is idle)."""
        start = now()
        caller = self.prefetch(address, length, to)
        self.sync()
        return caller, now() - start

    @functools.cached_property
    def image(self) -> tuple[bytes, bytes]:
        """(cubin, PTX) of KERNELS for this device."""
        major = self.attribute("COMPUTE_CAPABILITY_MAJOR")
        return compile_kernels(major * 10 + self.attribute("COMPUTE_CAPABILITY_MINOR"))

    @functools.cached_property
    def module(self) -> Any:
        driver, reasons = bindings(), []
        for image in self.image:
            code, module = driver.cuModuleLoadData(image)
            if int(code) == 0:
                return module
            reasons.append(error_name(int(code)))
        raise UnsupportedError(f"the kernels do not load: cubin {reasons[0]}, PTX {reasons[1]}")

    @functools.cache  # noqa: B019 - one Gpu for the life of the child
    def kernel(self, name: str) -> int:
        answer = bindings().cuModuleGetFunction(self.module, name.encode())
        return int(must(answer, f"cuModuleGetFunction({name})"))

    def prepare(self, name: str, grid: int, block: int, *values: Any) -> Launch:
        """A launch of `grid` thread blocks of `block` threads; `values` are ctypes objects."""
        holder = (PTR * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        return Launch((self.kernel(name), grid, 1, 1, block, 1, 1, 0), holder, values)

    def launch(self, prepared: Launch, stream: int | None = None) -> None:
        call("cuLaunchKernel", *prepared.on(self.stream if stream is None else stream))

    def warm_up(self) -> None:
        """Keep every multiprocessor busy for 0.2 s, so that clocks have risen."""
        self.launch(self.prepare("probe_spin", self.wide, 256, U64(200_000_000)))
        self.sync()

    def kernel_ns(self, prepared: Launch) -> float:
        """GPU time of one launch, between two events."""
        return self.between_events(lambda: self.launch(prepared))

    @functools.cached_property
    def event_pair(self) -> tuple[int, int]:
        return handle_of("cuEventCreate", 0), handle_of("cuEventCreate", 0)

    @functools.cached_property
    def cover_memory(self) -> tuple[int, int, float]:
        """(address, length, ns) of plain memory and how long the GPU needs to zero it.

        About COVER_NS, less where the memory does not suffice for it.
        """
        length = 32 * MIB
        address = self.plain(length)

        def spent(length: int) -> float:
            arguments = (address, 0, length, self.stream)
            return min(
                self.uncovered_ns(lambda: call("cuMemsetD8Async", *arguments)) for _ in range(4)
            )

        wanted = COVER_NS / max(spent(length), 1.0) * length
        whole = min(max(int(wanted) // BLOCK * BLOCK, length), COVER_BYTES)
        with contextlib.suppress(GuardError, CudaError):
            larger = self.plain(whole)
            self.free(address)
            address, length = larger, whole
        return address, length, spent(length)

    def cover(self, time_ns: float) -> None:
        """Keep self.stream busy for at least so long, so that what follows is queued behind it."""
        address, length, each_ns = self.cover_memory
        for _ in range(math.ceil(time_ns / max(each_ns, 1.0))):
            call("cuMemsetD8Async", address, 0, length, self.stream)

    def between_events(self, work: Callable[[], None], cover_ns: float = COVER_NS) -> float:
        """GPU nanoseconds of what `work` puts on self.stream.

        The GPU is kept busy before it, so that issuing the work is not part of the time: as
        long as `work` takes its caller less than `cover_ns`.
        """
        first, last = self.event_pair
        self.sync()
        if cover_ns > 0:
            self.cover(cover_ns)
        call("cuEventRecord", first, self.stream)
        work()
        call("cuEventRecord", last, self.stream)
        call("cuEventSynchronize", last)
        return elapsed_ns(first, last)

    def uncovered_ns(self, work: Callable[[], None]) -> float:
        """The same on an idle GPU: what it waits for the caller counts."""
        return self.between_events(work, 0.0)

    @functools.cached_property
    def wide(self) -> int:
        """Thread blocks of 256 that fill the GPU."""
        return max(self.attribute("MULTIPROCESSOR_COUNT"), 1) * 8

    def fill(self, address: int, length: int, value: int) -> Launch:
        words = U64(length // 4)
        return self.prepare("probe_fill", self.wide, 256, U64(address), words, U32(value))

    def read(self, address: int, length: int, sink: int) -> Launch:
        quads = U64(length // 16)
        return self.prepare("probe_sum", self.wide, 256, U64(address), quads, U64(sink))

    def chain(self, address: int, stride: int, count: int, sink: int) -> Launch:
        words = U64(stride // 4)
        return self.prepare("probe_chain", 1, 1, U64(address), words, U64(count), U64(sink))

    def touch(self, address: int, stride: int, count: int, order: int = 0) -> Launch:
        grid, words = (count + 63) // 64, U64(stride // 4)
        return self.prepare("probe_touch", grid, 64, U64(address), words, U64(order), U64(count))

    def spin(self, time_ns: int) -> Launch:
        """One thread that runs so long; longer by what a preemption takes."""
        return self.prepare("probe_spin", 1, 1, U64(time_ns))

    def written(self, length: int, value: int = 1) -> int:
        """Fresh managed memory, every word `value`, resident on the GPU, no host pages."""
        address = self.managed(length)
        self.move(address, length, 0)
        self.launch(self.fill(address, length, value))
        self.sync()
        return address


def compile_kernels(arch: int) -> tuple[bytes, bytes]:
    """KERNELS for sm_<arch> by NVRTC: (cubin, PTX); UnsupportedError with the reason."""
    try:
        from cuda.bindings import nvrtc

        program = must(
            nvrtc.nvrtcCreateProgram(KERNELS.encode(), b"gpu_probe.cu", 0, [], []), "nvrtcCreate"
        )
        options = [f"--gpu-architecture=sm_{arch}".encode()]
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) != 0:
            log = b" " * must(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
            nvrtc.nvrtcGetProgramLog(program, log)
            raise UnsupportedError(f"NVRTC refuses the kernels: {log.decode(errors='replace')}")
        images = []
        for kind in ("CUBIN", "PTX"):
            image = b" " * must(getattr(nvrtc, f"nvrtcGet{kind}Size")(program), kind)
            must(getattr(nvrtc, f"nvrtcGet{kind}")(program, image), kind)
            images.append(image)
        return images[0], images[1]
    except (ImportError, RuntimeError, OSError, CudaError) as error:
        raise UnsupportedError(f"no kernels, NVRTC is missing or fails: {error}") from error


def peek(address: int) -> int:
    """The 32-bit word at a host-accessible address."""
    return ctypes.c_uint32.from_address(address).value


def read_pages(address: int, length: int) -> None:
    """Read one byte of every 4 KiB page with the CPU."""
    bytes(memoryview((ctypes.c_ubyte * length).from_address(address))[:: 4 * KIB])


class Worker(threading.Thread):
    """A thread with the context current; join() returns its result or raises its error."""

    def __init__(self, gpu: Gpu, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.gpu, self.work = gpu, work
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            call("cuCtxSetCurrent", self.gpu.context)
            self.result = self.work()
        except BaseException as error:  # handed to finish()
            self.error = error

    def finish(self, limit_s: float = 30.0) -> Any:
        self.join(limit_s)
        if self.is_alive():
            raise TimeoutError(f"a thread did not end within {limit_s} s")
        if self.error is not None:
            raise self.error
        return self.result


# ---------------------------------------------------------------- registry


class Notes(dict[str, Any]):
    """A question's result; every entry is also written out at once, for the watchdog's sake."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        emit({"note": key, "value": value})


def emit(record: Json) -> None:
    sys.stdout.write(RECORD + json.dumps(record) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Question:
    """One bounded question. `decides`: what in the design hangs on the answer."""

    name: str
    decides: str
    limit_s: float
    run: Callable[[Gpu, Notes], None]
    managed: bool  # needs concurrently accessible managed memory
    not_asked: str = ""


QUESTIONS: dict[str, Question] = {}
Asker = Callable[[Gpu, Notes], None]


def question(limit_s: float, decides: str, managed: bool = True) -> Callable[[Asker], Asker]:
    """Register a function ask_<name>; questions are asked in the order of this file."""

    def register(run: Asker) -> Asker:
        name = run.__name__.removeprefix("ask_")
        QUESTIONS[name] = Question(name, decides, limit_s, run, managed)
        return run

    return register


# ---------------------------------------------------------------- questions: the machine


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def detect_runtime() -> Json:
    """What the process runs in, with the evidence: gVisor, a VM, a container, bare metal."""
    dmi = {k: read_text(f"/sys/class/dmi/id/{k}") for k in ("sys_vendor", "product_name")}
    cgroup = read_text("/proc/1/cgroup")
    marks = ("docker", "kubepods", "containerd", "libpod", "lxc")
    gvisor = platform.release() == "4.4.0" and "2016" in platform.version()
    vm = " hypervisor" in read_text("/proc/cpuinfo")
    container = (
        Path("/.dockerenv").exists()
        or Path("/run/.containerenv").exists()
        or any(mark in cgroup for mark in marks)
    )
    kind = "gvisor" if gvisor else "vm" if vm else "bare metal"
    return {"kind": kind, "gvisor": gvisor, "vm": vm, "container": container, "dmi": dmi}


def describe_host() -> Json:
    version = read_text("/proc/driver/nvidia/version")
    parameters = {
        path.name: read_text(str(path))
        for path in sorted(Path("/sys/module/nvidia_uvm/parameters").glob("*"))
    }
    maps = read_text("/proc/self/maps").splitlines()
    flavour = "open" if "Open Kernel Module" in version else "proprietary" if version else "unknown"
    watched = ("CUDA_", "LD_PRELOAD", "NVIDIA_")
    return {
        "runtime": detect_runtime(),
        "kernel": f"{platform.release()} {platform.version()}",
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "cpu_model": next(
            (
                line.partition(":")[2].strip()
                for line in read_text("/proc/cpuinfo").splitlines()
                if line.startswith("model name")
            ),
            "",
        ),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "nvidia_version_file": version,
        "kernel_module": flavour,
        "uvm_parameters": parameters,
        "libcuda": next((line.split()[-1] for line in maps if "libcuda.so" in line), ""),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(watched)},
        # Names alone: what pump or its virtual GPU was told must not reach an answer.
        "pump_variables": sorted(name for name in os.environ if name.startswith("PUMP_")),
    }


def describe_link() -> Json:
    """PCIe generation and width, if pynvml is importable and NVML answers. Reads only."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            f"{which}_{what}": getattr(pynvml, f"nvmlDeviceGet{which.title()}PcieLink{call_name}")(
                handle
            )
            for which in ("curr", "max")
            for what, call_name in (("generation", "Generation"), ("width", "Width"))
        }
    except Exception as error:
        return {"unavailable": f"{type(error).__name__}: {error}"}


@question(30, "whether this machine's figures count at all, and for which profile", managed=False)
def ask_machine(gpu: Gpu, out: Notes) -> None:
    driver = bindings()
    out["host"] = describe_host()
    version = INT(0)
    call("cuDriverGetVersion", ctypes.byref(version))
    free, total = gpu.memory_info()
    attributes = {}
    for which in driver.CUdevice_attribute:
        code, value = driver.cuDeviceGetAttribute(which, gpu.device)
        if int(code) == 0:
            attributes[which.name.removeprefix("CU_DEVICE_ATTRIBUTE_").lower()] = int(value)
    name = must(driver.cuDeviceGetName(128, gpu.device), "cuDeviceGetName")
    try:
        from cuda.bindings import __version__ as bindings_version
    except ImportError:
        bindings_version = "unknown"
    out["device"] = {
        "name": name.split(b"\0")[0].decode(errors="replace"),
        "uuid": bytes(must(driver.cuDeviceGetUuid(gpu.device), "cuDeviceGetUuid").bytes).hex(),
        "driver_version": version.value,
        "cuda_bindings": bindings_version,
        "free_bytes": free,
        "total_bytes": total,
        "prefetch_symbol": gpu.prefetch_call[0],
        "link": describe_link(),
        "attributes": attributes,
    }


HOOKED_FAMILIES = """
cuInit cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel
cuLaunchCooperativeKernelMultiDevice cuGraphLaunch cuGraphUpload cuGraphInstantiate
cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphExecDestroy cuGraphExecUpdate
cuGraphExecKernelNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
cuGraphExecChildGraphNodeSetParams cuGraphExecNodeSetParams cuGraphNodeSetEnabled cuGraphAddNode
cuStreamBeginCapture cuStreamBeginCaptureToGraph cuStreamEndCapture cuStreamGetCaptureInfo
cuStreamIsCapturing cuThreadExchangeStreamCaptureMode cuMemAlloc cuMemAllocPitch cuMemAllocManaged
cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFree cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy
cuMemPoolTrimTo cuMemPoolSetAttribute cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32
cuStreamWriteValue64 cuStreamBatchMemOp cuModuleGetGlobal cuLibraryGetManaged cuLibraryGetGlobal
cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyHtoD cuMemcpyHtoDAsync cuMemcpyDtoH
cuMemcpyDtoHAsync cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy2DAsync
cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpyBatchAsync
cuMemcpy3DBatchAsync cuMemsetD8 cuMemsetD16 cuMemsetD32 cuMemsetD2D8 cuMemsetD2D16 cuMemsetD2D32
cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async
cuMemsetD2D32Async cuMemPrefetchAsync cuMemPrefetchBatchAsync cuMemDiscardBatchAsync
cuMemDiscardAndPrefetchBatchAsync cuMemAdvise cuMemGetInfo cuDeviceTotalMem cuPointerGetAttribute
cuPointerGetAttributes cuIpcGetMemHandle cuIpcOpenMemHandle cuMemGetHandleForAddressRange
cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload
cuModuleGetFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel
cuKernelGetFunction cuCtxCreate cuCtxDestroy cuCtxSynchronize cuDevicePrimaryCtxRetain
cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuStreamSynchronize cuStreamQuery
cuStreamWaitEvent cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuEventCreate
cuEventDestroy cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize
cuEventElapsedTime cuFuncGetParamInfo cuKernelGetParamInfo cuGetProcAddress
"""
HOOKED = tuple(HOOKED_FAMILIES.split())
CUDA_VERSIONS = (3020, 6050, 7000, 8000, 10010, 11030, 11070, 12000, 12020, 12030, 12080, 13000)


def elf_addresses(base: str) -> dict[str, int]:
    """Every ELF variant of a driver name that dlsym finds, with its address."""
    found = {}
    for version in ("", "_v2", "_v3", "_v4"):
        for twin in ("", "_ptsz", "_ptds"):
            symbol = getattr(load_libcuda(), base + version + twin, None)
            if symbol is not None:
                found[base + version + twin] = ctypes.cast(symbol, PTR).value or 0
    return found


@question(20, "whether cuGetProcAddress answers can be mapped to hooks by address", managed=False)
def ask_symbols(gpu: Gpu, out: Notes) -> None:
    query, driver_version = native("cuGetProcAddress_v2"), INT(0)
    call("cuDriverGetVersion", ctypes.byref(driver_version))
    versions = sorted(
        {v for v in CUDA_VERSIONS if v <= driver_version.value} | {driver_version.value}
    )
    table: Json = {}
    unmatched, absent, asked = [], [], 0
    # One map for all names: a query may lead to another family (from 12.0 on,
    # cuGraphInstantiate is cuGraphInstantiateWithFlags).
    elf = {base: elf_addresses(base) for base in HOOKED}
    by_address = collections.defaultdict(list)
    for known in elf.values():
        for name, address in known.items():
            by_address[address].append(name)
    shared = [" = ".join(names) for names in by_address.values() if len(names) > 1]
    for base, known in elf.items():
        rows: Json = {}
        for flags in (0, 1, 2):
            for version in versions:
                found, status = PTR(0), INT(0)
                code = query(
                    base.encode(), ctypes.byref(found), version, flags, ctypes.byref(status)
                )
                if code != 0 or not found.value:
                    continue
                asked += 1
                names = by_address.get(found.value)
                own = [name for name in names or ["unmatched"] if name in known]
                rows.setdefault(str(flags), {})[str(version)] = (own or names or ["unmatched"])[0]
                if not names:
                    unmatched.append(f"{base} version {version} flags {flags}")
        if not known:
            absent.append(base)
        table[base] = {"elf": sorted(known), "by_flags_and_version": compress(rows)}
    found, status = PTR(0), INT(0)
    empty = query(b"", ctypes.byref(found), 0, 0, ctypes.byref(status))
    out["equal"] = not unmatched
    out["asked"] = asked
    out["unmatched"] = unmatched
    out["not_in_libcuda"] = absent
    out["several_names_one_address"] = sorted(shared)
    out["empty_name_version_0"] = {"code": empty, "name": error_name(empty), "status": status.value}
    out["table"] = table


def compress(rows: Json) -> Json:
    """Keep, of consecutive versions with one answer, the first."""
    slim: Json = {}
    for flags, answers in rows.items():
        last = None
        for version, name in sorted(answers.items(), key=lambda item: int(item[0])):
            if name != last:
                slim.setdefault(flags, {})[version] = name
            last = name
    return slim


# ---------------------------------------------------------------- questions: cost of calls


def cost_of(
    function: Callable[[], Any],
    batches: int = 60,
    per_batch: int = 50,
    after: Callable[[], None] | None = None,
) -> Json:
    """Microseconds a call, from timed batches; `after` runs untimed after each batch."""
    samples = []
    for _ in range(batches):
        start = now()
        for _ in range(per_batch):
            function()
        samples.append((now() - start) / per_batch)
        if after is not None:
            after()
    return us(samples[batches // 10 :])


@question(30, "hook overhead budget; what a marker and its poll may cost", managed=False)
def ask_call_cost(gpu: Gpu, out: Notes) -> None:
    libc = ctypes.CDLL(None)
    libc.abs.argtypes = (INT,)
    value, other = U64(0), U64(0)
    to_value, to_other = ctypes.byref(value), ctypes.byref(other)
    event = handle_of("cuEventCreate", DISABLE_TIMING)
    buffer = gpu.plain(BLOCK)
    calls: dict[str, tuple[Any, ...]] = {
        "cuCtxGetCurrent": (to_value,),
        "cuStreamIsCapturing": (gpu.stream, to_value),
        "cuStreamQuery": (gpu.stream,),
        "cuEventRecord": (event, gpu.stream),
        "cuEventQuery": (event,),
        "cuMemGetInfo_v2": (to_value, to_other),
        "cuPointerGetAttribute": (to_value, 2, buffer),
        "cuThreadExchangeStreamCaptureMode": (ctypes.byref(INT(0)),),
    }
    floor = functools.partial(libc.abs, 1)
    cost_of(floor)  # the CPU's clock has risen afterwards
    out["ctypes_floor_us"] = cost_of(floor)
    for name, args in calls.items():
        try:
            function = native(name)
            gpu.sync()
            out[name + "_us"] = cost_of(functools.partial(function, *args), after=gpu.sync)
        except UnsupportedError as error:
            out[name + "_us"] = {"unsupported": str(error)}
    empty = gpu.prepare("probe_empty", 1, 32)
    launch = functools.partial(native("cuLaunchKernel"), *empty.on(gpu.stream))
    out["cuLaunchKernel_us"] = cost_of(launch, after=gpu.sync)
    try:
        info = functools.partial(
            native("cuFuncGetParamInfo"), gpu.kernel("probe_struct"), 1, to_value, to_other
        )
        out["cuFuncGetParamInfo_us"] = cost_of(info)
    except UnsupportedError as error:
        out["cuFuncGetParamInfo_us"] = {"unsupported": str(error)}


BURST_NS = 20_000_000.0
MARKER_BURST = 256  # launches; with a marker each still less than a stream's queue holds


@question(30, "marker spacing (16 operations): GPU time that event markers cost", managed=False)
def ask_markers(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    launch = gpu.prepare("probe_empty", 1, 32)
    pool = [handle_of("cuEventCreate", DISABLE_TIMING) for _ in range(64)]

    def burst(spacing: int) -> None:
        for index in range(MARKER_BURST):
            gpu.launch(launch)
            if spacing and index % spacing == 0:
                call("cuEventRecord", pool[index // spacing % len(pool)], gpu.stream)

    # Covered for long, so that the GPU finds the whole burst queued and issue cost is hidden.
    for spacing in (0, 1, 4, 16, 64):
        work = functools.partial(burst, spacing)
        spent = [gpu.between_events(work, BURST_NS) / MARKER_BURST for _ in range(7)]
        out[f"us_per_launch_marker_every_{spacing or 'never'}"] = us(spent[1:])
    # On an idle GPU: what lies between a launch's call and the kernel's first instruction.
    # Refused launches between the events tell what the call takes its caller.
    arguments = launch.on(gpu.stream)
    works = {
        "idle_launch_us": functools.partial(native("cuLaunchKernel"), *arguments),
        "idle_refused_us": refused("cuLaunchKernel", arguments[0], 0, *arguments[2:]),
        "idle_nothing_us": int,
    }
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(320):  # in turns, so that the CPU's moods hit all alike
        for name, work in works.items():
            samples[name].append(gpu.uncovered_ns(work))
    for name, spent in samples.items():
        out[name] = us(spent[20:])


@question(40, "conversion threshold; allocation cost when a job fits (invariant 9)")
def ask_alloc_cost(gpu: Gpu, out: Notes) -> None:
    address = U64(0)

    def cycle(managed: bool, size: int, touch: str) -> tuple[int, int]:
        if managed:
            gpu.check_managed(size)
        args = (ctypes.byref(address), size)
        took = (
            timed("cuMemAllocManaged", *args, ATTACH_GLOBAL)
            if managed
            else timed("cuMemAlloc_v2", *args)
        )
        if touch == "gpu":
            call("cuMemsetD8Async", address.value, 0, size, gpu.stream)
            gpu.sync()
        elif touch == "cpu":
            ctypes.memset(address.value, 0, size)
        return took, timed("cuMemFree_v2", address.value)

    plain = ((False, ""), (False, "gpu"))
    for size in (64 * KIB, 2 * MIB, 32 * MIB, 256 * MIB):
        row: Json = {}
        for managed, touch in (*plain, (True, ""), (True, "gpu"), (True, "cpu")):
            samples = [cycle(managed, size, touch) for _ in range(8)][1:]
            key = ("managed" if managed else "plain") + (f"_touched_by_{touch}" if touch else "")
            row[key] = {
                "alloc_us": us(spent for spent, _ in samples),
                "free_us": us(spent for _, spent in samples),
                "block_aligned": address.value % BLOCK == 0,
            }
        out[f"{size // KIB}_kib"] = row


# ---------------------------------------------------------------- questions: migration

SIZES_MIB = (2, 4, 8, 16, 32, 64, 128, 256)


def moves_summary(samples: Sequence[tuple[int, int]], length: int) -> Json:
    """samples: (caller ns, total ns) of prefetches of `length` bytes."""
    totals = [total for _, total in samples]
    return {
        "caller_us": us(caller for caller, _ in samples),
        "total_us": us(totals),
        "gbps": gbps(length, undisturbed(float(total) for total in totals)),
    }


def block_fit(rows: dict[int, Json], direction: str, which: str) -> Json:
    """Line through a median over the number of blocks: fixed and per-block microseconds.

    Without the single block: calls of several blocks make a second pass over them. Of each
    size the 10th percentile: see undisturbed().
    """
    points = [(mib / 2, row[direction][which]["p10"]) for mib, row in rows.items() if mib > 2]
    fixed, per_block = line_fit(points)
    return {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


@question(40, "t_call, t_hblk, bw_h2d, t_cpupte; slice size; number of out-threads")
def ask_prefetch_idle(gpu: Gpu, out: Notes) -> None:
    rows: dict[int, Json] = {}
    out["refused_us"] = refused_prefetch_us(gpu)
    for mib in SIZES_MIB:
        length = mib * MIB
        address = gpu.written(length, 7)
        first_out = gpu.move(address, length, TO_HOST)
        outs, ins = [], []
        for _ in range(7 if mib > 64 else 11):
            ins.append(gpu.move(address, length, 0))
            outs.append(gpu.move(address, length, TO_HOST))
        kept = peek(address) == peek(address + length - 4) == 7
        rows[mib] = {
            "in": moves_summary(ins, length),
            "out": moves_summary(outs, length),
            "first_out": moves_summary([first_out], length),
            "in_when_resident_us": resident_again(gpu, address, length),
            "in_after_a_fault_each": after_faults(gpu, address, length),
            "data_kept": kept,
        }
        gpu.free(address)
        out[f"{mib}_mib"] = rows[mib]
    for direction in ("in", "out"):
        for which in ("caller_us", "total_us"):
            out[f"fit_{direction}_{which.removesuffix('_us')}"] = block_fit(rows, direction, which)


def refused_prefetch_us(gpu: Gpu) -> Json:
    """Caller time of a prefetch of nothing: what asking costs, clock and ctypes included."""
    name, where = gpu.prefetch_call
    ask = refused(name, gpu.managed(BLOCK), 0, *where(0), gpu.stream)
    samples = []
    for _ in range(50):
        start = now()
        ask()
        samples.append(now() - start)
        gpu.sync()
    return us(samples[10:])


def after_faults(gpu: Gpu, address: int, length: int) -> Json:
    """A prefetch of blocks of which the GPU has fetched one page itself.

    Where the CPU's work on a block takes longer than its copy, most of that work may be done
    by then, and the link shows.
    """
    blocks = length // BLOCK
    samples = []
    for _ in range(4):
        gpu.move(address, length, TO_HOST)
        gpu.launch(gpu.touch(address, BLOCK, blocks))
        gpu.sync()
        samples.append(gpu.move(address, length, 0))
    return moves_summary(samples, length - blocks * 64 * KIB)


def resident_again(gpu: Gpu, address: int, length: int) -> Json:
    """Caller time of a prefetch of blocks that are on the GPU already."""
    gpu.move(address, length, 0)
    return us(gpu.move(address, length, 0)[0] for _ in range(5))


@question(30, "whether an executor should gather scattered blocks into one batch call")
def ask_prefetch_scattered(gpu: Gpu, out: Notes) -> None:
    count, length = 16, 64 * MIB
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)
    blocks = [address + 2 * index * BLOCK for index in range(count)]  # every other block
    pointers, lengths = (U64 * count)(*blocks), (SIZE * count)(*[BLOCK] * count)
    indices = (SIZE * 1)(0)
    places = {0: MemLocation(1, int(gpu.device)), TO_HOST: MemLocation(2, 0)}

    def one_by_one(to: int) -> int:
        return sum(gpu.prefetch(block, BLOCK, to) for block in blocks)

    def batch(to: int) -> int:
        return timed(
            "cuMemPrefetchBatchAsync",
            pointers,
            lengths,
            count,
            ctypes.byref(places[to]),
            indices,
            1,
            0,
            gpu.stream,
        )

    for name, submit in (("one_by_one", one_by_one), ("batch", batch)):
        row: dict[str, list[tuple[int, int]]] = {"in": [], "out": []}
        try:
            for _ in range(7):
                for direction, to in (("in", 0), ("out", TO_HOST)):
                    start = now()
                    caller = submit(to)
                    gpu.sync()
                    row[direction].append((caller, now() - start))
        except (UnsupportedError, CudaError) as error:
            out[name] = {"failed": str(error)}
            continue
        out[name] = {
            direction: moves_summary(samples[1:], count * BLOCK)
            for direction, samples in row.items()
        }


@question(30, "whether executors' streams must be kept idle; who does the work on a busy one")
def ask_prefetch_busy(gpu: Gpu, out: Notes) -> None:
    spin_ns = 20_000_000
    spin = gpu.spin(spin_ns)
    out["spin_us"] = us(gpu.kernel_ns(spin) for _ in range(3))
    for mib in (2, 32, 256):
        length = mib * MIB
        address = gpu.written(length)
        gpu.move(address, length, TO_HOST)
        row: dict[str, list[tuple[int, int]]] = {"in": [], "out": []}
        for _ in range(5):
            for direction, to in (("in", 0), ("out", TO_HOST)):
                gpu.sync()
                gpu.launch(spin)
                row[direction].append(gpu.move(address, length, to))
        gpu.free(address)
        out[f"{mib}_mib"] = {
            direction: {
                "caller_us": us(caller for caller, _ in samples),
                "total_with_spin_us": us(total for _, total in samples),
                "caller_waits_for_stream": median(c for c, _ in samples) > 0.8 * spin_ns,
            }
            for direction, samples in row.items()
        }


def sliced(gpu: Gpu, address: int, length: int, *, slice_length: int, to: int, stream: int) -> None:
    """Prefetch a range slice by slice and wait for the stream."""
    for offset in range(0, length, slice_length):
        gpu.prefetch(address + offset, min(slice_length, length - offset), to, stream)
    gpu.sync(stream)


def together(gpu: Gpu, jobs: Sequence[Callable[[], None]]) -> list[tuple[int, int]]:
    """Run jobs in threads that start at once; (start, end) of each in nanoseconds."""
    barrier = threading.Barrier(len(jobs))

    def timed_job(job: Callable[[], None]) -> tuple[int, int]:
        barrier.wait(10)
        start = now()
        job()
        return start, now()

    workers = [Worker(gpu, functools.partial(timed_job, job)) for job in jobs]
    return [worker.finish() for worker in workers]


@question(40, "how many in- and out-threads an executor needs, and with which slices")
def ask_prefetch_threads(gpu: Gpu, out: Notes) -> None:
    length = 256 * MIB
    buffers = [gpu.written(length) for _ in range(4)]
    streams = [gpu.new_stream() for _ in buffers]
    for address in buffers:
        gpu.move(address, length, TO_HOST)  # host pages allocated once
    for mib in (4, 8, 32):
        for threads in (1, 2, 4):
            row: dict[str, list[float]] = {"in": [], "out": []}
            for _ in range(4):
                for direction, to in (("in", 0), ("out", TO_HOST)):
                    jobs = [
                        functools.partial(
                            sliced,
                            gpu,
                            address,
                            length,
                            slice_length=mib * MIB,
                            to=to,
                            stream=stream,
                        )
                        for address, stream in zip(buffers[:threads], streams, strict=False)
                    ]
                    spans = together(gpu, jobs)
                    wall = max(end for _, end in spans) - min(start for start, _ in spans)
                    row[direction].append(gbps(threads * length, wall))
            out[f"slices_{mib}_mib_threads_{threads}"] = {
                f"{direction}_gbps": summary(samples[1:]) for direction, samples in row.items()
            }


def overlap_rate(
    span: tuple[int, int], other: tuple[int, int], length: int, alone: float
) -> float | None:
    """Share of the undisturbed rate `alone` (GB/s) kept while both spans run, None if never.

    The part of `span` outside `other` is taken to have run at `alone`.
    """
    both = min(span[1], other[1]) - max(span[0], other[0])
    if both <= 0 or alone <= 0:
        return None
    moved = length - (span[1] - span[0] - both) * alone
    return rounded(max(moved, 0.0) / (both * alone))


@question(40, "duplex factor delta; whether in and out may run at once")
def ask_duplex(gpu: Gpu, out: Notes) -> None:
    length = 512 * MIB
    half = length // 2
    buffers = [gpu.written(length), gpu.written(length)]
    streams = [gpu.new_stream() for _ in range(3)]
    gpu.move(buffers[0], length, TO_HOST)
    gpu.move(buffers[1], length, TO_HOST)
    gpu.move(buffers[1], length, 0)

    def job(to: int, address: int, size: int, stream: int) -> Callable[[], None]:
        return functools.partial(
            sliced, gpu, address, size, slice_length=32 * MIB, to=to, stream=streams[stream]
        )

    rates: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(5):
        incoming, outgoing = buffers
        ((start, end),) = together(gpu, [job(0, incoming, length, 0)])
        rates["in_alone_gbps"].append(length / (end - start))
        ((start, end),) = together(gpu, [job(TO_HOST, incoming, length, 1)])
        rates["out_alone_gbps"].append(length / (end - start))
        spans = together(gpu, [job(0, incoming, length, 0), job(TO_HOST, outgoing, length, 1)])
        note_both(rates, "one_out_thread", spans[0], spans[1], length)
        incoming, outgoing = outgoing, incoming
        spans = together(
            gpu,
            [
                job(0, incoming, length, 0),
                job(TO_HOST, outgoing, half, 1),
                job(TO_HOST, outgoing + half, half, 2),
            ],
        )
        out_span = (min(s for s, _ in spans[1:]), max(e for _, e in spans[1:]))
        rates["two_out_threads_out_gbps"].append(length / (out_span[1] - out_span[0]))
        rates["two_out_threads_in_gbps"].append(length / (spans[0][1] - spans[0][0]))
    for key, samples in rates.items():
        out[key] = summary(samples[1:])


def note_both(
    rates: dict[str, list[float]],
    name: str,
    span_in: tuple[int, int],
    span_out: tuple[int, int],
    length: int,
) -> None:
    alone_in, alone_out = rates["in_alone_gbps"][-1], rates["out_alone_gbps"][-1]
    for way, share in (
        ("in", overlap_rate(span_in, span_out, length, alone_in)),
        ("out", overlap_rate(span_out, span_in, length, alone_out)),
    ):
        if share is not None:
            rates[f"{name}_delta_{way}"].append(share)


@question(
    30, "the link's ceiling: copy engine H2D/D2H and duplex, from pinned memory", managed=False
)
def ask_copy_engine(gpu: Gpu, out: Notes) -> None:
    length = 256 * MIB
    device_in, device_out = gpu.plain(length), gpu.plain(length)
    host_in, host_out = gpu.pinned(length), gpu.pinned(length)
    streams = gpu.new_stream(), gpu.new_stream()

    def h2d(size: int) -> None:
        call("cuMemcpyHtoDAsync_v2", device_in, host_in, size, streams[0])

    def d2h(size: int) -> None:
        call("cuMemcpyDtoHAsync_v2", host_out, device_out, size, streams[1])

    ways = ((h2d, streams[0]), (d2h, streams[1]))
    bracketed(*ways[0], length)  # the first copies map pages
    bracketed(*ways[1], length)
    for name, way in zip(("h2d", "d2h"), ways, strict=True):
        alone = undisturbed(bracketed(*way, length)[0] for _ in range(7))
        out[f"{name}_us"], out[f"{name}_gbps"] = rounded(alone / 1e3), gbps(length, alone)
    shares = []
    for name, way, other in (("h2d", *ways), ("d2h", *reversed(ways))):
        alone = median(bracketed(*way, SHORT_COPY, 16))
        both = [share for _ in range(3) for share in in_company(way, other, length)]
        share = rounded(min(alone / median(both), 1.0)) if both else 0.0
        out[f"{name}_share_in_company"] = share
        shares.append(share)
    if all(shares):
        out["duplex_factor"] = min(shares)


SHORT_COPY = 4 * MIB
Way = tuple[Callable[[int], None], int]  # starts a copy of that many bytes; its stream


def bracketed(
    start: Callable[[int], None], stream: int, length: int, count: int = 1
) -> list[float]:
    """GPU nanoseconds of each of `count` copies in a row."""
    events = [handle_of("cuEventCreate", 0) for _ in range(count + 1)]
    gpu_marks(start, stream, length, events)
    call("cuStreamSynchronize", stream)
    return [elapsed_ns(a, b) for a, b in itertools.pairwise(events)]


def gpu_marks(start: Callable[[int], None], stream: int, length: int, events: list[int]) -> None:
    """Copies with an event before, between and behind them."""
    call("cuEventRecord", events[0], stream)
    for event in events[1:]:
        start(length)
        call("cuEventRecord", event, stream)


def in_company(way: Way, other: Way, length: int) -> list[float]:
    """GPU nanoseconds of short copies in one direction while a long one runs in the other.

    Short ones, because a share over a long overlap would mix in how two long copies start.
    """
    begin, *events = [handle_of("cuEventCreate", 0) for _ in range(18)]
    end = events.pop()
    call("cuEventRecord", begin, other[1])
    other[0](length)
    call("cuEventRecord", end, other[1])
    gpu_marks(*way, SHORT_COPY, events)
    for stream in (way[1], other[1]):
        call("cuStreamSynchronize", stream)
    whole = elapsed_ns(begin, end)
    inside = [(a, b) for a, b in itertools.pairwise(events) if elapsed_ns(begin, b) < whole]
    return [elapsed_ns(a, b) for a, b in inside]


# ---------------------------------------------------------------- question: what others feel


class Disturber:
    """A thread that evicts and brings back one buffer over and over, telling its phase."""

    def __init__(self, gpu: Gpu, address: int, length: int) -> None:
        self.gpu, self.address, self.length = gpu, address, length
        self.stream = gpu.new_stream()
        self.phase = ""
        self.stop = False
        self.usleep = ctypes.CDLL(None).usleep

    def evict(self, slice_length: int) -> None:
        while not self.stop:
            self.phase = "in"
            self.move_all(32 * MIB, 0)
            self.phase = "out"
            self.move_all(slice_length, TO_HOST)
        self.phase = ""

    def move_all(self, slice_length: int, to: int) -> None:
        sliced(
            self.gpu,
            self.address,
            self.length,
            slice_length=slice_length,
            to=to,
            stream=self.stream,
        )

    def only_sleep(self) -> None:
        """The control: a thread that takes and drops the interpreter lock likewise."""
        self.phase = "control"
        while not self.stop:
            self.usleep(1000)
        self.phase = ""


def victims(gpu: Gpu) -> dict[str, Callable[[], dict[str, int]]]:
    """What an application thread does: each returns nanoseconds by call."""
    stream, query = gpu.new_stream(), native("cuEventQuery")
    launch_args = gpu.prepare("probe_empty", 1, 32).on(stream)
    event, address = handle_of("cuEventCreate", DISABLE_TIMING), U64(0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = PTR, (PTR, SIZE, INT, INT, INT, ctypes.c_long)
    libc.munmap.argtypes = (PTR, SIZE)
    issued = 0

    def launching() -> dict[str, int]:
        nonlocal issued
        issued += 1
        if issued % 64 == 0:
            gpu.sync(stream)
        return {"cuLaunchKernel": timed("cuLaunchKernel", *launch_args)}

    def launch_and_wait() -> dict[str, int]:
        start = now()
        call("cuLaunchKernel", *launch_args)
        gpu.sync(stream)
        return {"launch_and_synchronise": now() - start}

    def allocating() -> dict[str, int]:
        spent = timed("cuMemAlloc_v2", ctypes.byref(address), 4 * MIB)
        return {"cuMemAlloc": spent, "cuMemFree": timed("cuMemFree_v2", address.value)}

    def allocating_managed() -> dict[str, int]:
        gpu.check_managed(4 * MIB)
        spent = timed("cuMemAllocManaged", ctypes.byref(address), 4 * MIB, ATTACH_GLOBAL)
        freed = timed("cuMemFree_v2", address.value)
        return {"cuMemAllocManaged": spent, "cuMemFree_of_managed": freed}

    def mapping() -> dict[str, int]:
        start = now()
        where = libc.mmap(
            None,
            MIB,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            -1,
            0,
        )
        mapped = now()
        libc.munmap(where, MIB)
        return {"mmap": mapped - start, "munmap": now() - mapped}

    def marking() -> dict[str, int]:
        spent = timed("cuEventRecord", event, stream)
        start = now()
        query(event)  # ready or not
        return {"cuEventRecord": spent, "cuEventQuery": now() - start}

    def forking() -> dict[str, int]:
        start = now()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        spent = now() - start
        os.waitpid(pid, 0)
        return {"fork": spent}

    return {
        "launch": launching,
        "launch_and_wait": launch_and_wait,
        "alloc": allocating,
        "managed_alloc": allocating_managed,
        "mmap": mapping,
        "event": marking,
        "fork": forking,
    }


def feel(victim: Callable[[], dict[str, int]], disturber: Disturber, seconds: float) -> Json:
    """Samples of a victim for so long, by call and by the disturber's phase before or after."""
    samples: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = disturber.phase
        answer = victim()
        phases = {before, disturber.phase}
        phase = next((p for p in ("out", "in", "control") if p in phases), "alone")
        for name, spent in answer.items():
            samples[name, phase].append(spent)
    result: Json = {}
    for (name, phase), values in samples.items():
        result.setdefault(name, {})[phase] = us(values)
    return result


@question(75, "the design's greatest risk: what application threads feel while executors evict")
def ask_felt_by_others(gpu: Gpu, out: Notes) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # fork in a threaded program: on purpose
    sys.setswitchinterval(5e-5)
    length = 512 * MIB
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)
    for name, victim in victims(gpu).items():
        disturber = Disturber(gpu, address, length)
        feel(victim, disturber, 0.05)
        row: Json = {"alone": feel(victim, disturber, 0.4)}
        plans: list[tuple[str, Callable[[], None]]] = [("control", disturber.only_sleep)]
        plans += [
            (f"evict_slices_{mib}_mib", functools.partial(disturber.evict, mib * MIB))
            for mib in (8, 32, 256)
        ]
        for label, work in plans:
            disturber.stop = False
            worker = Worker(gpu, work)
            try:
                row[label] = feel(victim, disturber, 0.4 if label == "control" else 0.9)
            finally:
                disturber.stop = True
                worker.finish()
        out[name] = row


# ---------------------------------------------------------------- questions: faults, populate


SWEPT_BLOCKS = 128


@question(45, "demand model: bw_demand, t0 + t_replay, t_blk, t_pg; what an irregular gather costs")
def ask_faults(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    blocks = SWEPT_BLOCKS
    length = blocks * BLOCK
    address, sink = gpu.written(length), gpu.plain(BLOCK)
    order = gpu.plain(BLOCK)
    slots = list(range(length // (64 * KIB)))
    random.Random(1).shuffle(slots)
    shuffled = array.array("I", slots)
    call("cuMemcpyHtoD_v2", order, shuffled.buffer_info()[0], len(slots) * 4)

    def cold(prepared: Launch, repeats: int = 5) -> list[float]:
        samples = []
        for _ in range(repeats):
            gpu.move(address, length, TO_HOST)
            samples.append(gpu.kernel_ns(prepared))
        return samples

    for name, prepared in (
        ("sequential_read", gpu.read(address, length, sink)),
        ("sequential_write", gpu.fill(address, length, 3)),
        ("random_64_kib_slots", gpu.touch(address, 64 * KIB, len(slots), order)),
    ):
        samples = cold(prepared)
        warm = [gpu.kernel_ns(prepared) for _ in range(5)]
        out[name] = {"gbps": gbps(length, median(samples)), "us": us(samples), "warm_us": us(warm)}

    def fresh(work: Callable[[int], Launch], repeats: int = 5) -> list[float]:
        """The same on memory that has no pages yet: nothing is copied, nothing unmapped."""
        samples = []
        for _ in range(repeats):
            new = gpu.managed(length)
            samples.append(gpu.kernel_ns(work(new)))
            gpu.sync()
            gpu.free(new)
        return samples

    out["fresh_sequential_write_us"] = us(fresh(lambda at: gpu.fill(at, length, 3)))
    counts = (1, 8, 32, blocks)
    out["warm_touch_us"] = us(gpu.kernel_ns(gpu.touch(address, BLOCK, 1)) for _ in range(9))
    for kind in ("", "fresh_"):
        points = []
        for count in counts:
            samples = (
                fresh(lambda at, count=count: gpu.touch(at, BLOCK, count))
                if kind
                else cold(gpu.touch(address, BLOCK, count))
            )
            out[f"{kind}one_page_in_each_of_{count}_blocks_us"] = us(samples)
            points.append((float(count), undisturbed(samples) / 1e3))
        fixed, per_block = line_fit(points)
        out[f"{kind}fit_one_page_a_block"] = {
            "fixed_us": rounded(fixed),
            "per_block_us": rounded(per_block),
        }
        for pages in (1, 4, 16, 32):
            samples = (
                fresh(lambda at, pages=pages: gpu.touch(at, 64 * KIB, pages))
                if kind
                else cold(gpu.touch(address, 64 * KIB, pages))
            )
            out[f"{kind}{pages}_slots_of_64_kib_in_one_block_us"] = us(samples)
    samples = cold(gpu.chain(address, BLOCK, 64, sink), 7)
    warm = [gpu.kernel_ns(gpu.chain(address, BLOCK, 64, sink)) for _ in range(7)]
    out["serial_fault_us"] = us((cold_ns - median(warm)) / 64 for cold_ns in samples)


@question(40, "populate cost: bw_memset; why the executor should populate before the kernel does")
def ask_populate(gpu: Gpu, out: Notes) -> None:
    callers: list[tuple[float, float]] = []
    for mib in (2, 8, 32, 256):
        length = mib * MIB
        row: Json = {}
        for way in ("prefetch", "kernel", "memset", "kernel_after_prefetch", "cpu"):
            samples = [populate_fresh(gpu, length, way) for _ in range(8)][1:]
            totals = [total for _, total in samples]
            row[way] = {"total_us": us(totals), "gbps": gbps(length, median(totals))}
            if way in ("prefetch", "memset"):
                row[way]["caller_us"] = us(caller for caller, _ in samples)
        if mib > 2:  # several blocks: two passes
            callers.append((mib / 2, row["prefetch"]["caller_us"]["p10"]))
        out[f"{mib}_mib"] = row
    fixed, per_block = line_fit(callers)
    out["fit_prefetch_caller"] = {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


def populate_fresh(gpu: Gpu, length: int, way: str) -> tuple[float, float]:
    """(caller ns, total ns) of giving fresh managed memory its first pages in one way."""
    address = gpu.managed(length)
    callers = [0]
    start = now()
    if way == "prefetch":
        caller, total = gpu.move(address, length, 0)
        callers.append(caller)
        spent: float = total
    elif way == "cpu":
        ctypes.memset(address, 5, length)
        spent = now() - start
    elif way == "memset":
        spent = gpu.between_events(
            lambda: callers.append(timed("cuMemsetD8Async", address, 5, length, gpu.stream))
        )
    else:
        if way == "kernel_after_prefetch":
            gpu.move(address, length, 0)
        spent = gpu.kernel_ns(gpu.fill(address, length, 5))
    gpu.sync()
    gpu.free(address)
    return callers[-1], spent


@question(40, "t_hostalloc, t_cpuunmap: price of the first and later evictions and of the return")
def ask_way_back(gpu: Gpu, out: Notes) -> None:
    length = 128 * MIB
    first, later = [], []
    for _ in range(4):
        address = gpu.written(length)
        first.append(gpu.move(address, length, TO_HOST))
        gpu.move(address, length, 0)
        later.append(gpu.move(address, length, TO_HOST))
        gpu.free(address)
    out["first_out"], out["later_out"] = moves_summary(first, length), moves_summary(later, length)
    # Block by block: in one long call the CPU's work hides behind the copies of other blocks.
    address, sink = gpu.written(length), gpu.plain(BLOCK)
    single: list[list[tuple[int, int]]] = []
    for _ in range(3):
        single.append([gpu.move(address + at, BLOCK, TO_HOST) for at in range(0, length, BLOCK)])
        gpu.move(address, length, 0)
    rows = [single[0], single[1] + single[2]]
    for name, samples in zip(("first", "later"), rows, strict=True):
        out[f"one_block_{name}_out"] = moves_summary(samples, BLOCK)
    extra = [undisturbed(float(caller) for caller, _ in row) for row in rows]
    out["first_out_extra_us_per_block"] = rounded((extra[0] - extra[1]) / 1e3)
    gpu.move(address, length, TO_HOST)

    def cpu_read() -> None:
        gpu.move(address, length, TO_HOST)
        read_pages(address, length)

    def cpu_write() -> None:
        gpu.move(address, length, TO_HOST)
        ctypes.memset(address, 9, length)

    states: dict[str, Callable[[], Any]] = {
        "untouched": lambda: gpu.move(address, length, TO_HOST),
        "cpu_read": cpu_read,
        "cpu_written": cpu_write,
        "cpu_faulted_without_prefetch": lambda: read_pages(address, length),
    }
    for name, evict in states.items():
        back, spent = [], []
        for _ in range(6):
            start = now()
            evict()
            spent.append(now() - start)
            back.append(gpu.move(address, length, 0))
        out[f"in_after_{name}"] = moves_summary(back[1:], length) | {"leaving_us": us(spent[1:])}
    reads = []
    for _ in range(5):
        gpu.move(address, length, TO_HOST)
        reads.append(gpu.kernel_ns(gpu.read(address, length, sink)))
    out["in_by_kernel_faults"] = {"total_us": us(reads), "gbps": gbps(length, median(reads))}


@question(20, "whether the driver tells residency, or a shadow model of every block is needed")
def ask_residency(gpu: Gpu, out: Notes) -> None:
    address, sink = gpu.written(BLOCK), gpu.plain(BLOCK)

    def last_prefetch() -> int:
        where = INT(-99)
        call("cuMemRangeGetAttribute", ctypes.byref(where), 4, 4, address, BLOCK)
        return where.value

    out["after_prefetch_in"] = last_prefetch()
    gpu.move(address, BLOCK, TO_HOST)
    out["after_prefetch_out"] = last_prefetch()
    gpu.kernel_ns(gpu.read(address, BLOCK, sink))
    out["after_kernel_brought_it_back"] = last_prefetch()
    gpu.move(address, BLOCK, 0)
    peek(address)
    out["after_prefetch_in_and_cpu_load"] = last_prefetch()


# ---------------------------------------------------------------- questions: what is allowed


def stream_value(what: str, stream: int, address: int, value: int) -> None:
    """cuStream<what>Value32 (Wait means: until the word is at least value) by its current ABI."""
    name = f"cuStream{what}Value32"
    current = hasattr(load_libcuda(), name + "_v2")
    call(name + "_v2" if current else name, stream, address, value, 0)


def settles(stream: int, limit_s: float = 2.0) -> bool:
    """Whether the stream becomes idle in time. A wait that nobody opens must not hang us."""
    deadline = time.monotonic() + limit_s
    while (code := native("cuStreamQuery")(stream)) == NOT_READY:
        if time.monotonic() > deadline:
            return False
    if code != 0:
        raise CudaError("cuStreamQuery", code)
    return True


def outcome(work: Callable[[], Any]) -> Json:
    """{"code": 0, ...} or the error that the work met, as data."""
    try:
        work()
    except CudaError as error:
        return {"code": error.code, "name": error_name(error.code), "message": str(error)}
    except UnsupportedError as error:
        return {"code": None, "message": str(error)}
    return {"code": 0}


@question(30, "the gate: wait/write values on each kind of memory and against a prefetch stream")
def ask_stream_memops(gpu: Gpu, out: Notes) -> None:
    pinned = gpu.pinned(4 * KIB)

    def released_by_host() -> None:
        stream = gpu.new_stream()
        stream_value("Wait", stream, pinned, 5)
        blocked = not settles(stream, 0.01)
        start = now()
        ctypes.c_uint32.from_address(pinned).value = 5
        released = settles(stream)
        out["host_store_releases_wait"] = {
            "was_blocked": blocked,
            "released": released,
            "us": rounded((now() - start) / 1e3),
        }

    out["pinned_released"] = outcome(released_by_host)
    if out["pinned_released"]["code"] == 0:
        prefetch_behind_gate(gpu, out, pinned + 64)
        kernel_behind_gate(gpu, out, pinned + 128)
    # Last, because a refused operation may leave the context in error.
    for name, address in (
        ("pinned", pinned + 192),
        ("device", gpu.plain(BLOCK)),
        ("managed_on_gpu", gpu.written(BLOCK, 0)),
        ("managed_fresh", gpu.managed(BLOCK)),
    ):
        out[name] = values_on(gpu.new_stream(), address)


def values_on(stream: int, address: int) -> Json:
    """Write a word by the stream, look whether it arrived, and only then wait for it."""
    row: Json = {"write": outcome(lambda: stream_value("Write", stream, address, 9))}
    if row["write"]["code"] != 0:
        # Refused at the call: is a wait refused too? Its value (0) is there already.
        row["wait"] = outcome(lambda: stream_value("Wait", stream, address, 0))
        row["settled"] = outcome(lambda: settles(stream))
        return row
    row["settled"] = outcome(lambda: settles(stream))
    word = U32(0)
    row["read_back"] = outcome(lambda: call("cuMemcpyDtoH_v2", ctypes.byref(word), address, 4))
    row["arrived"] = word.value == 9
    if row["arrived"]:
        row["wait"] = outcome(lambda: stream_value("Wait", stream, address, 9))
        row["wait_settled"] = outcome(lambda: settles(stream))
    return row


def prefetch_behind_gate(gpu: Gpu, out: Notes, word: int) -> None:
    """Prefetch on a stream that a closed gate holds: does the caller wait for the gate?"""
    length, hold_s = 32 * MIB, 0.2
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)

    def open_gate(value: int) -> None:  # no CUDA call here: the driver may be locked
        time.sleep(hold_s)
        ctypes.c_uint32.from_address(word).value = value

    for value, (direction, to) in enumerate((("in", 0), ("out", TO_HOST)), start=1):
        stream = gpu.new_stream()
        stream_value("Wait", stream, word, value)
        opener = threading.Thread(target=open_gate, args=(value,), daemon=True)
        opener.start()
        caller = gpu.prefetch(address, length, to, stream)
        settled = settles(stream)
        opener.join(2)
        out[f"prefetch_{direction}_behind_closed_gate"] = {
            "caller_us": rounded(caller / 1e3),
            "settled": settled,
            "caller_waits_for_gate": caller / 1e9 > 0.8 * hold_s,
        }
    gpu.free(address)


def kernel_behind_gate(gpu: Gpu, out: Notes, word: int) -> None:
    """A kernel held by a wait that the prefetch's own stream opens, against synchronising."""
    length = 32 * MIB
    address, sink = gpu.written(length), gpu.plain(BLOCK)
    prefetcher, reader = gpu.new_stream(), gpu.new_stream()
    reading = gpu.read(address, length, sink)
    samples: dict[str, list[int]] = {"gated": [], "synchronised": []}
    stuck = 0
    for value in range(1, 7):
        gpu.move(address, length, TO_HOST)
        start = now()
        stream_value("Wait", reader, word, value)
        gpu.launch(reading, reader)
        gpu.prefetch(address, length, 0, prefetcher)
        stream_value("Write", prefetcher, word, value)
        if not settles(reader):
            stuck += 1
            ctypes.c_uint32.from_address(word).value = value
            gpu.sync(reader)
        samples["gated"].append(now() - start)
        gpu.move(address, length, TO_HOST)
        start = now()
        gpu.prefetch(address, length, 0, prefetcher)
        gpu.sync(prefetcher)
        gpu.launch(reading, reader)
        gpu.sync(reader)
        samples["synchronised"].append(now() - start)
    out["kernel_behind_gate_opened_by_prefetch_stream"] = {
        "gates_stuck": stuck,
        **{name: us(values[1:]) for name, values in samples.items()},
    }
    gpu.free(address)


@question(20, "the parameter scan: which call answers for which kernel handle", managed=False)
def ask_param_info(gpu: Gpu, out: Notes) -> None:
    out["expected"] = [[0, 4], [8, 16], [24, 2], [32, 8]]
    function = gpu.kernel("probe_struct")
    out["function_by_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", function)
    kernel, empty = library_kernel(gpu, "probe_struct"), library_kernel(gpu, "probe_empty")
    out["kernel_by_cuKernelGetParamInfo"] = layout("cuKernelGetParamInfo", kernel)
    out["kernel_passed_to_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", kernel)
    own = handle_of("cuKernelGetFunction", kernel)
    out["function_of_kernel_by_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", own)
    out["function_handle_equals_kernel_handle"] = own == kernel
    args = (1, 1, 1, 32, 1, 1, 0, gpu.stream, None, None)
    out["kernel_launched_as_function"] = outcome(lambda: call("cuLaunchKernel", empty, *args))
    gpu.sync()


@question(20, "whether a wrong guess of the handle kind in the scan would crash", managed=False)
def ask_param_info_wrong_kind(gpu: Gpu, out: Notes) -> None:
    # Undocumented, and it may crash: hence alone in its process.
    function = gpu.kernel("probe_struct")
    out["function_passed_to_cuKernelGetParamInfo"] = layout("cuKernelGetParamInfo", function)


def layout(name: str, handle: int) -> Json:
    """[offset, size] of each parameter of a kernel handle, as the named call tells them."""
    try:
        function = native(name)
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    found: list[list[int]] = []
    offset, size = SIZE(0), SIZE(0)
    for index in range(16):
        code = function(handle, index, ctypes.byref(offset), ctypes.byref(size))
        if code != 0:
            return {"parameters": found, "ends_with": error_name(code)}
        found.append([offset.value, size.value])
    return {"parameters": found, "ends_with": "no end within 16"}


def library_kernel(gpu: Gpu, name: str) -> int:
    """CUkernel of that name from a context-independent library."""
    driver, codes = bindings(), []
    for image in gpu.image:
        code, library = driver.cuLibraryLoadData(image, [], [], 0, [], [], 0)
        if int(code) == 0:
            return int(must(driver.cuLibraryGetKernel(library, name.encode()), name))
        codes.append(error_name(int(code)))
    raise UnsupportedError(f"cuLibraryLoadData refuses cubin and PTX: {codes}")


@question(30, "invariant 4: what stands in for the program's calls inside and beside a capture")
def ask_capture(gpu: Gpu, out: Notes) -> None:
    capturing, other = gpu.new_stream(), gpu.new_stream()
    event = handle_of("cuEventCreate", DISABLE_TIMING)
    call("cuEventRecord", event, other)
    spare = [gpu.plain(BLOCK) for _ in range(4)]
    buffer = gpu.written(BLOCK)
    gpu.sync(other)
    address = U64(0)
    free, total = SIZE(0), SIZE(0)

    def managed_alloc() -> None:
        gpu.held[-1] = BLOCK  # accounted for while it may live
        call("cuMemAllocManaged", ctypes.byref(address), BLOCK, ATTACH_GLOBAL)

    calls: dict[str, Callable[[], Any]] = {
        "cuMemAlloc": lambda: call("cuMemAlloc_v2", ctypes.byref(address), BLOCK),
        "cuMemAllocManaged": managed_alloc,
        "cuMemFree": lambda: call("cuMemFree_v2", spare.pop()),
        "cuMemPrefetchAsync_in": lambda: gpu.prefetch(buffer, BLOCK, 0, other),
        "cuMemPrefetchAsync_out": lambda: gpu.prefetch(buffer, BLOCK, TO_HOST, other),
        "cuEventRecord": lambda: call("cuEventRecord", event, other),
        "cuEventQuery": lambda: query_event(event),
        "cuStreamQuery": lambda: query_stream(other),
        "cuMemGetInfo": lambda: call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)),
    }

    def act(work: Callable[[], Any], relaxed: bool) -> Json:
        mode = INT(2)
        if relaxed:
            call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            return outcome(work)
        finally:
            if relaxed:
                call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    for where in ("same_thread", "same_thread_relaxed", "other_thread", "other_thread_relaxed"):
        row: Json = {}
        for name, work in calls.items():
            gpu.check_managed(BLOCK)
            address.value = 0
            relaxed = where.endswith("relaxed")
            call("cuStreamBeginCapture_v2", capturing, 0)
            if where.startswith("same"):
                answer = act(work, relaxed)
            else:
                answer = Worker(gpu, functools.partial(act, work, relaxed)).finish()
            row[name] = {"call": answer, "capture_after": end_capture(capturing)}
            gpu.sync(other)
            if address.value:
                gpu.free(address.value)
            gpu.held.pop(-1, None)
        out[where] = row


def query_event(event: int) -> None:
    code = native("cuEventQuery")(event)
    if code not in (0, NOT_READY):
        raise CudaError("cuEventQuery", code)


def query_stream(stream: int) -> None:
    code = native("cuStreamQuery")(stream)
    if code not in (0, NOT_READY):
        raise CudaError("cuStreamQuery", code)


def end_capture(stream: int) -> str:
    """End a capture and throw its graph away; the name of the answer."""
    graph = U64(0)
    code = native("cuStreamEndCapture")(stream, ctypes.byref(graph))
    if code == 0 and graph.value:
        call("cuGraphDestroy", graph.value)
    return error_name(code)


@question(30, "whether the driver's managed pools exist and can back a stream-ordered pool")
def ask_managed_pool(gpu: Gpu, out: Notes) -> None:
    native("cuMemPoolCreate")
    device, host, none = MemLocation(1, int(gpu.device)), MemLocation(2, 0), MemLocation(0, 0)
    length, managed_type = 64 * MIB, 2
    for name, location in (("none", none), ("device", device), ("host", host)):
        gpu.check_managed(length)
        pool = U64(0)
        props = PoolProps(managed_type, 0, location, None, 0, 0)
        code = native("cuMemPoolCreate")(ctypes.byref(pool), ctypes.byref(props))
        row: Json = {"create": {"code": code, "name": error_name(code) if code else ""}}
        if code == 0:
            row |= use_pool(gpu, pool.value, length)
            row["destroy"] = outcome(functools.partial(call, "cuMemPoolDestroy", pool.value))
        out[f"location_{name}"] = row
    pool = U64(0)
    out["cuMemGetDefaultMemPool"] = outcome(
        lambda: call("cuMemGetDefaultMemPool", ctypes.byref(pool), ctypes.byref(none), managed_type)
    )


def use_pool(gpu: Gpu, pool: int, length: int) -> Json:
    """Allocate from a managed pool, migrate, look, free, allocate again."""
    row: Json = {}
    address, is_managed = U64(0), U64(0)
    try:
        row["first_alloc_us"] = rounded(
            timed("cuMemAllocFromPoolAsync", ctypes.byref(address), length, pool, gpu.stream) / 1e3
        )
        gpu.sync()
        code = native("cuPointerGetAttribute")(ctypes.byref(is_managed), 8, address.value)
        row["is_managed"] = bool(is_managed.value) if code == 0 else error_name(code)
        row["address_is_block_aligned"] = address.value % BLOCK == 0
        gpu.launch(gpu.fill(address.value, length, 6))
        row["out"] = moves_summary([gpu.move(address.value, length, TO_HOST)], length)
        row["data_kept"] = peek(address.value) == peek(address.value + length - 4) == 6
        row["in"] = moves_summary([gpu.move(address.value, length, 0)], length)
        old = address.value
        row["free_us"] = rounded(timed("cuMemFreeAsync", old, gpu.stream) / 1e3)
        row["second_alloc_us"] = rounded(
            timed("cuMemAllocFromPoolAsync", ctypes.byref(address), length, pool, gpu.stream) / 1e3
        )
        row["second_alloc_reuses_address"] = address.value == old
        call("cuMemFreeAsync", address.value, gpu.stream)
        gpu.sync()
    except CudaError as error:
        row["failed"] = str(error)
    return row


# ---------------------------------------------------------------- questions: managed against plain


MEMSET_BLOCKS = 32


@question(40, "whether .item()-sized copies move pages; what copies on absent memory cost")
def ask_small_copies(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    blocks = MEMSET_BLOCKS
    length = blocks * BLOCK
    address, plain, sink = gpu.written(length, 4), gpu.plain(length), gpu.plain(BLOCK)
    call("cuMemsetD8Async", plain, 0, length, gpu.stream)
    gpu.sync()
    host = ctypes.create_string_buffer(64)
    targets = {"pageable": ctypes.addressof(host), "pinned": gpu.pinned(4 * KIB)}
    chain = gpu.chain(address, BLOCK, blocks, sink)

    def chain_us() -> Json:
        return {"per_block_us": rounded(gpu.kernel_ns(chain) / blocks / 1e3)}

    gpu.move(address, length, 0)
    gpu.kernel_ns(chain)
    out["chain_when_resident"] = chain_us()
    gpu.move(address, length, TO_HOST)
    out["chain_when_on_host"] = chain_us()
    for start, to in (("resident", 0), ("on_host", TO_HOST)):
        for kind, target in targets.items():
            for call_name in ("cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"):
                gpu.move(address, length, to)
                samples = []
                for block in range(blocks):
                    at = address + block * BLOCK
                    pair = (target, at) if call_name == "cuMemcpyDtoH_v2" else (at, target)
                    samples.append(timed(call_name, *pair, 4))
                out[f"{call_name.removesuffix('_v2')}_{start}_{kind}"] = {
                    "copy_us": us(samples),
                    "chain_afterwards": chain_us(),
                }
    out["cuMemcpyDtoH_plain_device"] = {
        kind: us(timed("cuMemcpyDtoH_v2", target, plain + i * BLOCK, 4) for i in range(blocks))
        for kind, target in targets.items()
    }
    gpu.move(address, length, 0)
    peek_ns = []
    for block in range(blocks):
        begin = now()
        peek(address + block * BLOCK)
        peek_ns.append(now() - begin)
    out["cpu_load_resident"] = {"load_us": us(peek_ns), "chain_afterwards": chain_us()}
    large_copies(gpu, out, address, plain, length)


def large_copies(gpu: Gpu, out: Notes, address: int, plain: int, length: int) -> None:
    """Copies and memsets of whole buffers on resident and on absent managed memory."""
    operations: dict[str, tuple[Any, ...]] = {
        "cuMemsetD8Async": (address, 1, length, gpu.stream),
        "cuMemcpyDtoDAsync_v2": (plain, address, length, gpu.stream),
    }
    for name, args in operations.items():
        for start, to in (("resident", 0), ("on_host", TO_HOST)):
            samples = []
            for _ in range(5):
                gpu.move(address, length, to)
                samples.append(gpu.between_events(functools.partial(call, name, *args)))
            out[f"{name}_{start}"] = {"us": us(samples), "gbps": gbps(length, median(samples))}


@question(30, "invariant 9: whether converted memory costs anything while it fits")
def ask_kernel_speed(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    length = 512 * MIB
    managed = [gpu.written(length), gpu.written(length)]
    plain = [gpu.plain(length), gpu.plain(length)]
    sink = gpu.plain(BLOCK)
    for address in plain:
        call("cuMemsetD8Async", address, 0, length, gpu.stream)
    order = list(range(length // (64 * KIB)))
    random.Random(2).shuffle(order)
    shuffled, order_at = array.array("I", order), gpu.plain(BLOCK)
    call("cuMemcpyHtoD_v2", order_at, shuffled.buffer_info()[0], len(order) * 4)

    def works(pair: list[int]) -> dict[str, Callable[[], None]]:
        copy = gpu.prepare(
            "probe_copy", gpu.wide, 256, U64(pair[0]), U64(pair[1]), U64(length // 16)
        )
        read, write = gpu.read(pair[0], length, sink), gpu.fill(pair[0], length, 8)
        touch = gpu.touch(pair[0], 64 * KIB, len(order), order_at)
        return {
            "copy_kernel": lambda: gpu.launch(copy),
            "read_kernel": lambda: gpu.launch(read),
            "write_kernel": lambda: gpu.launch(write),
            "random_touch_kernel": lambda: gpu.launch(touch),
            "memcpy_dtod": lambda: call(
                "cuMemcpyDtoDAsync_v2", pair[0], pair[1], length, gpu.stream
            ),
            "memset": lambda: call("cuMemsetD8Async", pair[0], 0, length, gpu.stream),
        }

    both = {"managed": works(managed), "plain": works(plain)}
    factor = {"copy_kernel": 2, "memcpy_dtod": 2}
    for name in both["plain"]:
        samples: dict[str, list[float]] = {"managed": [], "plain": []}
        for turn in range(16):  # alternate, so that clocks and heat hit both alike
            for kind in ("managed", "plain") if turn % 2 else ("plain", "managed"):
                samples[kind].append(gpu.between_events(both[kind][name]))
        row: Json = {kind + "_us": us(values[3:]) for kind, values in samples.items()}
        for kind, values in samples.items():
            row[kind + "_gbps"] = gbps(factor.get(name, 1) * length, median(values[3:]))
        row["managed_over_plain"] = rounded(
            median(samples["managed"][3:]) / median(samples["plain"][3:])
        )
        out[name] = row


# ---------------------------------------------------------------- question: discard (last)


@question(30, "which discard the public call makes; whether dead blocks may be discarded at all")
def ask_discard(gpu: Gpu, out: Notes) -> None:
    native("cuMemDiscardBatchAsync")
    for mib in (2, 8):
        length = mib * MIB
        address = gpu.written(length, 1)
        row: Json = {}
        for variant in (
            "no_discard",
            "write_then_prefetch_out",
            "write_then_cpu_read",
            "no_write",
            "discard_and_prefetch_then_write",
        ):
            try:
                row[variant] = discard_once(gpu, address, length, variant)
            except (CudaError, UnsupportedError) as error:
                row[variant] = {"failed": str(error)}
        gpu.free(address)
        out[f"{mib}_mib"] = row
    control: list[bool] = []
    verdicts: list[bool] = []
    for rows in (out["2_mib"], out["8_mib"]):
        for name, row in rows.items():
            if name != "no_write" and "seen" in row:
                written = row["seen"].get("written") == 1.0
                (control if name == "no_discard" else verdicts).append(written)
    valid = bool(control) and all(control)
    out["control_valid"] = valid  # else words are lost even without a discard: no verdict
    out["every_write_survived"] = all(verdicts) if valid and verdicts else None
    out["caution"] = (
        "an explicit migration clears the discard state, so survival here does not prove survival "
        "of an eviction; a write that is slow after the discard (it faults) points to the kind "
        "that unmaps, where writes count"
    )


def discard_once(gpu: Gpu, address: int, length: int, variant: str) -> Json:
    """Old pattern on both sides; discard; perhaps a new pattern; then look from the CPU."""
    old, new = 0x11111111, 0x22222222
    row: Json = {}
    gpu.move(address, length, 0)
    gpu.launch(gpu.fill(address, length, old))
    gpu.sync()
    gpu.move(address, length, TO_HOST)
    gpu.move(address, length, 0)
    write = gpu.fill(address, length, new)
    row["resident_write_us"] = rounded(gpu.kernel_ns(gpu.fill(address, length, old)) / 1e3)
    pointers, lengths = (U64 * 1)(address), (SIZE * 1)(length)
    spent = 0
    if variant.startswith("discard_and_prefetch"):
        places, indices = (MemLocation * 1)(MemLocation(1, int(gpu.device))), (SIZE * 1)(0)
        spent = timed(
            "cuMemDiscardAndPrefetchBatchAsync",
            pointers,
            lengths,
            1,
            places,
            indices,
            1,
            0,
            gpu.stream,
        )
    elif variant != "no_discard":
        spent = timed("cuMemDiscardBatchAsync", pointers, lengths, 1, 0, gpu.stream)
    gpu.sync()
    row["discard_caller_us"] = rounded(spent / 1e3)
    if variant != "no_write":
        row["write_after_discard_us"] = rounded(gpu.kernel_ns(write) / 1e3)
    if variant != "write_then_cpu_read":
        row["out"] = moves_summary([gpu.move(address, length, TO_HOST)], length)
    words = array.array("I", ctypes.string_at(address, length))
    names = {old: "old", new: "written", 0: "zero"}
    seen = collections.Counter(names.get(word, "other") for word in words)
    row["seen"] = {name: rounded(count / len(words)) for name, count in seen.items()}
    return row


def never(gpu: Gpu, out: Notes) -> None:
    raise AssertionError("a question that is not asked was asked")


for _name, _decides in (
    ("eviction_order", "whether re-prefetching a resident block refreshes the eviction order"),
    ("eviction_cost", "t_ev: what a driver eviction adds to a fault or a prefetch"),
):
    QUESTIONS[_name] = Question(
        _name, _decides, 0, never, True, "not asked: would need real oversubscription"
    )


# ---------------------------------------------------------------- the derived profile


def dig(tree: Any, *path: str) -> float | None:
    """The number at a path of keys, or None."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return float(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else None


def subtract(left: float | None, *rights: float | None) -> float | None:
    """left minus all rights, not below zero; None if one is unknown."""
    if left is None or any(right is None for right in rights):
        return None
    return max(left - sum(right for right in rights if right is not None), 0.0)


Reader = Callable[..., float | None]  # at("faults", "warm_touch_us", "p10")


def least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def fault_constants(at: Reader, memset_gbps: float | None) -> Json:
    """Costs of a fault batch, from memory that has no pages yet: nothing is copied.

    `copied`: what 64 KiB cost that a fault copies, over what fresh ones cost; in a sweep,
    where the driver works on whole batches.
    """

    def faults(name: str, *path: str) -> float | None:
        return at("faults", name, *path) if path else at("faults", name, "p10")

    slot = "slots_of_64_kib_in_one_block_us"
    zeroing = 64 * KIB / memset_gbps / 1e3 if memset_gbps else 0.0
    page = subtract(faults(f"fresh_32_{slot}"), faults(f"fresh_1_{slot}"))
    page = max(page / 31 - zeroing, 0.0) if page is not None else None
    fresh_block = faults("fresh_fit_one_page_a_block", "per_block_us")
    block = subtract(fresh_block, page)
    first = subtract(faults("fresh_one_page_in_each_of_1_blocks_us"), faults("warm_touch_us"))
    unmapped = subtract(faults("fit_one_page_a_block", "per_block_us"), fresh_block)
    sweep = subtract(
        at("faults", "sequential_write", "us", "p10"), faults("fresh_sequential_write_us")
    )
    copied = subtract(sweep / SWEPT_BLOCKS if sweep is not None else None, unmapped)
    return {
        "base_replay_us": subtract(first, block, page, zeroing),
        "block_us": block,
        "page_us": page,
        "demand_gbps": 31 * 64 * KIB / copied / 1e3 if copied else None,
    }


def derive_profile(questions: Json) -> Json:
    """Suggested constants of the cost model from the answers; None where nothing was learned.

    Units as in the names: GB/s (1e9 bytes), microseconds. Formulas: docs/uvm.md.
    """
    results = {name: answer.get("result", {}) for name, answer in questions.items()}

    def at(*path: str) -> float | None:
        return dig(results, *path)

    memset = at("kernel_speed", "memset", "plain_gbps")
    fault = fault_constants(at, memset)
    d2h = at("copy_engine", "d2h_gbps")
    total = at("prefetch_idle", "fit_in_total", "per_block_us")
    rates = [at("prefetch_idle", "256_mib", "in", "gbps"), BLOCK / total / 1e3 if total else None]
    rates.append(at("prefetch_idle", "256_mib", "in_after_a_fault_each", "gbps"))
    threads = results.get("prefetch_threads", {})
    rates += [dig(row, "in_gbps", "max") for row in threads.values()]
    h2d = max((rate for rate in rates if rate is not None), default=None)
    passes = at("populate", "fit_prefetch_caller", "per_block_us")
    one_call = at("populate", "2_mib", "prefetch", "caller_us", "p10")
    # On its way out a block takes the longer of its copy and of the CPU's work on it.
    leaving = max(BLOCK / d2h / 1e3, passes) if d2h and passes is not None else None
    mapped = subtract(at("prefetch_idle", "fit_out_caller", "per_block_us"), leaving)
    by_memset = subtract(
        at("small_copies", "cuMemsetD8Async_on_host", "us", "p10"),
        at("small_copies", "cuMemsetD8Async_resident", "us", "p10"),
    )
    by_kernel = subtract(
        at("faults", "32_slots_of_64_kib_in_one_block_us", "p10"),
        at("faults", "warm_touch_us", "p10"),
    )
    kernel_min = at("markers", "us_per_launch_marker_every_never", "p10")
    # The call hands its work over when its arguments are converted, which is most of what
    # it takes its caller.
    nothing = at("markers", "idle_nothing_us", "p10")
    asking = subtract(at("markers", "idle_refused_us", "p10"), nothing)
    launching = nothing + asking * 2 / 3 if nothing is not None and asking is not None else None
    idle = subtract(at("markers", "idle_launch_us", "p10"), launching)
    profile = {
        "bw_h2d_gbps": h2d,
        "copy_h2d_gbps": at("copy_engine", "h2d_gbps"),
        "copy_d2h_gbps": d2h,
        "bw_demand_gbps": least(fault["demand_gbps"], h2d) if fault["demand_gbps"] else None,
        "delta": at("copy_engine", "duplex_factor"),
        "t0_replay_us": fault["base_replay_us"],
        "t_blk_us": fault["block_us"],
        "t_pg_us": fault["page_us"],
        "t_ev_us": None,
        "t_call_hblk_us": subtract(one_call, at("prefetch_idle", "refused_us", "p10")),
        "t_hblk_passes_us": passes,
        "t_cpupte_us": mapped / 512 if mapped is not None else None,
        "t_hostalloc_us": at("way_back", "first_out_extra_us_per_block"),
        "t_cpuunmap_us": subtract(at("prefetch_idle", "fit_in_caller", "per_block_us"), passes),
        "t_nonreplayable_us": subtract(
            by_memset / MEMSET_BLOCKS if by_memset is not None else None, by_kernel
        ),
        "bw_memset_gbps": memset,
        "kernel_gbps": at("kernel_speed", "copy_kernel", "plain_gbps"),
        "kernel_min_us": kernel_min,
        "kernel_idle_us": idle,
        "kernel_launch_us": subtract(idle, kernel_min),
    }
    return {name: None if value is None else rounded(value) for name, value in profile.items()}


# ---------------------------------------------------------------- child and parent


def child_main(name: str, managed_cap: int) -> int:
    """Answer one question in this process; the records on stdout are the answer."""
    faulthandler.enable()  # a crash inside the driver leaves its Python line on stderr
    asked, notes = QUESTIONS[name], Notes()
    status, reason = "ok", ""
    try:
        gpu = Gpu(managed_cap)
        if asked.managed:
            gpu.require_managed()
        asked.run(gpu, notes)
    except NoDriverError as error:
        status, reason = "no_driver", str(error)
    except UnsupportedError as error:
        status, reason = "unsupported", str(error)
    except Exception as error:
        import traceback

        traceback.print_exc()
        status, reason = "failed", f"{type(error).__name__}: {error}"
    emit({"status": status, "reason": reason})
    return 0


def read_records(text: str) -> Json:
    """A child's records as {"status", "reason", "result"}; no status if it did not finish."""
    answer: Json = {"result": {}}
    for line in text.splitlines():
        if not line.startswith(RECORD):
            continue
        try:
            record = json.loads(line.removeprefix(RECORD))
        except ValueError:
            continue  # cut off by the watchdog
        if "note" in record:
            answer["result"][record["note"]] = record["value"]
        else:
            answer |= {"status": record["status"], "reason": record["reason"]}
    return answer


def ask_in_child(asked: Question, limit_s: float, managed_cap: int) -> Json:
    """Run one question in its own process under the watchdog. `stuck`: it could not be killed."""
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--question",
        asked.name,
        "--max-managed",
        str(managed_cap),
    ]
    begin, ended = time.monotonic(), ""
    stuck = False
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL) as child:
            try:
                code = child.wait(limit_s)
                ended = f"the child ended with {code}" if code else ""
            except subprocess.TimeoutExpired:
                ended = f"no answer within {limit_s:.0f} s"
                stuck = not end_child(child)
            except BaseException:
                end_child(child)
                raise
            if stuck:
                child.returncode = -9  # keeps Popen's exit from waiting for ever
        out.seek(0)
        err.seek(0, os.SEEK_END)
        err.seek(max(err.tell() - 2000, 0))
        answer, stderr_tail = read_records(out.read()), err.read().strip()
    if "status" not in answer:
        answer["status"] = "timeout" if ended.startswith("no answer") else "failed"
        answer["reason"] = ended or "the child ended without an answer"
    if answer["status"] == "failed" and stderr_tail:
        answer["stderr"] = stderr_tail
    if answer["status"] == "no_driver" and stderr_tail:
        answer["reason"] += f"; it says: {stderr_tail.splitlines()[-1]}"
    answer["seconds"] = rounded(time.monotonic() - begin)
    return answer | ({"stuck": True} if stuck else {})


def end_child(child: subprocess.Popen[bytes]) -> bool:
    """Kill our own child; False if it is still there after the grace time."""
    child.kill()
    try:
        child.wait(KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def selected(only: Sequence[str] | None, skip: Sequence[str]) -> Iterator[tuple[Question, bool]]:
    """All questions in order, each with whether it is asked; `machine` always is."""
    for asked in QUESTIONS.values():
        chosen = (not only or asked.name in only) and asked.name not in skip
        yield asked, chosen or asked.name == "machine"


def write_report(report: Json, target: str) -> None:
    text = json.dumps(report, indent=1, sort_keys=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, prefix=".probe") as file:
        file.write(text)
    os.chmod(file.name, 0o644)  # noqa: PTH101
    os.replace(file.name, path)  # noqa: PTH105


def commit() -> str:
    """The commit of the checkout that this file lies in, "-dirty" behind it if changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        done = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def probe(args: argparse.Namespace) -> int:
    """The parent: ask every chosen question, keep the report on disk up to date."""
    begin = time.monotonic()
    report: Json = {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "host": {},
        "device": {},
        "questions": {},
        "profile": {},
    }
    stuck = ""
    for asked, chosen in selected(args.only, args.skip):
        left = args.time_limit - (time.monotonic() - begin)
        reason = (
            "not chosen"
            if not chosen
            else asked.not_asked
            or stuck
            or ("" if left > 5 else f"the time limit of {args.time_limit:.0f} s is spent")
        )
        if reason:
            answer: Json = {"status": "skipped", "reason": reason, "seconds": 0.0, "result": {}}
        else:
            say(f"gpu_probe: {asked.name} ...")
            answer = ask_in_child(asked, min(asked.limit_s, left), args.max_managed)
            say(
                f"gpu_probe: {asked.name} {answer['status']} in {answer['seconds']:.1f} s"
                + (f" ({answer['reason']})" if answer["reason"] else "")
            )
        if answer["status"] == "no_driver":
            say(f"gpu_probe: {answer['reason']}")
            return EXIT_NO_DRIVER
        if answer.pop("stuck", False):
            stuck = f"the child of {asked.name} could not be killed, the GPU may hang"
        report["questions"][asked.name] = answer
        if asked.name == "machine":
            report["host"] = answer["result"].pop("host", {})
            report["device"] = answer["result"].pop("device", {})
        report["profile"] = derive_profile(report["questions"])
        report["seconds"] = rounded(time.monotonic() - begin)
        if args.out != "-":
            write_report(report, args.out)
    if args.out == "-":
        write_report(report, "-")
    return 0


def parse_size(text: str) -> int:
    """Bytes, with an optional suffix K, M or G (powers of 1024)."""
    factor = {"K": KIB, "M": MIB, "G": GIB}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor != 1 else text
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write bytes, or 512M, or 2G")
    value = int(digits) * factor
    if value > MANAGED_CAP:
        raise argparse.ArgumentTypeError(
            f"{value} bytes are above the probe's hard cap of {MANAGED_CAP} (4 GiB)"
        )
    return value


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_probe", description="Ask a real GPU the questions on which pump's design rests."
    )
    names = {"choices": tuple(QUESTIONS), "metavar": "NAME", "nargs": "+"}
    parser.add_argument("--out", default="-", metavar="FILE", help="the JSON report; - is stdout")
    parser.add_argument("--list", action="store_true", help="list the questions and stop")
    parser.add_argument("--only", help="ask these only", **names)  # type: ignore[arg-type]
    parser.add_argument("--skip", default=[], help="leave these out", **names)  # type: ignore[arg-type]
    parser.add_argument(
        "--max-managed",
        type=parse_size,
        default=MANAGED_CAP,
        metavar="BYTES",
        help="managed memory held at once, at most 4G (default)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=TOTAL_LIMIT_S,
        metavar="SECONDS",
        help="stop asking after this time (default %(default).0f)",
    )
    parser.add_argument("--question", choices=tuple(QUESTIONS), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.out != "-" and not args.question:
        path = Path(args.out)
        if path.is_dir() or not path.parent.is_dir():
            parser.error(f"--out {args.out}: not a file in an existing folder")
    return args


def main() -> int:
    args = parse_arguments()
    if args.list:
        for asked in QUESTIONS.values():
            bound = asked.not_asked or f"at most {asked.limit_s:.0f} s"
            print(f"{asked.name:18} {asked.decides} [{bound}]")
        return 0
    if args.question:
        return child_main(args.question, args.max_managed)
    try:
        load_libcuda()
        return probe(args)
    except NoDriverError as error:
        say(f"gpu_probe: {error}")
        return EXIT_NO_DRIVER
    except KeyboardInterrupt:
        say("gpu_probe: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
