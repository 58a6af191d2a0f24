"""pump-run puts only those preloaded libraries before pump that hook the driver's functions."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from pump.cli.support.environment import Parts, for_job
from pump.cli.support.exports import hooks_driver
from pump.config.settings import JobConfig

HOOK = "int cuMemAlloc_v2(void) { return 0; }"
OTHERS = {
    "hooks_look_ups_too": HOOK + "void *dlsym(void) { return 0; }",
    "runtime": "int cudaMalloc(void) { return 0; } int cublasCreate_v2(void) { return 0; }",
    "only_calls_it": "int cuMemAlloc_v2(void); int mine(void) { return cuMemAlloc_v2(); }",
    "keeps_it_to_itself": "static int cuInit(void) { return 0; } int (*mine)(void) = cuInit;",
}


def library(folder: Path, name: str, text: str) -> str:
    source, target = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", str(target), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return str(target)


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> str:
    return library(tmp_path_factory.mktemp("hook"), "hook", HOOK)


def test_a_library_that_defines_functions_of_the_driver_hooks_it(hook: str, tmp_path: Path) -> None:
    assert hooks_driver(hook)
    for name, text in OTHERS.items():
        assert not hooks_driver(library(tmp_path, name, text)), name


def test_what_is_no_library_hooks_nothing(hook: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("cuMemAlloc_v2")
    for name in ("pipe", "text", "missing", "."):
        assert not hooks_driver(str(tmp_path / name))
    whole, damaged = Path(hook).read_bytes(), tmp_path / "damaged"
    dice = random.Random(1)
    for _ in range(300):
        data = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else whole)
        for at in [dice.randrange(64), *(dice.randrange(len(whole)) for _ in range(20))]:
            data[at : at + 1] = [dice.randrange(256)]
        damaged.write_bytes(data)
        hooks_driver(str(damaged))


def test_pump_comes_after_hooks_and_before_all_other_libraries(hook: str) -> None:
    parts = Parts(
        "/p/libpump.so", hooks_driver=lambda path: path in (hook, "/second.so", "bare.so")
    )
    preload = {"LD_PRELOAD": f"/a.so:{hook} bare.so:/second.so"}
    job = for_job(JobConfig(command=["job"]), parts, preload)
    expected = [hook, "/second.so", "/p/libpump.so", "/a.so", "bare.so"]
    assert job["LD_PRELOAD"].split(":") == expected
