"""Questions: costs of prefetches by size, location, concurrency and thread."""

from __future__ import annotations

import ctypes
import functools

from probe.driver import (
    BLOCK,
    KIB,
    MIB,
    SIZE,
    TO_HOST,
    U64,
    CudaError,
    MemLocation,
    UnsupportedError,
    refused,
    timed,
)
from probe.figures import (
    Json,
    gbps,
    line_fit,
    median,
    now,
    rounded,
    summary,
    us,
)
from probe.gpu import Gpu, peek
from probe.moves import moves_summary, sliced
from probe.registry import Notes, question
from probe.threads import together

SIZES_MIB = (2, 4, 8, 16, 32, 64, 128, 256)


def block_fit(rows: dict[int, Json], direction: str, which: str) -> Json:
    """Fits a line over the number of blocks; returns fixed and per-block microseconds.

    Excludes the single block, because calls of several blocks make a second pass over them. Uses
    the 10th percentile of each size: see undisturbed().
    """
    points = [(mib / 2, row[direction][which]["p10"]) for mib, row in rows.items() if mib > 2]
    fixed, per_block = line_fit(points)
    return {"fixed_us": rounded(fixed), "per_block_us": rounded(per_block)}


@question(40, "t_call, t_hblk, bw_h2d, t_cpupte; slice size; number of out-threads")
def ask_prefetch_idle(gpu: Gpu, out: Notes) -> None:
    rows: dict[int, Json] = {}
    out["refused_us"] = refused_prefetch_us(gpu)
    for mib in SIZES_MIB:
        length = mib * MIB
        address = gpu.written(length, 7)
        first_out = gpu.move(address, length, TO_HOST)
        outs, ins = [], []
        for _ in range(7 if mib > 64 else 11):
            ins.append(gpu.move(address, length, 0))
            outs.append(gpu.move(address, length, TO_HOST))
        kept = peek(address) == peek(address + length - 4) == 7
        rows[mib] = {
            "in": moves_summary(ins, length),
            "out": moves_summary(outs, length),
            "first_out": moves_summary([first_out], length),
            "in_when_resident_us": resident_again(gpu, address, length),
            "in_after_a_fault_each": after_faults(gpu, address, length),
            "data_kept": kept,
        }
        gpu.free(address)
        out[f"{mib}_mib"] = rows[mib]
    for direction in ("in", "out"):
        for which in ("caller_us", "total_us"):
            out[f"fit_{direction}_{which.removesuffix('_us')}"] = block_fit(rows, direction, which)


def refused_prefetch_us(gpu: Gpu) -> Json:
    """Measures the caller's time for a refused prefetch, including clock and ctypes."""
    name, where = gpu.prefetch_call
    ask = refused(name, gpu.managed(BLOCK), 0, *where(0), gpu.stream)
    samples = []
    for _ in range(50):
        start = now()
        ask()
        samples.append(now() - start)
        gpu.sync()
    return us(samples[10:])


def after_faults(gpu: Gpu, address: int, length: int) -> Json:
    """Prefetches blocks after the GPU has fetched one page of each block by a fault.

    If the CPU's work on a block takes longer than its copy, the fault may already have done most of
    that work. Then the link is the bottleneck.
    """
    blocks = length // BLOCK
    samples = []
    for _ in range(4):
        gpu.move(address, length, TO_HOST)
        gpu.launch(gpu.touch(address, BLOCK, blocks))
        gpu.sync()
        samples.append(gpu.move(address, length, 0))
    return moves_summary(samples, length - blocks * 64 * KIB)


def resident_again(gpu: Gpu, address: int, length: int) -> Json:
    """Measures the caller's time for prefetches of blocks that are already on the GPU."""
    gpu.move(address, length, 0)
    return us(gpu.move(address, length, 0)[0] for _ in range(5))


@question(30, "whether an executor should gather scattered blocks into one batch call")
def ask_prefetch_scattered(gpu: Gpu, out: Notes) -> None:
    count, length = 16, 64 * MIB
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)
    blocks = [address + 2 * index * BLOCK for index in range(count)]  # every other block
    pointers, lengths = (U64 * count)(*blocks), (SIZE * count)(*[BLOCK] * count)
    indices = (SIZE * 1)(0)
    places = {0: MemLocation(1, int(gpu.device)), TO_HOST: MemLocation(2, 0)}

    def one_by_one(to: int) -> int:
        return sum(gpu.prefetch(block, BLOCK, to) for block in blocks)

    def batch(to: int) -> int:
        return timed(
            "cuMemPrefetchBatchAsync",
            pointers,
            lengths,
            count,
            ctypes.byref(places[to]),
            indices,
            1,
            0,
            gpu.stream,
        )

    for name, submit in (("one_by_one", one_by_one), ("batch", batch)):
        row: dict[str, list[tuple[int, int]]] = {"in": [], "out": []}
        try:
            for _ in range(7):
                for direction, to in (("in", 0), ("out", TO_HOST)):
                    start = now()
                    caller = submit(to)
                    gpu.sync()
                    row[direction].append((caller, now() - start))
        except (UnsupportedError, CudaError) as error:
            out[name] = {"failed": str(error)}
            continue
        out[name] = {
            direction: moves_summary(samples[1:], count * BLOCK)
            for direction, samples in row.items()
        }


@question(30, "whether executors' streams must be kept idle; who does the work on a busy one")
def ask_prefetch_busy(gpu: Gpu, out: Notes) -> None:
    spin_ns = 20_000_000
    spin = gpu.spin(spin_ns)
    out["spin_us"] = us(gpu.kernel_ns(spin) for _ in range(3))
    for mib in (2, 32, 256):
        length = mib * MIB
        address = gpu.written(length)
        gpu.move(address, length, TO_HOST)
        row: dict[str, list[tuple[int, int]]] = {"in": [], "out": []}
        for _ in range(5):
            for direction, to in (("in", 0), ("out", TO_HOST)):
                gpu.sync()
                gpu.launch(spin)
                row[direction].append(gpu.move(address, length, to))
        gpu.free(address)
        out[f"{mib}_mib"] = {
            direction: {
                "caller_us": us(caller for caller, _ in samples),
                "total_with_spin_us": us(total for _, total in samples),
                "caller_waits_for_stream": median(c for c, _ in samples) > 0.8 * spin_ns,
            }
            for direction, samples in row.items()
        }


@question(40, "how many in- and out-threads an executor needs, and with which slices")
def ask_prefetch_threads(gpu: Gpu, out: Notes) -> None:
    length = 256 * MIB
    buffers = [gpu.written(length) for _ in range(4)]
    streams = [gpu.new_stream() for _ in buffers]
    for address in buffers:
        gpu.move(address, length, TO_HOST)  # allocates host pages once
    for mib in (4, 8, 32):
        for threads in (1, 2, 4):
            row: dict[str, list[float]] = {"in": [], "out": []}
            for _ in range(4):
                for direction, to in (("in", 0), ("out", TO_HOST)):
                    jobs = [
                        functools.partial(
                            sliced,
                            gpu,
                            address,
                            length,
                            slice_length=mib * MIB,
                            to=to,
                            stream=stream,
                        )
                        for address, stream in zip(buffers[:threads], streams, strict=False)
                    ]
                    spans = together(gpu, jobs)
                    wall = max(end for _, end in spans) - min(start for start, _ in spans)
                    row[direction].append(gbps(threads * length, wall))
            out[f"slices_{mib}_mib_threads_{threads}"] = {
                f"{direction}_gbps": summary(samples[1:]) for direction, samples in row.items()
            }
