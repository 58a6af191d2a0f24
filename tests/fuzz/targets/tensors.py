"""JSON traces: parses a trace, makes a program from the trace, and runs a short simulation."""

from __future__ import annotations

import gzip
import json
import lzma
from typing import Any

from pump_lab.sim import tensors
from pump_lab.sim.program import ProgramError

from . import one_line


def target(data: bytes) -> None:
    try:
        trace = tensors.parse(data, "input")
        for mapping in tensors.MAPPINGS:
            made = tensors.program(trace, mapping, 2, discard=mapping == "caching")
            assert made.operations and made.peak_bytes >= 0
    except ProgramError as error:
        one_line(error)


def seeds() -> list[bytes]:
    small, large = made(3, 4 << 20), made(12, 9 << 20)
    odd: list[Any] = [[], {}, {**small, "tensors": 5}, {**small, "kernels": [{}]}]
    texts = [json.dumps(one).encode() for one in (small, large, *odd)]
    return [*texts, gzip.compress(texts[0], mtime=0), lzma.compress(texts[1])]


def made(count: int, length_bytes: int) -> dict[str, Any]:
    """Returns a chain of kernels, each from one tensor to the next."""
    tensors_of = [{"id": i, "bytes": length_bytes, "persistent": i % 3 == 0} for i in range(count)]
    kernels = [
        {"name": f"k{i}", "duration_us": 50.0, "reads": [i], "writes": [i + 1]}
        for i in range(count - 1)
    ]
    return {"model": "m", "batch": 4, "tensors": tensors_of, "kernels": kernels}
