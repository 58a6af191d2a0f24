"""Link: the share of the link's rate that executors reach, one way and both ways at once.

DESIGN
  The shim's executors move a gigabyte each way on the virtual GPU, round after round. They are fed
  by link_program.c in place of a worker. Executors adapt to the time of slices, so the first rounds
  do not count. Slices are as long as the worker's (8 MiB).

    `link.in_share`    Share of the rate of prefetches to the GPU, without other transfers.
    `link.out_share`   Share of the rate to the host.
    `link.both_share`  Share of both rates together, each times the profile's duplex share. The
                       model slows one transfer of each pair that meets, so the share may exceed 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import (
    ROOT,
    Options,
    Row,
    Tools,
    child,
    compile_c,
    cpus,
    interval,
    median,
    pin,
    virtual_facts,
)

PROFILE = "a100-pcie4"
MEMORY = "8GiB"
SLICE_MIB = 8
CPUS = 4
ROUNDS_BEFORE = 3
ROUNDS, ROUNDS_QUICK = 20, 3

SOURCES = ("progress/*.c", "execute/*.c", "link/*.c")
SOURCES += ("base/log.c", "base/mapping.c", "base/settings.c", "base/thread.c")
SOURCES += ("memory/claims_of_others.c", "memory/contexts.c", "memory/host_claims.c")
SOURCES += ("memory/drain.c", "memory/host_memory.c", "memory/limit.c", "memory/share.c")
SOURCES += ("life/threads.c", "life/summary.c", "life/summary_file.c", "life/verdict.c")
SOURCES += ("life/last_line.c",)
SOURCES += ("life/job_end.c",)
"""Sources in shim/: executors and their dependencies; hooks_absent.h replaces the rest."""


def build(tools: Tools) -> Path:
    """Builds the program from the shim's own sources."""
    shim = tools.root / "shim"
    source = ROOT / "lab" / "bench" / "load_generators" / "link_program.c"
    sources = [source, *(file for name in SOURCES for file in sorted(shim.glob(name)))]
    folders = [f"-I{tools.root / 'tests' / 'c'}"]  # for hooks_absent.h
    return compile_c(tools, "link_program", sources, *folders, "-pthread", "-ldl")


def phases(tools: Tools, rounds: int) -> list[dict[str, Any]]:
    """Returns the program's results for each phase: rates in GB/s and threads."""
    from pump_lab import paths, profiles

    program = build(tools)
    driver = paths.library("virtual/libcuda.so.1")
    text = child(
        [str(program), driver, str(SLICE_MIB), str(rounds)],
        {"PUMP_VIRTUAL_PROFILE": profiles.load(PROFILE).flatten({"memory": MEMORY})},
    )
    return [json.loads(line) for line in text.splitlines()]


def run(options: Options) -> Iterator[Row]:
    """Yields the three shares."""
    from pump_lab import profiles

    rounds = ROUNDS_BEFORE + (ROUNDS_QUICK if options.quick else ROUNDS)
    with pin(*cpus()[-CPUS:]):
        found = [p for p in phases(options.tools, rounds) if p["round"] > ROUNDS_BEFORE]
    facts = virtual_facts(PROFILE, "timing")
    profile = profiles.load(PROFILE)
    rates = {
        "in": float(profile.values["link.prefetch_h2d_gbps"]),
        "out": float(profile.values["link.copy_d2h_gbps"]),
    }
    rates["both"] = sum(
        float(profile.values[f"link.duplex_{way}"]) * rates[way] for way in ("in", "out")
    )
    for phase, rate in rates.items():
        mine = [p for p in found if p["phase"] == phase]
        shares = [(p["in_gbps"] + p["out_gbps"]) / rate for p in mine]
        yield Row(
            f"link.{phase}_share",
            median(shares),
            "ratio",
            interval=interval(shares),
            in_threads=median([p["in_threads"] for p in mine]),
            out_threads=median([p["out_threads"] for p in mine]),
            **facts,
        )
