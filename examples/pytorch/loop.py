"""Code shared by the programs of this folder: options, timed steps and their metrics.

This code does not use pump. The timed steps are between the profiler's start and stop, which CUDA
tools and pump's virtual GPU recognise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

SEED = 1


def parser(description: str, **shape: int) -> argparse.ArgumentParser:
    """Returns a parser with the options of all programs. `shape`: defaults of layers, width, heads,
    inner and vocabulary."""
    made = argparse.ArgumentParser(description=description)
    for name, value in {"heads": 24, "vocabulary": 8192, **shape}.items():
        made.add_argument(f"--{name}", type=int, default=value)
    made.add_argument("--batch", type=int, default=4)
    made.add_argument("--warm-up", type=int, default=3, help="steps before the timed ones")
    made.add_argument("--steps", type=int, default=9, help="timed steps")
    made.add_argument("--dtype", default="bfloat16", help="data type of untrained weights")
    made.add_argument("--device", default="cuda")
    made.add_argument("--json", metavar="FILE", help="write metrics to FILE; -: stdout")
    return made


def prepare(options: argparse.Namespace) -> torch.device:
    """Sets the seed and the data type; returns the device, a context for new tensors."""
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, options.dtype))
    torch.manual_seed(SEED)
    return torch.device(options.device)


def weights_bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


class Reads:
    """Records the addresses and bytes of weights that forward passes read, in order."""

    def __init__(self, model: nn.Module) -> None:
        self.spans: list[tuple[int, int]] = []
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_pre_hook(self._note_weight_span)

    def _note_weight_span(self, module: nn.Linear, _inputs: Any) -> None:
        self.spans.append((module.weight.data_ptr(), module.weight.nbytes))


def timed(
    step: Callable[[int], object], options: argparse.Namespace, model: nn.Module
) -> dict[str, Any]:
    """Runs all steps, which each wait for the device; returns metrics of the timed ones."""
    cuda = options.device == "cuda"
    for number in range(options.warm_up):
        step(number)
    reads, each_s = Reads(model), []
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.profiler.start()
    for number in range(options.steps):
        began = time.perf_counter()
        step(options.warm_up + number)
        each_s.append(time.perf_counter() - began)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    return {
        "steps": options.steps,
        "seconds": sum(each_s),
        "each_s": each_s,
        "weights_bytes": weights_bytes(model),
        "layer_bytes": max(map(weights_bytes, model.layers)),
        "reads": reads.spans,
        "allocated_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "reserved_bytes": torch.cuda.max_memory_reserved() if cuda else 0,
    }


def finish(found: dict[str, Any], options: argparse.Namespace) -> int:
    """Writes the result to the file of --json, and a line for people on stderr."""
    if options.json == "-":
        print(json.dumps(found))
    elif options.json:
        Path(options.json).write_text(json.dumps(found) + "\n")
    each_ms = 1000 * found["seconds"] / found["steps"]
    gib = found["weights_bytes"] / 2**30
    print(
        f"{gib:.2f} GiB of weights, {found['steps']} steps, {each_ms:.1f} ms each", file=sys.stderr
    )
    return 0
