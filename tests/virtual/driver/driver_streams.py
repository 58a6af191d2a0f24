"""Programs about streams, waits in them, and capture, run by driver_programs.py."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import ADD, MIB, SCALE, Gpu, ask, code_of


def stream_order() -> Any:
    """Orders a chain of copies and memsets with events between two streams."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    event = ask(cu.cuEventCreate(2))
    a, b = int(ask(cu.cuMemAlloc(4 * MIB))), int(ask(cu.cuMemAllocManaged(4 * MIB, 1)))
    wrong = 0
    for value in range(50):
        ask(cu.cuMemsetD32Async(a, value, MIB, gpu.stream))
        ask(cu.cuEventRecord(event, gpu.stream))
        ask(cu.cuStreamWaitEvent(other, event, 0))
        ask(cu.cuMemcpyDtoDAsync(b, a, 4 * MIB, other))
        ask(cu.cuEventRecord(event, other))
        ask(cu.cuStreamWaitEvent(gpu.stream, event, 0))
        if value % 10 == 9:
            ask(cu.cuStreamSynchronize(other))
            seen = np.zeros(MIB, np.uint32)
            ask(cu.cuMemcpyDtoH(seen.ctypes.data, b, seen.nbytes))
            wrong += int(np.count_nonzero(seen != value))
    return wrong


def host_function() -> Any:
    """Runs host functions between the work before and after them, on another thread."""
    gpu = Gpu()
    seen: list[Any] = []
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    device = int(ask(cu.cuMemAlloc(4)))

    def look(_: Any) -> None:
        seen.append((word.value, threading.get_native_id()))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
    function = cu.CUhostFn(ctypes.cast(callback, ctypes.c_void_p).value)
    for value in (3, 4):
        ask(cu.cuMemsetD32Async(device, value, 1, gpu.stream))
        ask(cu.cuMemcpyDtoHAsync(pinned, device, 4, gpu.stream))
        ask(cu.cuLaunchHostFunc(gpu.stream, function, 0))
    gpu.sync()
    return {
        "values": [value for value, _ in seen],
        "elsewhere": all(thread != threading.get_native_id() for _, thread in seen),
    }


def effect_without_a_call() -> Any:
    """Returns a pinned word that the GPU writes while no thread calls the driver."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    ask(cu.cuStreamWriteValue32(gpu.stream, pinned, 17, 0))
    end = time.monotonic() + 5
    while word.value != 17 and time.monotonic() < end:
        time.sleep(0.001)
    return word.value


def effect_beside_a_long_wait() -> Any:
    """Returns the ms until a word changes in one stream while another runs a long kernel."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    pinned = int(ask(cu.cuMemHostAlloc(8, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    data = int(ask(cu.cuMemAlloc(4096)))
    gpu.launch("scale", (data, 1.0, 1), SCALE)
    ask(cu.cuStreamWriteValue32(gpu.stream, pinned + 4, 1, 0))
    time.sleep(0.01)
    began = time.monotonic()
    ask(cu.cuStreamWriteValue32(other, pinned, 17, 0))
    while word.value != 17 and time.monotonic() < began + 5:
        time.sleep(0.0001)
    taken = 1e3 * (time.monotonic() - began)
    return {"ms": taken, "busy": code_of(cu.cuStreamQuery(gpu.stream))}


def wait_value() -> Any:
    """Lets a stream wait for a word; managed words are refused."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(8, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    ask(cu.cuStreamWaitValue32(gpu.stream, pinned, 5, 0))
    before = code_of(cu.cuStreamQuery(gpu.stream))
    time.sleep(0.01)
    still = code_of(cu.cuStreamQuery(gpu.stream))
    word.value = 6
    gpu.sync()
    managed = int(ask(cu.cuMemAllocManaged(4096, 1)))
    refused = code_of(cu.cuStreamWriteValue32(gpu.stream, managed, 1, 0))
    return {"before": [before, still], "refused": refused}


def work_queues() -> Any:
    """Makes the first of 33 streams wait for another stream's kernel. Returns the stuck streams,
    among these and 33 more with a priority."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAlloc(256 * MIB)))
    streams = [ask(cu.cuStreamCreate(1)) for _ in range(33)]
    least, greatest = (int(bound) for bound in ask(cu.cuCtxGetStreamPriorityRange()))
    others = [ask(cu.cuStreamCreateWithPriority(1, greatest)) for _ in range(33)]
    events = [ask(cu.cuEventCreate(0)) for _ in streams + others]
    ran = ask(cu.cuEventCreate(0))
    gpu.launch("scale", (data, 1.0, 1), SCALE)
    ask(cu.cuEventRecord(ran, gpu.stream))
    ask(cu.cuStreamWaitEvent(streams[0], ran, 0))
    for event, stream in zip(events, streams + others, strict=True):
        ask(cu.cuEventRecord(event, stream))
    stuck = [i for i, event in enumerate(events) if code_of(cu.cuEventQuery(event)) != 0]
    return {"stuck": stuck, "levels": least - greatest + 1}


