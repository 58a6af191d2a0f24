"""Many threads on the virtual driver under sanitizers, its sources linked directly."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import virtual_driver as virtual

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("mode", ["timing", "compute"])
def test_six_threads_that_do_everything_at_once_find_no_race(
    sanitizer: str, mode: str, tmp_path: Path
) -> None:
    program = virtual.folder() / f"stress-{sanitizer}"
    if not program.exists():
        flags = ("-std=gnu11", "-D_GNU_SOURCE", "-g1", "-O1", "-rdynamic")
        sources = (virtual.HERE / "client_stress.c", *virtual.sources())
        libraries = ("-lpthread", "-lm", "-ldl")
        virtual.compile_c(
            program, *flags, f"-fsanitize={sanitizer}", *virtual.INCLUDES, *sources, *libraries
        )
    ptx, report = tmp_path / "touch.ptx", tmp_path / "report.json"
    ptx.write_text(PTX)
    done = subprocess.run(
        [program, ptx],
        env=virtual.environment(
            mode,
            24 * virtual.MIB,
            PUMP_VIRTUAL_REPORT=str(report),
            PUMP_VIRTUAL_DELAY_US="200:5",
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Sanitizer" not in done.stderr
    written = json.loads(report.read_text())
    assert written["violations"] == 0
    assert written["evictions"] > 0, "the threads need more than the card has"
