"""Question: wait and write values on streams, and prefetches after them."""

from __future__ import annotations

import ctypes
import threading
import time

from probe.driver import BLOCK, KIB, MIB, TO_HOST, U32, call, outcome
from probe.figures import Json, now, rounded
from probe.gpu import Gpu
from probe.registry import Notes, question
from probe.stream_values import settles, stream_value


@question(30, "wait/write values on each kind of memory; a prefetch behind a wait")
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
        prefetch_behind_wait(gpu, out, pinned + 64)
    # Runs last, because a refused operation may leave the context in an error state.
    for name, address in (
        ("pinned", pinned + 192),
        ("device", gpu.plain(BLOCK)),
        ("managed_on_gpu", gpu.written(BLOCK, 0)),
        ("managed_fresh", gpu.managed(BLOCK)),
    ):
        out[name] = values_on(gpu.new_stream(), address)


def values_on(stream: int, address: int) -> Json:
    """Writes a word through the stream, checks that it arrived, and only then waits for it."""
    row: Json = {"write": outcome(lambda: stream_value("Write", stream, address, 9))}
    if row["write"]["code"] != 0:
        # The write is refused. Test whether a wait is, too; its value (0) is already there.
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


def prefetch_behind_wait(gpu: Gpu, out: Notes, word: int) -> None:
    """Prefetches on a stream that a wait blocks, and measures whether the caller also waits."""
    length, hold_s = 32 * MIB, 0.2
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)

    def release(value: int) -> None:  # no CUDA call here: the driver may be locked
        time.sleep(hold_s)
        ctypes.c_uint32.from_address(word).value = value

    for value, (direction, to) in enumerate((("in", 0), ("out", TO_HOST)), start=1):
        stream = gpu.new_stream()
        stream_value("Wait", stream, word, value)
        opener = threading.Thread(target=release, args=(value,), daemon=True)
        opener.start()
        caller = gpu.prefetch(address, length, to, stream)
        settled = settles(stream)
        opener.join(2)
        out[f"prefetch_{direction}_behind_wait"] = {
            "caller_us": rounded(caller / 1e3),
            "settled": settled,
            "caller_waits_for_stream": caller / 1e9 > 0.8 * hold_s,
        }
    gpu.free(address)