def capture() -> Any:
    gpu = Gpu()
    n = 4096
    data = gpu.array(np.ones(n, np.float32))
    other = int(ask(cu.cuMemAlloc(4 * n)))
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ask(cu.cuStreamBeginCapture(gpu.stream, mode))
    status = int(ask(cu.cuStreamIsCapturing(gpu.stream)))
    gpu.launch("scale", (data, 2.0, n), SCALE)
    ask(cu.cuMemsetD32Async(other, 0x40000000, n, gpu.stream))
    gpu.launch("add", (data, other, data, n), ADD)
    graph = ask(cu.cuStreamEndCapture(gpu.stream))
    untouched = float(gpu.read(data, 1)[0])
    graph_exec = ask(cu.cuGraphInstantiate(graph, 0))
    ask(cu.cuGraphDestroy(graph))
    for _ in range(3):
        ask(cu.cuGraphLaunch(graph_exec, gpu.stream))
    gpu.sync()
    ask(cu.cuGraphExecDestroy(graph_exec))
    return {"status": status, "untouched": untouched, "value": float(gpu.read(data, n)[-1])}


def capture_rules() -> Any:
    gpu = Gpu()
    modes = cu.CUstreamCaptureMode
    data = gpu.array(np.ones(16, np.float32))

    def attempt(mode: Any, call: Any, relaxed: bool = False) -> list[int]:
        ask(cu.cuStreamBeginCapture(gpu.stream, mode))
        gpu.launch("scale", (data, 2.0, 16), SCALE)
        if relaxed:
            old = modes.CU_STREAM_CAPTURE_MODE_RELAXED
            ask(cu.cuThreadExchangeStreamCaptureMode(old))
        code = code_of(call())
        if relaxed:
            ask(cu.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
        return [code, code_of(cu.cuStreamEndCapture(gpu.stream))]

    def elsewhere() -> tuple[Any, ...]:
        answers: list[tuple[Any, ...]] = []

        def allocate() -> None:
            ask(cu.cuCtxSetCurrent(gpu.context))
            answers.append(cu.cuMemAlloc(4096))

        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        return answers[0]

    every, local = modes.CU_STREAM_CAPTURE_MODE_GLOBAL, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ask(cu.cuStreamBeginCapture(gpu.stream, every))
    legacy = [
        code_of(cu.cuStreamSynchronize(gpu.stream)),
        code_of(cu.cuStreamEndCapture(gpu.stream)),
    ]
    return {
        "alloc": attempt(every, lambda: cu.cuMemAlloc(4096)),
        "managed": attempt(every, lambda: cu.cuMemAllocManaged(4096, 1)),
        "relaxed": attempt(every, lambda: cu.cuMemAlloc(4096), relaxed=True),
        "other_thread_global": attempt(every, elsewhere),
        "other_thread_local": attempt(local, elsewhere),
        "synchronize": legacy,
    }


def forked_capture() -> Any:
    """Joins a second stream by event; without the join back the capture fails."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    fork, join = ask(cu.cuEventCreate(2)), ask(cu.cuEventCreate(2))
    n = 64
    data = gpu.array(np.ones(n, np.float32))
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    codes = []
    for joined in (True, False):
        ask(cu.cuStreamBeginCapture(gpu.stream, mode))
        ask(cu.cuEventRecord(fork, gpu.stream))
        ask(cu.cuStreamWaitEvent(other, fork, 0))
        gpu.launch("scale", (data, 5.0, n), SCALE, other)
        if joined:
            ask(cu.cuEventRecord(join, other))
            ask(cu.cuStreamWaitEvent(gpu.stream, join, 0))
        answer = cu.cuStreamEndCapture(gpu.stream)
        codes.append(code_of(answer))
    return codes


def many_threads() -> Any:
    """Runs eight threads with their own streams; every sum is right."""
    gpu = Gpu()
    wrong: list[int] = []

    def work(number: int) -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        stream = ask(cu.cuStreamCreate(1))
        n = 4096
        data = gpu.array(np.full(n, number, np.float32), managed=number % 2 == 0)
        for _ in range(50):
            gpu.launch("add", (data, data, data, n), ADD, stream)
            gpu.launch("scale", (data, 0.5, n), SCALE, stream)
            block = ask(cu.cuMemAllocAsync(65536, stream))
            ask(cu.cuMemFreeAsync(block, stream))
        ask(cu.cuStreamSynchronize(stream))
        wrong.append(int(np.count_nonzero(gpu.read(data, n) != number)))
        ask(cu.cuMemFree(data))
        ask(cu.cuStreamDestroy(stream))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [len(wrong), sum(wrong)]


def default_streams() -> Any:
    """Starts more threads than streams exist, one after another, each with its default stream."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAlloc(4096)))
    wrong: list[int] = []

    def work(number: int) -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        ask(cu.cuMemsetD32Async(data, number, 1024, 2))
        ask(cu.cuStreamSynchronize(2))
        seen = np.zeros(1024, np.uint32)
        ask(cu.cuMemcpyDtoH(seen.ctypes.data, data, 4096))
        wrong.append(int(np.count_nonzero(seen != number)))

    for number in range(1200):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
    return [len(wrong), sum(wrong)]
