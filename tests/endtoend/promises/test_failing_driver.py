"""Fail open: with a driver whose calls fail, pump never hangs and invents no errors."""

from __future__ import annotations

import json

import pytest
from job import expected
from jobs import Job

pytestmark = pytest.mark.usefixtures("policy")

SHAPE = {"buffers": 24, "mib": 4, "steps": 30, "seed": 3}
ROUNDS = 5
WORDS = [*(f"--{name}={value}" for name, value in SHAPE.items()), f"--rounds={ROUNDS}"]

OURS = [
    "cuMemPrefetchAsync_v2",
    "cuMemAdvise_v2",
    "cuStreamCreateWithPriority",
    "cuCtxGetStreamPriorityRange",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuFuncGetParamInfo",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuMemGetInfo_v2",
]
"""Calls that the shim makes itself; their failures must not reach the program."""


@pytest.fixture(scope="module")
def right() -> str:
    return expected(**SHAPE, replays=ROUNDS)


@pytest.mark.parametrize("name", OURS)
def test_a_call_of_ours_that_always_fails_costs_time_only(job: Job, right: str, name: str) -> None:
    # Fails from the second call, so that the program's own first call succeeds.
    failures = ",".join([f"{name}:{n}:999" for n in range(2, 30)])
    done = job.run(*WORDS, "--sleep-ms=0.5", env={"PUMP_VIRTUAL_FAIL": failures})
    if "error" in done.stdout:
        assert "CUDA_ERROR_UNKNOWN" in done.stdout, "the driver's own answer, unchanged"
    else:
        assert done.stdout.split() == ["running", right], done.stderr


@pytest.mark.parametrize(
    "name",
    ["cuMemAllocManaged", "cuLaunchKernel", "cuMemcpyHtoD_v2", "cuMemFree_v2", "cuInit"],
)
def test_an_error_of_the_driver_reaches_the_program_unchanged(job: Job, name: str) -> None:
    done = job.run(*WORDS, env={"PUMP_VIRTUAL_FAIL": f"{name}:1:719"})
    assert done.returncode == 9
    assert "error CUDA_ERROR_LAUNCH_FAILED" in done.stdout


def test_the_first_call_of_each_function_may_fail(job: Job, right: str) -> None:
    """Fails the first call of each function of the job or the shim, one function per run."""
    assert job.run(*WORDS).returncode == 0
    called = json.loads(job.report.read_text())["calls"]
    assert len(called) > 25
    wrong = {}
    for name in called:
        done = job.run(*WORDS, env={"PUMP_VIRTUAL_FAIL": f"{name}:1:999"}, timeout=30)
        words = done.stdout.split()
        told = done.returncode == 9 and words[-2:] == ["error", "CUDA_ERROR_UNKNOWN"]
        if name == "cuDeviceGetAttribute":  # pump's own query: can this device page memory?
            told = (
                words[-1:] == ["CUDA_ERROR_OUT_OF_MEMORY"] and "cannot page" in job.log.read_text()
            )
        if not told and words != ["running", right] and name != "cuGetProcAddress_v2":
            wrong[name] = (done.returncode, done.stdout, done.stderr)
    assert wrong == {}
