"""Device 0 with its context, guarded allocation, timed kernels and prefetches."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from probe.driver import (
    ATTACH_GLOBAL,
    BLOCK,
    GIB,
    KIB,
    MIB,
    NON_BLOCKING,
    PTR,
    SIZE,
    TO_HOST,
    U32,
    U64,
    CudaError,
    GuardError,
    MemLocation,
    NoDriverError,
    UnsupportedError,
    bindings,
    call,
    elapsed_ns,
    error_name,
    handle_of,
    load_libcuda,
    must,
    timed,
)
from probe.figures import now, rounded
from probe.kernels import Images, cached_kernels

MANAGED_CAP = 4 * GIB  # hard rule: never more managed memory than this in one process
FREE_SHARE = 0.9  # and never more than this share of the GPU's free memory


def managed_refusal(asked: int, held: int, free: int, cap: int) -> str | None:
    """Returns why `asked` more bytes of managed memory are not allowed, or None if they are.

    `held`: bytes that this process already holds. `free`: free memory that the GPU reports now.
    Resident managed memory is already missing from `free`, so counting `held` too is conservative.
    """
    wanted, cap = asked + held, min(cap, MANAGED_CAP)
    if asked <= 0:
        return f"{asked} bytes of managed memory make no sense"
    if wanted > cap:
        return f"{wanted} bytes of managed memory are above the cap of {cap} (--max-managed)"
    if wanted > FREE_SHARE * free:
        return f"{wanted} bytes of managed memory are above 90 % of the {free} bytes free"
    return None


class CallTimes(NamedTuple):
    """Nanoseconds in a call, and from its start until the stream was idle."""

    call_ns: int
    idle_ns: int


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments; `values` keeps the targets of `holder`'s pointers alive."""

    head: tuple[int, ...]
    holder: Any
    values: tuple[Any, ...]

    def on(self, stream: int) -> tuple[Any, ...]:
        """Returns all arguments of cuLaunchKernel."""
        return (*self.head, stream, self.holder, None)


COVER_NS = 200_000.0  # more than Python needs to issue one operation
COVER_BYTES = GIB


