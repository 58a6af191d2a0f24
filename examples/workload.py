"""Code shared by cyclic_sweep.py, irregular_gather.py and embedding_bags.py.

Options, the timed loop, the result. A workload is a list of launches for each iteration. Importing
this module needs no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).resolve().parent / "kernels.cu"
MIB = 1 << 20
FLOAT_BYTES = 4
Launches = Callable[[int], Iterable[Callable[[], None]]]
"""Returns the launches of an iteration in order. Its argument counts iterations from 0."""
Made = tuple[Launches, list[tuple[int, int]]]
"""A workload's launches, and the (address, bytes) of its results."""
SYNC_CHOICES = ("iteration", "launch")


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options that every workload has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--iterations", type=int, default=12, help="number of iterations")
    made.add_argument("--warm-up", type=int, default=2, help="iterations before the timed ones")
    made.add_argument(
        "--compute-per-byte",
        type=float,
        default=1.0,
        metavar="FLOPS",
        help="floating-point operations for each byte that is read (default: 1)",
    )
    add_sync_every_step(made)
    made.add_argument(
        "--managed", action="store_true", help="allocate Unified Memory (cuMemAllocManaged)"
    )
    made.add_argument(
        "--pause-ms",
        type=float,
        default=0,
        help="milliseconds to wait after each iteration, as for data or a request",
    )
    made.add_argument("--no-hash", action="store_true", help="do not hash the result")
    made.add_argument("--json", metavar="FILE", help="write the result to FILE; -: stdout")
    made.add_argument(
        "--footprint", action="store_true", help="print the bytes that it allocates, and exit"
    )
    return made


def add_sync_every_step(made: argparse.ArgumentParser) -> None:
    """Adds the option that makes a program wait for the GPU in each step."""
    made.add_argument(
        "--sync-every-step",
        nargs="?",
        choices=SYNC_CHOICES,
        const="iteration",
        metavar="STEP",
        help="wait for the GPU after each iteration, or after each 'launch'",
    )


def check(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 if an option of parser() is out of range."""
    if not 0 <= options.warm_up < options.iterations:
        made.error(f"--warm-up {options.warm_up} must be below --iterations and at least 0")
    if not 0 <= options.pause_ms <= 60_000:
        made.error(f"--pause-ms is {options.pause_ms}; it must be from 0 to 60000")
    if not 0 <= options.compute_per_byte <= 1e6:
        made.error(f"--compute-per-byte is {options.compute_per_byte}; it must be from 0 to 1e6")


def rounds(compute_per_byte: float) -> int:
    """Returns how many multiply-add rounds on a float make `compute_per_byte` operations."""
    return max(0, round(compute_per_byte * FLOAT_BYTES / 2))


def run(gpu: Any, options: argparse.Namespace, launches_of: Launches) -> dict[str, Any]:
    """Issues the launches of all iterations, counted from 0, and times those after the warm-up.

    Returns the loop's part of the --json result. "started_s" and "ends_s" are times of the
    monotonic clock; "ends_s" are the times when the program's wait for an iteration ended.
    """
    started = time.perf_counter()
    count = 0
    ends = []
    for iteration in range(options.iterations):
        if iteration == options.warm_up:
            gpu.synchronise()
            started = time.perf_counter()
        for launch in launches_of(iteration):
            launch()
            count += 1
            if options.sync_every_step == "launch":
                gpu.synchronise()
        if options.sync_every_step or options.pause_ms:
            gpu.synchronise()
            ends.append(time.perf_counter())
        if options.pause_ms:
            time.sleep(options.pause_ms / 1000)
    gpu.synchronise()
    return {
        "seconds": time.perf_counter() - started,
        "started_s": started,
        "ends_s": ends,
        "iterations": options.iterations,
        "timed_iterations": options.iterations - options.warm_up,
        "launches": count,
    }


def sha256(gpu: Any, buffers: Iterable[tuple[int, int]]) -> str:
    """Returns the hash of device memory, given as (address, bytes), in that order."""
    digest = hashlib.sha256()
    for address, length_bytes in buffers:
        host = (ctypes.c_char * length_bytes)()
        gpu.download(ctypes.addressof(host), address, length_bytes)
        digest.update(memoryview(host))
    return digest.hexdigest()


def main(
    name: str,
    options: argparse.Namespace,
    footprint_bytes: int,
    make: Callable[[Any, argparse.Namespace], Made],
) -> int:
    """Runs a workload; returns the exit status. `make`: allocates and fills the workload's
    buffers on a GPU."""
    if options.footprint:
        print(footprint_bytes)
        return 0
    from gpu import Gpu, GpuError

    try:
        gpu = Gpu(KERNELS, options.managed)
        launches_of, results = make(gpu, options)
        result = run(gpu, options, launches_of)
        result["result_sha256"] = None if options.no_hash else sha256(gpu, results)
        result |= {
            "gpu": gpu.name,
            "footprint_bytes": footprint_bytes,
            "managed": options.managed,
        }
        gpu.close()
    except GpuError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    finish(result, options.json)
    return 0


def finish(result: dict[str, Any], file: str | None) -> None:
    """Writes the result to the file of --json, or prints it for people."""
    text = json.dumps(result, indent=1)
    if file and file != "-":
        Path(file).write_text(text + "\n")
    elif file:
        print(text)
    else:
        print(f"{result['timed_iterations']} timed iterations, {result['seconds']:.3f} s")
        print(f"result sha256 {result['result_sha256']}")
