"""Questions: how calls of one thread delay those of another: loads of code, polls of events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from probe.driver import BLOCK, DISABLE_TIMING, INT, PTR, call, handle_of, native, timed
from probe.figures import Json, now, rounded, us
from probe.gpu import Gpu, Launch, kernel_of, load_module
from probe.registry import Notes, question
from probe.threads import Worker

LAZY = 2
"""cuda.h: CU_MODULE_LAZY_LOADING."""
BUSY_NS, POLL_SPIN_NS = 30_000_000, 400_000_000
SAMPLING_NS = 250_000_000
PAUSE_US = 50
"""Pause between two polls, as in pump's marker thread."""
BURST = 64
"""Launches before a wait; they fit into a stream's queue."""


def first_launch(gpu: Gpu) -> Launch:
    """Prepares a launch of a function that the driver has not loaded."""
    function = kernel_of(load_module(gpu.image), "probe_empty")
    return Launch((function, 1, 1, 1, 32, 1, 1, 0), (PTR * 1)(), ())


def beside(gpu: Gpu, context: int, launch: Launch, address: int) -> Json:
    """Launches from another thread on a busy GPU. Returns the microseconds of that call, and of the
    longest calls that this thread makes meanwhile in `context`."""
    call("cuCtxSetCurrent", context)
    event, stream = handle_of("cuEventCreate", DISABLE_TIMING), gpu.new_stream()
    calls: dict[str, Callable[[], Any]] = {
        "cuEventQuery": lambda: native("cuEventQuery")(event),
        "cuEventRecord": lambda: call("cuEventRecord", event, stream),
        "prefetch": lambda: gpu.prefetch(address, BLOCK, 0, stream),
    }
    for work in calls.values():
        work()
    call("cuCtxSetCurrent", gpu.context)
    other = gpu.new_stream()
    gpu.cover(BUSY_NS)
    worker = Worker(gpu, lambda: timed("cuLaunchKernel", *launch.on(other)))
    call("cuCtxSetCurrent", context)
    longest = dict.fromkeys(calls, 0)
    while worker.is_alive():
        for name, work in calls.items():
            start = now()
            work()
            longest[name] = max(longest[name], now() - start)
    call("cuCtxSetCurrent", gpu.context)
    launch_us = rounded(worker.finish() / 1e3)
    gpu.sync()
    return {
        "launch_us": launch_us,
        "longest_us": {name: rounded(spent / 1e3) for name, spent in longest.items()},
    }


@question(20, "whether a function's first launch stops all other calls of its context")
def ask_lazy(gpu: Gpu, out: Notes) -> None:
    mode = INT(0)
    call("cuModuleGetLoadingMode", ctypes.byref(mode))
    out["lazy"] = mode.value == LAZY
    gpu.warm_up()
    address = gpu.written(BLOCK)
    gpu.cover(1.0)  # prepares its memory
    known = gpu.prepare("probe_empty", 1, 32)
    gpu.launch(known)
    context = handle_of("cuCtxCreate_v2", 0, int(gpu.device))
    for label, current in (("same_context", gpu.context), ("another_context", context)):
        out[label] = {
            "known": beside(gpu, current, known, address),
            "first": beside(gpu, current, first_launch(gpu), address),
        }
    call("cuCtxDestroy_v2", context)


@question(20, "whether launches feel a thread that polls events", managed=False)
def ask_poller(gpu: Gpu, out: Notes) -> None:
    usleep, query = ctypes.CDLL(None).usleep, native("cuEventQuery")
    event, busy = handle_of("cuEventCreate", DISABLE_TIMING), gpu.new_stream()
    launch = gpu.prepare("probe_empty", 1, 32).on(gpu.stream)
    context = handle_of("cuCtxCreate_v2", 0, int(gpu.device))
    call("cuCtxSetCurrent", gpu.context)
    for label, current in (("control", 0), ("same_context", gpu.context), ("another", context)):
        gpu.launch(gpu.spin(POLL_SPIN_NS), busy)
        call("cuEventRecord", event, busy)
        stop = [False]

        def poll(current: int = current, stop: list[bool] = stop) -> None:
            if current:
                call("cuCtxSetCurrent", current)
            while not stop[0]:
                usleep(PAUSE_US)
                if current:
                    query(event)

        worker, spent, end = Worker(gpu, poll), [], now() + SAMPLING_NS
        while now() < end:
            spent += [timed("cuLaunchKernel", *launch) for _ in range(BURST)]
            gpu.sync()
        stop[0] = True
        worker.finish()
        gpu.sync(busy)
        out[label] = us(spent)
    call("cuCtxDestroy_v2", context)
