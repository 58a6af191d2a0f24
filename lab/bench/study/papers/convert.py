"""Makes a trace from the output of the compiler of G10's artifact.

Usage: convert.py RESULTS NETWORK BATCH > TRACE.json

RESULTS is the folder results/ of github.com/platformxlab/G10 after a run of its program (src/gpg
configs/.../BATCH-sim_prefetch_lru.config). The program may be stopped once it has written
statistics/prefetch_guide.config. Kernels and tensors come from statistics/kernels.config. Durations
come from cudnnBATCH.txt (without faults), cudnnBATCHInputPF.txt and cudnnBATCHPF.txt.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TENSOR = re.compile(r"tensor(\d+) Is weight \(global\)\?: ([01]), Size in byte: (\d+)")
KERNEL = re.compile(r"Kernel ID: (\d+), Name: (\w+)")
LISTS = {"Input Tensors:": "reads", "Output Tensors:": "writes"}


def microseconds(file: Path) -> list[float]:
    """Returns the times of lines "NUMBER TIME ms" in microseconds."""
    rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
    return [round(float(row[1]) * 1000, 3) for row in rows]


def trace(results: Path, network: str, batch: int) -> dict[str, object]:
    """Returns the trace, in the format of pump_lab.sim.tensors. Raises OSError, and ValueError if
    lists and durations differ in length."""
    folder = results / network
    text = (folder / f"{batch}-prefetch_lru" / "statistics" / "kernels.config").read_text()
    tensors: dict[int, dict[str, object]] = {}
    kernels: list[dict[str, object]] = []
    numbers: list[int] = []
    for line in text.splitlines():
        if found := KERNEL.match(line):
            kernels.append({"name": found[2], "duration_us": 0.0, "reads": [], "writes": []})
        elif line in LISTS:
            numbers = kernels[-1][LISTS[line]]  # type: ignore[assignment]
        elif found := TENSOR.match(line):
            number = int(found[1])
            numbers.append(number)
            row = {"id": number, "bytes": int(found[3]), "persistent": found[2] == "1"}
            tensors[number] = row
    ways = {
        "duration_us": f"cudnn{batch}.txt",
        "uvm_input_fault_duration_us": f"cudnn{batch}InputPF.txt",
        "uvm_all_fault_duration_us": f"cudnn{batch}PF.txt",
    }
    for key, name in ways.items():
        for kernel, duration in zip(kernels, microseconds(folder / name), strict=True):
            kernel[key] = duration
            for uses in LISTS.values():
                kernel[uses] = sorted(kernel[uses])  # type: ignore[call-overload]
    return {
        "model": network,
        "batch": batch,
        "source": "G10 artifact (platformxlab/G10, MICRO 2023), compiled by its gpg; durations"
        " profiled on A100-40GB",
        "tensors": [tensors[number] for number in sorted(tensors)],
        "kernels": kernels,
    }


if __name__ == "__main__":
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit(str(__doc__))
    try:
        made = trace(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    except (OSError, ValueError) as error:
        sys.exit(f"convert.py: {error}")
    json.dump(made, sys.stdout, separators=(",", ":"))
