"""Question: speed of kernels on managed memory, compared with plain memory."""

from __future__ import annotations

import array
import random
from collections.abc import Callable

from probe.driver import BLOCK, KIB, MIB, U64, call
from probe.figures import Json, gbps, median, rounded, us
from probe.gpu import Gpu
from probe.registry import Notes, question


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
        for turn in range(16):  # alternate, so that clocks and heat affect both alike
            for kind in ("managed", "plain") if turn % 2 else ("plain", "managed"):
                samples[kind].append(gpu.between_events(both[kind][name]))
        row: Json = {kind + "_us": us(values[3:]) for kind, values in samples.items()}
        for kind, values in samples.items():
            row[kind + "_gbps"] = gbps(factor.get(name, 1) * length, median(values[3:]))
        row["managed_over_plain"] = rounded(
            median(samples["managed"][3:]) / median(samples["plain"][3:])
        )
        out[name] = row