class Gpu:
    """Device 0 with its primary context current on this thread, and guarded allocation."""

    def __init__(self, managed_cap: int, cache: Path | None = None) -> None:
        load_libcuda()
        driver = bindings()
        try:
            must(driver.cuInit(0), "cuInit")
            if must(driver.cuDeviceGetCount(), "cuDeviceGetCount") == 0:
                raise NoDriverError("the CUDA driver reports no device")
            self.device = must(driver.cuDeviceGet(0), "cuDeviceGet")
        except (CudaError, RuntimeError) as error:
            raise NoDriverError(f"the CUDA driver cannot be used: {error}") from error
        start = now()
        self.context = int(must(driver.cuDevicePrimaryCtxRetain(self.device), "primary context"))
        self.context_ms = rounded((now() - start) / 1e6)
        call("cuCtxSetCurrent", self.context)
        self.managed_cap, self.cache = managed_cap, cache
        self.held: dict[int, int] = {}
        self.stream = self.new_stream()

    def attribute(self, name: str) -> int:
        """Returns a device attribute by name; 0 if cuda-bindings or the driver lacks it."""
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
        """Returns (free, total) bytes."""
        free, total = SIZE(0), SIZE(0)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def check_managed(self, length: int) -> None:
        held = sum(self.held.values())
        reason = managed_refusal(length, held, self.memory_info()[0], self.managed_cap)
        if reason is not None:
            raise GuardError(reason)

    def managed(self, length: int) -> int:
        """Returns the address of new managed memory. Raises GuardError above the limit."""
        self.check_managed(length)
        address = handle_of("cuMemAllocManaged", length, ATTACH_GLOBAL)
        self.held[address] = length
        return address

    def plain(self, length: int) -> int:
        """Returns the address of device memory; keeps 10 % and the held managed memory free."""
        free = self.memory_info()[0]
        if length + sum(self.held.values()) > FREE_SHARE * free:
            raise GuardError(f"{length} bytes of device memory leave too little of {free} free")
        return handle_of("cuMemAlloc_v2", length)

    def free(self, *addresses: int) -> None:
        for address in addresses:
            call("cuMemFree_v2", address)
            self.held.pop(address, None)

    def pinned(self, length: int) -> int:
        """Allocates page-locked host memory, portable and mapped (same address on both sides)."""
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
        """Returns this driver's prefetch: ELF name, function from destination to arguments."""
        if hasattr(load_libcuda(), "cuMemPrefetchAsync_v2"):
            host, device = MemLocation(2, 0), MemLocation(1, int(self.device))
            return "cuMemPrefetchAsync_v2", lambda to: (host if to == TO_HOST else device, 0)
        return "cuMemPrefetchAsync", lambda to: (to,)

    def prefetch(self, address: int, length: int, to: int, stream: int | None = None) -> int:
        """Prefetches to TO_HOST or to device 0; returns the caller's nanoseconds."""
        name, where = self.prefetch_call
        to = TO_HOST if to == TO_HOST else int(self.device)
        stream = self.stream if stream is None else stream
        return timed(name, address, length, *where(to), stream)

    def move(self, address: int, length: int, to: int) -> CallTimes:
        """Prefetches and waits until the stream is idle."""
        start = now()
        caller = self.prefetch(address, length, to)
        self.sync()
        return CallTimes(caller, now() - start)

    @functools.cached_property
    def arch(self) -> int:
        """Returns the compute capability, 90 for 9.0."""
        major = self.attribute("COMPUTE_CAPABILITY_MAJOR")
        return major * 10 + self.attribute("COMPUTE_CAPABILITY_MINOR")

    @functools.cached_property
    def image(self) -> Images:
        """Returns KERNELS compiled for this device."""
        return cached_kernels(self.cache, self.arch)

    @functools.cached_property
    def module(self) -> Any:
        return load_module(self.image)

    @functools.cache  # noqa: B019 - one Gpu for the life of the child
    def kernel(self, name: str) -> int:
        return kernel_of(self.module, name)

    def prepare(self, name: str, grid: int, block: int, *values: Any) -> Launch:
        """Prepares a launch of `grid` blocks of `block` threads; `values` are ctypes objects."""
        holder = (PTR * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        return Launch((self.kernel(name), grid, 1, 1, block, 1, 1, 0), holder, values)

    def launch(self, prepared: Launch, stream: int | None = None) -> None:
        call("cuLaunchKernel", *prepared.on(self.stream if stream is None else stream))

    def warm_up(self) -> None:
        """Keeps every multiprocessor busy for 0.2 s, so that clocks rise."""
        self.launch(self.prepare("probe_spin", self.wide, 256, U64(200_000_000)))
        self.sync()

    def kernel_ns(self, prepared: Launch) -> float:
        """Returns the GPU time of one launch, between two events."""
        return self.between_events(lambda: self.launch(prepared))

    @functools.cached_property
    def event_pair(self) -> tuple[int, int]:
        return handle_of("cuEventCreate", 0), handle_of("cuEventCreate", 0)

    @functools.cached_property
    def cover_memory(self) -> tuple[int, int, float]:
        """Returns (address, length, ns): plain memory, and the GPU's time to zero it.

        The time is about COVER_NS, or less if there is too little memory.
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
        """Keeps self.stream busy for at least `time_ns`, so that later operations queue up."""
        address, length, each_ns = self.cover_memory
        for _ in range(math.ceil(time_ns / max(each_ns, 1.0))):
            call("cuMemsetD8Async", address, 0, length, self.stream)

    def between_events(self, work: Callable[[], None], cover_ns: float = COVER_NS) -> float:
        """Returns the GPU nanoseconds of the operations that `work` issues to self.stream.

        The GPU is kept busy first, so that the time to issue them does not count. That holds as
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
        """Returns the same for an idle GPU, where the time to issue the operations counts."""
        return self.between_events(work, 0.0)

    @functools.cached_property
    def wide(self) -> int:
        """Returns the number of 256-thread blocks that fill the GPU."""
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
        """Prepares one thread that spins for `time_ns`, plus the time of any preemption."""
        return self.prepare("probe_spin", 1, 1, U64(time_ns))

    def written(self, length: int, value: int = 1) -> int:
        """Returns new managed memory on the GPU, without host pages, with every word `value`."""
        address = self.managed(length)
        self.move(address, length, 0)
        self.launch(self.fill(address, length, value))
        self.sync()
        return address


def load_module(image: Images) -> Any:
    """Loads the cubin, else the PTX, as a CUmodule. Raises UnsupportedError if neither loads."""
    reasons = []
    for form in image:
        code, module = bindings().cuModuleLoadData(form)
        if int(code) == 0:
            return module
        reasons.append(error_name(int(code)))
    raise UnsupportedError(f"the kernels do not load: cubin {reasons[0]}, PTX {reasons[1]}")


def kernel_of(module: Any, name: str) -> int:
    answer = bindings().cuModuleGetFunction(module, name.encode())
    return int(must(answer, f"cuModuleGetFunction({name})"))


def peek(address: int) -> int:
    """Returns the 32-bit word at a host-accessible address."""
    return ctypes.c_uint32.from_address(address).value


def read_pages(address: int, length: int) -> None:
    """Reads one byte of every 4 KiB page with the CPU."""
    bytes(memoryview((ctypes.c_ubyte * length).from_address(address))[:: 4 * KIB])
