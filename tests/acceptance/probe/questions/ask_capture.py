"""Question: which calls do not end a stream capture."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from probe.driver import (
    ATTACH_GLOBAL,
    BLOCK,
    DISABLE_TIMING,
    INT,
    NOT_READY,
    SIZE,
    TO_HOST,
    U64,
    CudaError,
    call,
    error_name,
    handle_of,
    native,
    outcome,
)
from probe.figures import Json
from probe.gpu import Gpu
from probe.registry import Notes, question
from probe.threads import Worker


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
        gpu.held[-1] = BLOCK  # counts while it may be live
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
    """Ends a capture and discards its graph; returns the name of the answer."""
    graph = U64(0)
    code = native("cuStreamEndCapture")(stream, ctypes.byref(graph))
    if code == 0 and graph.value:
        call("cuGraphDestroy", graph.value)
    return error_name(code)
