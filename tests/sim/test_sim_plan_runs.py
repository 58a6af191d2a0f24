"""Plans are rehearsed by runs of blocks: the same come out as block by block."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pump import paths

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROOMS = ("daemon/core", "virtual/gpu", "virtual/simulate")


def build(folder: Path) -> Path:
    """A folder like pump/_lib, whose pump_core compares (plan_by_blocks.c)."""
    headers = Path(paths.library("include/model.h")).parent
    shutil.copytree(headers, folder / "include")
    sources = [ROOT / "shim/execute/adapt.c"]
    sources += [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.c"))]
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE"]
    command += ["-DPUMP_CORE_EXPORT", "-fvisibility=hidden", "-fno-strict-aliasing", "-fPIC"]
    command += ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    command += ["-shared", "-Wl,--wrap=model_rehearse", f"-I{ROOT / 'shim/include'}"]
    command += [f"-I{ROOT}", *map(str, sources), str(HERE / "plan_by_blocks.c")]
    command += ["-lm", "-o", str(folder / "libpump_core.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_all_plans_are_the_same_as_block_by_block(tmp_path: Path) -> None:
    library = build(tmp_path / "_lib")
    done = subprocess.run(
        [sys.executable, str(HERE / "compare_plans.py")],
        env={**os.environ, "PUMP_LIB_DIR": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts = re.search(r"(\d+) plans, (\d+) slices, (\d+) blocks", done.stderr)
    assert counts is not None, done.stderr[-2000:]
    plans, slices, blocks = map(int, counts.groups())
    assert plans > 10_000 and blocks > slices > plans
