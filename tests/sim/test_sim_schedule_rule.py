"""The schedule is the one that its definition makes block by block (schedule_by_blocks.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from schedule_by_blocks import Block, Bounds, Device, Operation, Schedule, Use

from pump import paths

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROOMS = ("daemon/core", "virtual/gpu", "virtual/simulate")


def build(folder: Path) -> Path:
    """A folder like pump/_lib, whose pump_core hands rehearsals over (rehearsals.c)."""
    headers = Path(paths.library("include/model.h")).parent
    shutil.copytree(headers, folder / "include")
    sources = [ROOT / "shim/execute/adapt.c"]
    sources += [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.c"))]
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE"]
    command += ["-DPUMP_CORE_EXPORT", "-fvisibility=hidden", "-fno-strict-aliasing", "-fPIC"]
    command += ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    command += ["-shared", "-Wl,--wrap=schedule_make", f"-I{ROOT / 'shim/include'}"]
    command += [f"-I{ROOT}", *map(str, sources), str(HERE / "rehearsals.c")]
    command += ["-lm", "-o", str(folder / "libpump_core.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_all_schedules_are_the_same_as_block_by_block(tmp_path: Path) -> None:
    """Of programs made up at random; and each part of the rule counts in some of them."""
    folders = [str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")]
    here = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    done = subprocess.run(
        [sys.executable, str(HERE / "compare_schedules.py"), "30", "12"],
        env={**os.environ, **here, "PUMP_LIB_DIR": str(build(tmp_path / "_lib"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    happened = json.loads(done.stdout)
    assert happened["rehearsals"] > 300 and happened["blocks"] > 2 * happened["entries"]
    assert min(happened.values()) > 0, happened


def test_the_example_of_the_documentation() -> None:
    """docs/schedule.md: a1 a2 b1 b2 c1 c2 d1 are blocks 0 to 6, each an entry of its own."""
    a1, a2, b1, b2, c1, c2, d1 = map(Block, range(7))
    operations = [
        Operation(1, [Use(a1, "there", 5), Use(a2, "there", 5)]),
        Operation(2, [Use(b1, "there", 4), Use(b2, "there")], frees=1),
        Operation(3, [Use(c1, "away"), Use(c2, "away")]),
        Operation(4, [Use(b1), Use(d1, "away")]),
        Operation(5, [Use(a1), Use(a2)]),
    ]
    schedule = Schedule(Device(5, there=4, away=3), operations, 5, Bounds(slices=(1, 1)))
    arrivals = [
        (one.first, one.need, one.wait.seq, one.wait.left_bytes >> 21) for one in schedule.arrivals
    ]
    assert arrivals == [(4, 3, 0, 0), (5, 3, 2, 0), (6, 4, 0, 1)]
    assert [(one.first, one.wait.seq) for one in schedule.departures] == [(0, 1)]
    assert schedule.horizon == 5 and not schedule.short_of_ops
