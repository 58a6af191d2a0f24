"""Question: whether a program's kernels wait for the streams that prefetch.

Streams share the hardware's work queues (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and work in
one queue runs in submission order. A lane is a stream of prefetches.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence

from probe.driver import INT, KIB, MIB, NON_BLOCKING, TO_HOST, CudaError, call, handle_of
from probe.figures import Json, rounded
from probe.gpu import Gpu
from probe.questions.ask_felt import Disturber, feel, victims
from probe.registry import Notes, question
from probe.stream_values import settles, stream_value
from probe.threads import Worker

HELD_LANES = (1, 2, 4, 8, 16, 32)
BUSY_LANES = (1, 4, 8, 32)
PROGRAM_STREAMS = 8
PASSES_S = 0.03  # an empty kernel on a free queue takes a thousandth of this
BUSY_S = 0.3
BUSY_SHARE = 0.5  # share of the question's time
SLICE = 8 * MIB
CONNECTIONS = {
    f"connections_{count}": {"CUDA_DEVICE_MAX_CONNECTIONS": str(count)} for count in (1, 8, 32)
}


@question(
    60,
    "number and priority of executors' lanes: whether kernels wait behind prefetches",
    environments=CONNECTIONS,
)
def ask_lanes(gpu: Gpu, out: Notes) -> None:
    chosen = priorities()
    out["priorities"] = chosen
    out["context_ms"], out["free_mib"] = gpu.context_ms, gpu.memory_info()[0] // MIB
    for name, priority in chosen.items():
        try:
            out[f"held_{name}"] = held(gpu, priority)
        except CudaError as error:
            out[f"held_{name}"] = {"failed": str(error)}
    length = 256 * MIB
    address = gpu.written(length)
    traffic = LaneTraffic(gpu, address, length)
    victim = victims(gpu)["launch_and_wait"]
    feel(victim, traffic, 0.05)
    cells = len(chosen) * len(BUSY_LANES) + 1
    each_s = min(BUSY_S, BUSY_SHARE * out.left_s() / cells)
    out["alone"] = feel(victim, traffic, each_s)
    for name, priority in chosen.items():
        lanes = [stream_of(priority) for _ in range(max(BUSY_LANES))]
        row: Json = {}
        for count in BUSY_LANES:
            traffic.stop, traffic.brought = False, 0
            worker = Worker(gpu, functools.partial(traffic.bring, lanes[:count]))
            try:
                row[f"{count}_lanes"] = feel(victim, traffic, each_s)
            finally:
                traffic.stop = True
                worker.finish()
            row[f"{count}_lanes"]["brought_gbps"] = rounded(traffic.brought / each_s / 1e9)
        out[f"busy_{name}"] = row


def priorities() -> dict[str, int]:
    """Returns priorities for lanes. A program's streams have priority 0 unless it sets another."""
    least, greatest = INT(0), INT(0)
    call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    above = {"one_above": -1, "greatest": greatest.value} if greatest.value < 0 else {}
    return {"default": 0, **above}


def stream_of(priority: int) -> int:
    return handle_of("cuStreamCreateWithPriority", NON_BLOCKING, priority)


def held(gpu: Gpu, priority: int) -> Json:
    """Counts how many of a program's streams stall while lanes wait for a value.

    A waiting lane represents one whose prefetch waits for its copy. Nothing is timed.
    """
    gate = gpu.pinned(4 * KIB)
    word = ctypes.c_uint32.from_address(gate)
    program = [gpu.new_stream() for _ in range(PROGRAM_STREAMS)]
    kernel = gpu.prepare("probe_empty", 1, 32)
    stuck: Json = {}
    for count in HELD_LANES:
        lanes = [stream_of(priority) for _ in range(count)]
        word.value = 0
        try:
            for lane in lanes:
                stream_value("Wait", lane, gate, 1)
            for stream in program:
                gpu.launch(kernel, stream)
            stuck[f"{count}_lanes"] = sum(not settles(stream, PASSES_S) for stream in program)
        finally:
            word.value = 1
        freed = all(settles(stream) for stream in (*program, *lanes))
        for lane in lanes:
            call("cuStreamDestroy_v2", lane)
        if not freed:
            return {"streams_stuck": stuck, "failed": "streams stayed stuck with the gate open"}
    first = next((count for count in HELD_LANES if stuck[f"{count}_lanes"]), None)
    return {"streams_stuck": stuck, "of_streams": PROGRAM_STREAMS, "first_stuck_at_lanes": first}


class LaneTraffic(Disturber):
    """Prefetches a buffer over several streams, slice by slice, and evicts it again."""

    brought = 0

    def bring(self, lanes: Sequence[int]) -> None:
        while not self.stop:
            self.phase = "out"
            self.move_all(32 * MIB, TO_HOST)
            self.phase = "in"
            for address, lane in self.slices(lanes):
                self.gpu.prefetch(address, SLICE, 0, lane)
            for lane in lanes:
                self.gpu.sync(lane)
            self.brought += self.length
        self.phase = ""

    def slices(self, lanes: Sequence[int]) -> Iterator[tuple[int, int]]:
        for number in range(self.length // SLICE):
            yield self.address + number * SLICE, lanes[number % len(lanes)]
