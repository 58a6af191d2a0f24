"""The lines at exit name cases in which pump helped little, with a measured value and a remedy."""

from __future__ import annotations

import sys

import pytest
from jobs import Job, pump_run
from places import PROGRAMS


def lines(*options: str, script: str = "") -> str:
    """Returns pump's lines of a job, which runs `script` or the steps of vmm_job.py."""
    python = ["-c", script] if script else [str(PROGRAMS / "vmm_job.py")]
    return pump_run("-v", *options, "--", sys.executable, *python).stderr


def fitted(text: str) -> bool:
    """Returns whether pump reports at the end that it did nothing, and reports no obstacle."""
    return "partly" not in text and "everything fitted on the GPU, so pump did nothing" in text


ALLOCATE = """
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
for _ in range({count}):
    code, address = cu.{call}
    if int(code) != 0:
        break
"""


def test_memory_of_management_calls_is_named_with_its_remedy() -> None:
    text = lines("--virtual-set=memory=64MiB", "--keep-device=vmm")
    (line,) = [line for line in text.splitlines() if "partly" in line]
    assert "16 MiB of cuMemCreate memory cannot be paged" in line
    assert "--keep-device" in line and "expandable_segments:False" in line
    assert "cuMemCreate memory" not in lines("--virtual-set=memory=64MiB")


def test_a_little_memory_of_management_calls_is_not_worth_a_line() -> None:
    assert fitted(lines("--virtual-set=memory=512MiB", "--keep-device=vmm"))


def test_memory_that_stays_plain_is_named_where_it_was_too_much() -> None:
    small = ALLOCATE.format(count=80, call="cuMemAlloc(1 << 20)")
    text = lines("--virtual-set=memory=64MiB", script=small)
    assert "64 MiB of GPU memory cannot be paged" in text
    few = ALLOCATE.format(count=20, call="cuMemAlloc(1 << 20)")
    assert fitted(lines("--virtual-set=memory=64MiB", script=few))
    large = ALLOCATE.format(count=20, call="cuMemAlloc(2 << 20)")
    assert fitted(lines("--virtual-set=memory=64MiB", script=large))


def test_a_process_that_waited_for_operations_that_were_not_seen_is_told_so() -> None:
    unused = ALLOCATE.format(count=20, call="cuMemAlloc(2 << 20)")
    text = lines("--virtual-set=memory=32MiB", script=unused + "cu.cuCtxSynchronize()")
    assert "pump saw no launch or copy" in text and "RTLD_DEEPBIND" in text


@pytest.mark.parametrize("limit", ["", "--limit=36MiB"])
def test_a_process_that_ends_before_its_first_launch_is_not_told_of_interception(
    limit: str,
) -> None:
    """The process ends because memory is short, or for another reason."""
    unused = ALLOCATE.format(count=20, call="cuMemAlloc(2 << 20)")
    text = lines("--virtual-set=memory=32MiB", *limit.split(), script=unused)
    assert "the budget" in text and "intercepted" not in text and "RTLD_DEEPBIND" not in text
    assert ("out of memory" in text) == bool(limit)


def test_a_job_that_thrashes_beyond_help_is_told_so(job: Job) -> None:
    options = ("--buffers=24", "--mib=8", "--steps=600")
    done = job.run(*options, memory_mib=8, mode="timing")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(" the budget: this job thrashes\n")


def test_a_job_that_is_merely_helped_is_not(job: Job) -> None:
    done = job.run("--buffers=24", "--mib=4", "--steps=300", memory_mib=80, mode="timing")
    assert "thrashes" not in done.stderr and "partly" not in done.stderr
