"""Read duplication: memory that was only read is evicted without a copy, and wrong guesses do not
change bits (docs/decisions/0051-read-duplication.md)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pumpds
import pytest
from jobs import MIB, Job
from layers import check_end, report_of

WRITES = 0.0, 0.02, 0.2, 1.0
SEEDS, LONG_SEEDS = 6, 1000


SLOW = ("--virtual-set", "kernels.default_gbps=8", "--virtual-set", "copies=modelled")


def served(job: Job, *run: str, **env: str) -> dict[str, Any]:
    """Returns the report of a run that first waits for its worker. Its kernels are slow enough that
    even on a busy machine evicted blocks return in time."""
    hold = job.folder / "hold"
    hold.touch()
    words = "--mib=16", "--tokens=40", "--sleep-ms=10", f"--hold={hold}"
    process = job.start(*words, memory_mib=192, mode="timing", run=(*SLOW, *run), env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers), 60)
    hold.unlink()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return report_of(job)


def test_what_is_only_read_leaves_without_a_copy(layers: Job, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    counters = served(layers, PUMP_SUMMARY=str(summary))["counters"]
    assert counters["clean_bytes"] > 128 * MIB
    moved_bytes = json.loads(summary.read_text())["shim"]["moved_to_host_bytes"]
    asked_bytes = counters["prefetch_out_blocks"] * 2 * MIB
    assert moved_bytes <= asked_bytes, "what leaves without a copy is not moved"


@pytest.mark.parametrize(
    ("run", "given"),
    [
        ((), True),
        (("--config", "no_duplicates.toml"), False),
        (("--policy", "planned"), True),
        (("--virtual-set", "link.duplex_in=0.95"), False),
        (("--virtual-set", "uvm.advise_block_us=30"), False),
    ],
)
def test_advice_is_given_where_it_pays_alone(
    layers: Job, run: tuple[str, ...], given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no_duplicates.toml").write_text('[job]\nduplicates = "off"\n')
    assert ("cuMemAdvise_v2" in served(layers, *run)["calls"]) == given


def test_a_driver_that_refuses_the_advice_is_asked_once(layers: Job) -> None:
    failures = ",".join(f"cuMemAdvise_v2:{n}:801" for n in range(1, 40))
    report = served(layers, PUMP_VIRTUAL_FAIL=failures)
    assert 1 <= report["calls"]["cuMemAdvise_v2"] <= 4, "each thread may have begun one"
    assert report["counters"]["clean_bytes"] == 0
    assert layers.log.read_text().count("the driver refuses READ_MOSTLY") == 1


def guessed(layers: Job, seed: int) -> None:
    """Runs a job with random writers, failing advice calls and killed workers."""
    dice = random.Random(seed)
    words = [
        f"--seed={seed}",
        f"--writes={dice.choice(WRITES)}",
        f"--layers={dice.choice((16, 24))}",
    ]
    words += [f"--tokens={dice.randrange(4, 12)}", f"--mib={dice.choice((2, 4))}"]
    words += [f"--sleep-ms={dice.choice((0, 5))}"]
    failing = sorted(dice.sample(range(2, 200), dice.choice((0, 0, 3, 40))))
    failures = ",".join(f"cuMemAdvise_v2:{n}:999" for n in failing)
    env = {"PUMP_VIRTUAL_FAIL": failures} if failures else {}
    env["PUMP_DUPLICATES"] = "on"
    run = ("--policy", "window")
    process = layers.start(*words, memory_mib=dice.choice((24, 48)), run=run, env=env)
    check_end(layers, process, words, dice)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_wrong_guesses_cost_no_bit(layers: Job, seed: int) -> None:
    guessed(layers, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS, LONG_SEEDS))
def test_wrong_guesses_cost_no_bit_in_a_campaign(layers: Job, seed: int) -> None:
    guessed(layers, seed)
