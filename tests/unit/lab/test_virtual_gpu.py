"""The environment of a job under --virtual."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pump.cli.support.environment import Parts, for_job
from pump.config.settings import JobConfig
from pump_lab.cli.virtual import STAND_INS, prepare
from pump_lab.paths import library

SHIM = "/libpump.so"
DRIVER = str(Path(library("virtual/libcuda.so.1")).parent)
LIBRARIES = [library(f"virtual/runtime/{name}") for name in STAND_INS]


def job(environ: Mapping[str, str], **settings: str) -> dict[str, str]:
    config = JobConfig(command=["x"], virtual="a100-pcie4", virtual_settings=settings)
    return for_job(config, Parts(SHIM, prepare(config)), environ)


def test_the_virtual_driver_comes_first_and_once() -> None:
    found = job({"LD_LIBRARY_PATH": f"/x::{DRIVER}:/y"})
    assert found["LD_LIBRARY_PATH"] == f"{DRIVER}:/x:/y"
    assert "CUDA_VISIBLE_DEVICES" not in found


@pytest.mark.parametrize("shared", [True, False])
def test_only_a_virtual_gpu_that_processes_share_has_neighbours(shared: bool) -> None:
    found = job({"PUMP_NEIGHBOURS": "none"}, **({"shared": "lab"} if shared else {}))
    assert found.get("PUMP_NEIGHBOURS") == (None if shared else "none")
    assert ("card=" in found["PUMP_VIRTUAL_PROFILE"]) == (not shared), "a number of its own"


def test_stand_ins_follow_the_shim_and_come_once() -> None:
    computing = LIBRARIES[1]
    for environ in (
        {"LD_PRELOAD": "/mine.so", "PUMP_VIRTUAL_KERNELS": "/k.so"},
        {"LD_PRELOAD": ":".join([SHIM, *LIBRARIES, "/mine.so"])}
        | {"PUMP_VIRTUAL_KERNELS": f"{computing}:/k.so"},
    ):
        found = job(environ)
        assert found["LD_PRELOAD"].split(":") == [SHIM, *LIBRARIES, "/mine.so"]
        assert found["PUMP_VIRTUAL_KERNELS"].split(":") == ["/k.so", computing]
