"""Question: a process's share of the GPU next to another that computes, faults or waits."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from probe.driver import DISABLE_TIMING, GIB, KIB, MIB, TO_HOST, UnsupportedError, call, handle_of
from probe.figures import Json, median, now, rounded, summary
from probe.gpu import Gpu, Launch
from probe.registry import RECORD, Notes, emit, question
from probe.stream_values import stream_value

OTHER = "GPU_PROBE_OTHER"
"""Variable that marks the second process."""
RESTS, WORKS = "rests", ("computes", "faults", "waits")
READ_BYTES, FAULTED_BYTES = GIB, 512 * MIB
"""Kernels are long enough for a busy CPU to issue them in time."""
WORK_S = 0.1
"""Duration of a piece of work that faults do not bound."""
QUEUED = 8
"""Kernels of a process in flight, so that the GPU always has one to run."""
REPEATS = 5
END_S = 5.0


@question(40, "whether turns and gates pay: does a kernel that waits for faults keep the engine?")
def ask_engine(gpu: Gpu, out: Notes) -> None:
    kernels = Kernels(gpu, gpu.read(gpu.plain(READ_BYTES), READ_BYTES, gpu.plain(MIB)))
    if OTHER in os.environ:
        serve(gpu, kernels, sys.stdin)
        return
    gpu.warm_up()
    with second_process() as other:
        for work in WORKS:
            pairs = []
            for _ in range(REPEATS):  # directly one after the other, since a machine's load changes
                rested, _ = beside(other, RESTS, kernels)
                _, alone_ns = beside(other, work, None)
                pairs.append((rested, alone_ns, *beside(other, work, kernels)))
            rested_s, alone, rates, both = zip(*pairs, strict=True)
            out[work] = {
                "share": rounded(median([a / b for a, b in zip(rates, rested_s, strict=True)])),
                "kernels_per_s": summary(rates),
                "kernels_per_s_alone": summary(rested_s),
                "other_ms": summary(both, 1e-6),
                "other_alone_ms": summary(alone, 1e-6),
            }


class Kernels:
    """Issues one process's kernels one after another and keeps QUEUED kernels in flight."""

    def __init__(self, gpu: Gpu, kernel: Launch) -> None:
        self._gpu, self._kernel = gpu, kernel
        self._events = collections.deque(
            handle_of("cuEventCreate", DISABLE_TIMING) for _ in range(QUEUED)
        )

    def while_(self, goes_on: Callable[[], bool]) -> tuple[int, int]:
        """Returns (kernels that ended, nanoseconds) while `goes_on`; then drains the stream."""
        for event in self._events:
            self._issue(event)
        begin, count = now(), 0
        while goes_on():
            call("cuEventSynchronize", self._events[0])
            self._issue(self._events[0])
            self._events.rotate(-1)
            count += 1
        spent = now() - begin
        self._gpu.sync()
        return count, spent

    def _issue(self, event: int) -> None:
        self._gpu.launch(self._kernel)
        call("cuEventRecord", event, self._gpu.stream)


# ---- the first process ---------------------------------------------------------------


def beside(
    other: subprocess.Popen[bytes], work: str, kernels: Kernels | None
) -> tuple[float, float]:
    """Returns our kernels per second while the other process works, and its work's nanoseconds.

    kernels: None if this process must do nothing.
    """
    tell(other, work)
    answer(other, "ready")
    tell(other, "go")
    count, spent = 0, 1
    if kernels:
        count, spent = kernels.while_(lambda: not select.select([other.stdout], [], [], 0)[0])
    return count / spent * 1e9, float(answer(other, "ns"))


def tell(other: subprocess.Popen[bytes], word: str) -> None:
    assert other.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # answer() reports the reason
        other.stdin.write(word.encode() + b"\n")
        other.stdin.flush()


def answer(other: subprocess.Popen[bytes], key: str) -> int:
    """Returns the answer under that key. Raises UnsupportedError if the process ended."""
    assert other.stdout is not None
    row: Json = {}
    for line in other.stdout:
        if line.startswith(RECORD.encode()):
            row = json.loads(line[len(RECORD) :])
            break
    if key not in row:
        raise UnsupportedError(f"the second process: {row.get('reason') or 'it has ended'}")
    return int(row[key])


@contextlib.contextmanager
def second_process() -> Iterator[subprocess.Popen[bytes]]:
    """Starts this program again; the new process ends when its input ends."""
    with subprocess.Popen(
        [sys.executable, *sys.argv],
        env={**os.environ, OTHER: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        try:
            yield other
            assert other.stdin is not None
            other.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(END_S)
        finally:
            other.kill()


# ---- the second process --------------------------------------------------------------


def serve(gpu: Gpu, kernels: Kernels, orders: IO[str]) -> None:
    """Does each requested work once both processes are ready, until the input ends."""
    faulted, sink = gpu.written(FAULTED_BYTES), gpu.plain(MIB)
    word = gpu.pinned(4 * KIB)
    works = {
        RESTS: lambda: time.sleep(WORK_S),
        "computes": lambda: compute(kernels),
        "faults": lambda: fault(gpu, gpu.read(faulted, FAULTED_BYTES, sink)),
        "waits": lambda: wait(gpu, word),
    }
    for order in orders:
        gpu.move(faulted, FAULTED_BYTES, TO_HOST)
        emit({"ready": 1})
        orders.readline()
        begin = now()
        works[order.strip()]()
        emit({"ns": now() - begin})


def compute(kernels: Kernels) -> None:
    end = time.monotonic() + WORK_S
    kernels.while_(lambda: time.monotonic() < end)


def fault(gpu: Gpu, kernel: Launch) -> None:
    gpu.launch(kernel)
    gpu.sync()


def wait(gpu: Gpu, word: int) -> None:
    """Runs a kernel after a wait for a word of host memory, as a gate does."""
    at = ctypes.c_uint32.from_address(word)
    value = at.value + 1
    opener = threading.Timer(WORK_S, lambda: setattr(at, "value", value))  # makes no CUDA call
    opener.start()
    try:
        stream_value("Wait", gpu.stream, word, value)
        gpu.launch(gpu.prepare("probe_empty", 1, 32))
        gpu.sync()
    finally:
        opener.join()
