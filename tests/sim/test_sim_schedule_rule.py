"""The schedule equals the one that its definition makes block by block (schedule_by_blocks.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from schedule_by_blocks import Block, Bounds, Device, Operation, Schedule, Use

from pump.base import paths
from pump_lab.paths import library

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def build(folder: Path) -> Path:
    """Builds a folder like pump/_lib, and links the simulator next to it. Its pump_core hands each
    schedule over (made_schedules.c)."""
    shutil.copytree(Path(paths.library("include/model.h")).parent, folder / "include")
    beside = folder.parents[1] / "pump_lab"
    beside.mkdir()
    (beside / "_lib").symlink_to(Path(library("libpump_lab.so")).parent)
    sources = sorted((ROOT / "daemon/core").rglob("*.c"))
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE"]
    command += ["-DPUMP_ASSERTIONS"]
    command += ["-fvisibility=hidden", "-fno-strict-aliasing", "-fPIC"]
    command += ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    command += ["-shared", "-Wl,-soname,libpump_core.so", "-Wl,--wrap=schedule_make"]
    command += [f"-I{ROOT / 'shim/include'}", f"-I{ROOT}", *map(str, sources)]
    command += [str(HERE / "made_schedules.c"), "-lm", "-o", str(folder / "libpump_core.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_all_schedules_are_the_same_as_block_by_block(tmp_path: Path) -> None:
    """The programs are random, and each part of the rule matters in some of them."""
    folders = [str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")]
    here = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    done = subprocess.run(
        [sys.executable, str(HERE / "compare_schedules.py"), "30", "12"],
        env={**os.environ, **here, "PUMP_LIB_DIR": str(build(tmp_path / "pump/_lib"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    happened = json.loads(done.stdout)
    assert happened["schedules"] > 300 and happened["blocks"] > 2 * happened["entries"]
    assert min(happened.values()) > 0, happened


def test_what_leaves_is_paced_by_what_comes_in_front_of_what_takes_its_room() -> None:
    """Pacing ends at an arrival that waits for an operation. It counts bytes, whichever block
    leaves."""
    first, *others = map(Block, range(0, 20, 2))
    there, away = [first, *others[:3]], others[3:]
    bounds = Bounds(slices=(1, 1), pace_bytes=2 << 20)

    def paces(operations: list[Operation]) -> list[int]:
        device = Device(4, there=4, away=6, idle=there, ended_bytes=10 << 20)
        schedule = Schedule(device, operations, len(operations), bounds)
        return [one.wait.ended_bytes >> 21 for one in schedule.departures]

    coming = [Use(block, "away") for block in away]
    assert paces([Operation(1, coming[:4])]) == [4, 5, 6, 7]
    freed = Operation(1, coming[:2], frees=1)
    assert paces([freed, Operation(2, coming[2:4])]) == [4, 5, 0]


def test_the_example_of_the_documentation() -> None:
    """docs/schedule.md: a1 a2 b1 b2 c1 c2 d1 are blocks 0 to 6, each an entry of its own."""
    a1, a2, b1, b2, c1, c2, d1 = map(Block, range(7))
    operations = [
        Operation(1, [Use(a1, "there", 6), Use(a2, "there", 6)]),
        Operation(2, [Use(b1, "there", 4), Use(b2, "there")], frees=1),
        Operation(3, [Use(c1, "away", 5), Use(c2, "away")]),
        Operation(4, [Use(b1), Use(d1, "away")]),
        Operation(5, [Use(c1)]),
        Operation(6, [Use(a1), Use(a2)]),
    ]
    schedule = Schedule(Device(5, there=4, away=3), operations, 6, Bounds(slices=(1, 1)))
    arrivals = [
        (one.first, one.need, one.wait.seq, one.wait.left_bytes >> 21) for one in schedule.arrivals
    ]
    assert arrivals == [(4, 3, 0, 0), (5, 3, 2, 0), (6, 4, 0, 1)]
    assert [(one.first, one.wait.seq) for one in schedule.departures] == [(0, 1)]
    assert schedule.horizon == 6 and not schedule.short_of_ops


def test_what_is_needed_hardly_later_does_not_leave() -> None:
    """Operation 4 lacks a block, three ahead. A block needed at 5 stays; one needed at 6 leaves."""
    blocks = [Block(number) for number in range(3)]
    for again, leaves in ((5, []), (6, [0])):
        operations = [
            Operation(1, [Use(blocks[0], "there", again)]),
            Operation(2, [Use(blocks[1], "there", 4)]),
            Operation(4, [Use(blocks[1]), Use(blocks[2], "away")]),
            Operation(again, [Use(blocks[0])]),
        ]
        schedule = Schedule(Device(2, there=2, away=1), operations, 4, Bounds(slices=(1, 1)))
        assert [one.first for one in schedule.departures] == leaves
        assert len(schedule.arrivals) == len(leaves)
