"""Question: which kind of discard the public call performs, and its cost."""

from __future__ import annotations

import array
import ctypes

from probe.driver import (
    BLOCK,
    MIB,
    SIZE,
    TO_HOST,
    U64,
    CudaError,
    MemLocation,
    UnsupportedError,
    native,
    refused,
    timed,
)
from probe.figures import Json, line_fit, now, rounded, us
from probe.gpu import Gpu
from probe.moves import moves_summary
from probe.registry import Notes, question

COST_BLOCKS = (1, 4, 16, 64)
COST_SAMPLES = 12


@question(30, "which discard the public call makes, and what a block of it costs its caller")
def ask_discard(gpu: Gpu, out: Notes) -> None:
    native("cuMemDiscardBatchAsync")
    discard_costs(gpu, out)
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


def discard_costs(gpu: Gpu, out: Notes) -> None:
    """Measures the caller's time on an idle stream, for GPU-mapped and for discarded blocks."""
    ask = refused("cuMemDiscardBatchAsync", None, None, 0, 0, gpu.stream)
    asking: list[float] = []
    for _ in range(50):
        start = now()
        ask()
        asking.append(now() - start)
    out["refused_us"] = us(asking[10:])
    address = gpu.written(max(COST_BLOCKS) * BLOCK)
    points: list[tuple[float, float]] = []
    for blocks in COST_BLOCKS:
        length = blocks * BLOCK
        arguments = (U64 * 1)(address), (SIZE * 1)(length), 1, 0, gpu.stream
        spent: dict[str, list[float]] = {"mapped": [], "discarded": []}
        for _ in range(COST_SAMPLES):
            gpu.move(address, length, 0)
            for samples in spent.values():
                samples.append(timed("cuMemDiscardBatchAsync", *arguments))
                gpu.sync()
        row = {name: us(samples[2:]) for name, samples in spent.items()}
        out[f"{blocks}_blocks"] = row
        points.append((float(blocks), row["mapped"]["p10"]))
    gpu.free(address)
    fixed, per_block = line_fit(points)
    out["fit_caller"] = {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


def discard_once(gpu: Gpu, address: int, length: int, variant: str) -> Json:
    """Writes a pattern on both sides, discards, may write a new one, and reads from the CPU."""
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
    seen = {name: words.count(word) for name, word in (("old", old), ("written", new), ("zero", 0))}
    seen["other"] = len(words) - sum(seen.values())
    row["seen"] = {name: rounded(count / len(words)) for name, count in seen.items() if count}
    return row
