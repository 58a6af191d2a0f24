"""A preloaded hook of driver functions counts the same calls with and without pump."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs import pump_run
from places import ROOT

from pump_lab.paths import library

LOADER = ROOT / "tests" / "loader"


def build(target: Path, *words: str | Path) -> str:
    places = [f"-I{ROOT}", f"-I{ROOT / 'shim' / 'include'}"]
    subprocess.run(["cc", *places, "-o", target, *words, "-ldl"], check=True, timeout=60)
    return str(target)


def test_a_preloaded_hook_sees_every_allocation_and_pump_serves_it(tmp_path: Path) -> None:
    hook = build(tmp_path / "hook.so", "-shared", "-fPIC", LOADER / "hook.c")
    driver = library("virtual/libcuda.so.1")
    program = build(tmp_path / "program", LOADER / "client_hooked.c", driver)
    command = ("--virtual-set=memory=256MiB", "--", program, "linked")
    plain = pump_run(*command, LD_PRELOAD=hook, PUMP_DISABLE="1")
    assert plain.stdout == "failed 0\nhook: 3 allocated, 3 freed\n"
    found = pump_run(*command, LD_PRELOAD=hook)
    assert found.stdout == plain.stdout
    assert "everything fitted on the GPU" in found.stderr and "hooks" not in found.stderr
