"""Reads in place: sparse memory stays on the host, and wrong guesses do not change bits
(docs/sparse.md)."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from host_build import build
from jobs import Job, pump_run
from layers import check_end
from places import ROOT

TABLE_MIB, MEMORY_MIB = 256, 128
SEEDS, LONG_SEEDS = 4, 1000
SHORT, LONG = 60, 300
"""Iterations. In LONG ones, even a busy machine tries the table."""


def table(
    folder: Path, *run: str, iterations: int = SHORT, mode: str = "timing", **env: str
) -> tuple[Any, Any]:
    """Reads rows of a table that exceeds the memory; returns the program's result and the virtual
    GPU's report."""
    result, report = folder / "result.json", folder / "report.json"
    script = str(ROOT / "examples" / "embedding_bags.py")
    words = ["--tables=1", f"--table-mib={TABLE_MIB}", "--bags=64", f"--iterations={iterations}"]
    words += ["--sync-every-step", f"--json={result}"]
    settings = [f"--virtual-set=memory={MEMORY_MIB}MiB", f"--virtual-set=mode={mode}"]
    env |= {"PUMP_VIRTUAL_KERNELS": str(build()), "PUMP_VIRTUAL_REPORT": str(report)}
    done = pump_run("-v", *settings, *run, "--", sys.executable, script, *words, **env)
    found = json.loads(report.read_text())
    assert found["violations"] == 0, found["violations_by_check"]
    line = f"kernels read allocations of up to {TABLE_MIB} MiB in place on the host"
    assert line not in done.stderr or found["counters"]["h2d_remote_bytes"] > 0
    assert line in done.stderr or iterations < LONG
    return json.loads(result.read_text()), found


def to_gpu(report: dict[str, Any]) -> int:
    """Returns the bytes that reached the GPU, migrated or read in place."""
    ways = "demand", "prefetch", "remote"
    return sum(int(report["counters"][f"h2d_{way}_bytes"]) for way in ways)


def test_rows_of_a_table_are_read_in_place_instead_of_migrating_it(tmp_path: Path) -> None:
    _, moved = table(tmp_path)
    assert moved["counters"]["h2d_remote_bytes"] == 0
    for placement in ("remote", "auto"):
        _, stays = table(tmp_path, f"--placement={placement}", iterations=LONG)
        assert stays["counters"]["h2d_remote_bytes"] > 0
        assert to_gpu(stays) / LONG < to_gpu(moved) / SHORT / 2


def test_reads_in_place_give_the_same_bits(tmp_path: Path) -> None:
    plain, _ = table(tmp_path, mode="compute")
    stays, report = table(tmp_path, "--placement=remote", mode="compute")
    assert report["counters"]["h2d_remote_bytes"] > 0
    assert plain["result_sha256"] == stays["result_sha256"]


def test_a_driver_that_refuses_the_advice_migrates(tmp_path: Path) -> None:
    failures = ",".join(f"cuMemAdvise_v2:{n}:801" for n in range(1, 40))
    _, report = table(tmp_path, "--placement=remote", PUMP_VIRTUAL_FAIL=failures)
    assert report["counters"]["h2d_remote_bytes"] == 0
    assert report["calls"]["cuMemAdvise_v2"] > 0


def guessed(layers: Job, seed: int) -> None:
    """Reads and writes dense layers in place, with failing advice calls and killed workers."""
    dice = random.Random(seed)
    words = [f"--seed={seed}", f"--writes={dice.choice((0.0, 0.2, 1.0))}", "--layers=3"]
    words += [f"--tokens={dice.randrange(4, 10)}", "--mib=64", f"--sleep-ms={dice.choice((0, 5))}"]
    failing = sorted(dice.sample(range(1, 30), dice.choice((0, 0, 1, 5))))
    failures = ",".join(f"cuMemAdvise_v2:{n}:999" for n in failing)
    env = {"PUMP_VIRTUAL_FAIL": failures} if failures else {}
    run = ("--placement", dice.choice(("auto", "remote", "remote")), "--policy", "window")
    process = layers.start(*words, memory_mib=dice.choice((80, 144)), run=run, env=env)
    check_end(layers, process, words, dice)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_wrong_guesses_cost_no_bit(layers: Job, seed: int) -> None:
    guessed(layers, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS, LONG_SEEDS))
def test_wrong_guesses_cost_no_bit_in_a_campaign(layers: Job, seed: int) -> None:
    guessed(layers, seed)
