"""Trains a GPT-like decoder with PyTorch and AdamW; run by the suite frameworks.

It needs PyTorch and does not use pump. It writes one JSON object:

    `seconds`             Time of the timed iterations, until all have executed.
    `cpu_seconds`         CPU time of the process in that time.
    `began_s`, `ended_s`  Its start and end, on the clock of time.monotonic().
    `issue_seconds`       Time until the last timed iteration was issued.
    `reserved_bytes`      The most memory that PyTorch's allocator held; only with --touches.
    `touches`             With --touches: an iteration's [reads, updates, overwrites], in blocks.

With --counting LIBRARY, callgrind counts a stretch of --iterations, then one three times as long
(instructions.py).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lab"), str(ROOT)]

import torch  # noqa: E402
from acceptance.models import gpt2, sizes  # noqa: E402

SEED = 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "width", "heads", "vocabulary", "sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True, help="iterations before the timed")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--wait-every", type=int, required=True, help="timed iterations; 0: never")
    parser.add_argument("--touches", action="store_true")
    parser.add_argument("--counting", metavar="LIBRARY")
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def main() -> int:
    options = parse()
    torch.set_num_threads(1)
    shape = sizes.Gpt(
        options.layers,
        options.width,
        options.heads,
        options.vocabulary,
        options.sequence,
        options.batch,
        quick=False,
    )
    model = gpt2.train(SEED, shape, "cuda")
    for _ in range(options.warm_up):
        model.step()
    model.wait()
    for count in (options.iterations, 3 * options.iterations) if options.counting else ():
        library = ctypes.CDLL(options.counting)
        library.begin_counting()
        for _ in range(count):
            model.step()
        model.wait()
        library.end_counting()
    cpu, started = time.process_time(), time.perf_counter()
    for done in range(1, options.iterations + 1):
        model.step()
        if options.wait_every and done % options.wait_every == 0:
            model.wait()
    issued = time.perf_counter()
    model.wait()
    ended = time.perf_counter()
    found = {
        "seconds": ended - started,
        "began_s": started,
        "ended_s": ended,
        "issue_seconds": issued - started,
        "cpu_seconds": time.process_time() - cpu,
        "facts": model.facts,
    }
    if options.touches:  # only the caching allocator reports these
        found["reserved_bytes"] = torch.cuda.max_memory_reserved()
        found["allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["touches"] = [[t.reads, t.updates, t.overwrites] for t in model.touches()]
    options.json.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
