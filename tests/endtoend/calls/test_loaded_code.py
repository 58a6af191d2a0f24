"""Drivers before CUDA 12.4 do not report parameters; code that comes in all ways."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, pump_run, recording
from places import PROGRAMS, ROOT

pytest.importorskip("cuda.bindings.nvrtc")

JOB = ("--buffers=24", "--mib=4", "--steps=120")
OLD = {"PUMP_VIRTUAL_VERSION": "12020"}
LAYOUTS = PROGRAMS / "layouts_job.py"


def recorded(tmp_path: Path, program: list[str], **env: str) -> dict[str, Any]:
    """Returns the output of pump trace info for a recording of the program."""
    trace = tmp_path / "trace"
    done = pump_run(f"--record={trace}", "--", sys.executable, *program, **env)
    return {"stderr": done.stderr, **recording(trace)}


def test_launches_run_on_demand_paging_and_one_line_says_so(tmp_path: Path) -> None:
    new = recorded(tmp_path, [str(LAYOUTS), "cubin"])
    old = recorded(tmp_path, [str(LAYOUTS), "cubin"], **OLD)
    assert (new["kernels"], new["extents"]) == (3, 9)
    assert (old["kernels"], old["extents"]) == (3, 0)
    assert new["stderr"].count("demand paging") == 0
    assert old["stderr"].count("run on demand paging") == 1


@pytest.mark.parametrize("way", ["ptx", "cubin", "fatbin", "file", "library", "kernel", "unseen"])
def test_launches_reach_the_same_ranges_however_code_is_loaded(tmp_path: Path, way: str) -> None:
    found = recorded(tmp_path, [str(LAYOUTS), way])
    assert (found["kernels"], found["extents"], found["signatures"]) == (3, 9, 1)


def test_results_are_the_same_and_no_time_lost_is_made_up(job: Job) -> None:
    plain = job.run(*JOB, memory_mib=256, env={"PUMP_DISABLE": "1"})
    old = job.run(*JOB, memory_mib=32, env=OLD)
    assert old.returncode == 0, old.stderr
    assert old.stdout == plain.stdout
    assert json.loads(job.report.read_text())["violations"] == 0
    assert "time lost to memory is unknown" in old.stderr


CUT_IMAGES = """
import ctypes, mmap, sys
sys.path.append(sys.argv[1])
import image_seeds
driver, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
memory = mmap.mmap(-1, 8 * mmap.PAGESIZE)
end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + 7 * mmap.PAGESIZE
assert libc.mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) == 0
module = ctypes.c_void_p()
for name, image in image_seeds.SEEDS.items():
    whole = image + bytes(name == "ptx")
    for cut in (0, 1, len(whole) // 2, len(whole) - 3):
        at = end - len(whole) + cut
        ctypes.memmove(at, whole, len(whole) - cut)
        print(name, driver.cuModuleLoadData(ctypes.byref(module), ctypes.c_void_p(at)))
"""


def test_code_that_ends_where_memory_ends_is_refused_and_harms_no_job() -> None:
    done = pump_run("--", sys.executable, "-c", CUT_IMAGES, str(ROOT / "tests" / "fuzz"))
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert [result for _, result in told] == ["0", "200", "200", "200"] * 3
