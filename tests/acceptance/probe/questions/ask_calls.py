"""Questions: costs of calls, markers and allocations."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from probe.driver import (
    ATTACH_GLOBAL,
    BLOCK,
    BLOCKING_SYNC,
    DISABLE_TIMING,
    INT,
    KIB,
    MIB,
    U64,
    UnsupportedError,
    call,
    handle_of,
    native,
    refused,
    timed,
)
from probe.figures import Json, now, us
from probe.gpu import Gpu
from probe.registry import Notes, question


def cost_of(
    function: Callable[[], Any],
    batches: int = 60,
    per_batch: int = 50,
    after: Callable[[], None] | None = None,
) -> Json:
    """Returns microseconds per call from timed batches; `after` runs untimed after each batch."""
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
    cost_of(floor)  # lets the CPU's clock rise
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


SLICE_NS = 100_000
"""GPU time of a slice of 4 MiB on a fast link."""


@question(20, "whether executors should block or poll until a slice has arrived", managed=False)
def ask_waits(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    spin = gpu.spin(SLICE_NS)
    for label, flags in (("spinning", 0), ("blocking", BLOCKING_SYNC)):
        event = handle_of("cuEventCreate", flags | DISABLE_TIMING)
        spent = []
        for _ in range(200):
            start = now()
            gpu.launch(spin)
            call("cuEventRecord", event, gpu.stream)
            call("cuEventSynchronize", event)
            spent.append(now() - start)
        out[f"{label}_us"] = us(spent[20:])


BURST_NS = 20_000_000.0
MARKER_BURST = 256  # launches; they fit into a stream's queue even with one marker each


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

    # Keeps the GPU busy so long that it finds the whole burst queued and issue cost is hidden.
    for spacing in (0, 1, 4, 16, 64):
        work = functools.partial(burst, spacing)
        spent = [gpu.between_events(work, BURST_NS) / MARKER_BURST for _ in range(7)]
        out[f"us_per_launch_marker_every_{spacing or 'never'}"] = us(spent[1:])
    # On an idle GPU: the time between a launch's call and the kernel's first instruction.
    # Refused launches between the events show the caller's time in the call.
    arguments = launch.on(gpu.stream)
    works = {
        "idle_launch_us": functools.partial(native("cuLaunchKernel"), *arguments),
        "idle_refused_us": refused("cuLaunchKernel", arguments[0], 0, *arguments[2:]),
        "idle_nothing_us": int,
    }
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(320):  # alternate, so that changes of the CPU's speed affect all alike
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
