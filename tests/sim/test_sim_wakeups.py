"""Recorded delays of wake-ups: how they are read and drawn, and how they affect a run."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from sim_programs import MS, cyclic, machine
from suites.latency import PERCENTS, Recorded, as_toml

from pump.policy.scheduled import Window
from pump_lab.abi import ffi, lib
from pump_lab.sim import wakeups
from pump_lab.sim.simulation import Daemon, Outcome, raw_delays, run
from pump_lab.sim.wakeups import Delays, WakeUps, WakeUpsError


def table(**changes: Any) -> dict[str, Any]:
    """Returns a table as parsed from a file."""
    good = {"percents": [0, 50, 100], "worker_ns": [1, 2, 30], "executor_ns": [2, 3, 40]}
    return good | changes


def simulated(late: WakeUps | None, seed: int = 0, **daemon: float) -> Outcome:
    """Simulates a program that is a few operations ahead, in sweeps over more than the memory."""
    gpu = machine(128, queue_operations=2)
    return run(
        cyclic(12, 16, 6, 2 * MS),
        replace(gpu, daemon=Daemon(wake_ups=late, seed=seed, **daemon)),
        Window(),
    )


@pytest.mark.parametrize("name", wakeups.names())
@pytest.mark.parametrize("thread", ["worker", "executor"])
def test_drawn_delays_have_the_recorded_quantiles(name: str, thread: str) -> None:
    delays = getattr(wakeups.load(name), thread)
    raw, random = raw_delays(delays), ffi.new("uint64_t *", 7)
    drawn = np.array([lib.pump_sim_delay_ns(raw, random) for _ in range(50_000)])
    assert delays.delays_ns[0] - 1 <= drawn.min() and drawn.max() <= delays.delays_ns[-1]
    for share, delay_ns in zip(delays.shares, delays.delays_ns, strict=True):
        assert (drawn <= delay_ns).mean() == pytest.approx(share, abs=0.01)
    middle = np.interp(0.97, delays.shares, delays.delays_ns)  # linear between two quantiles
    assert (drawn <= middle).mean() == pytest.approx(0.97, abs=0.005)


def test_an_idle_and_a_busy_machine_come_with_pump() -> None:
    assert wakeups.names() == ["busy", "idle"]


def test_the_same_seed_wakes_the_same_and_another_differently() -> None:
    late = wakeups.load("busy")
    one, again, other = (simulated(late, seed) for seed in (1, 1, 2))
    assert one == again
    assert one.whole.seconds != other.whole.seconds


def test_a_distribution_of_one_delay_is_that_constant() -> None:
    one = Delays((0.0, 1.0), (25_000.0, 25_000.0))
    other = Delays((0.0, 0.5, 1.0), (20_000.0, 20_000.0, 20_000.0))
    assert simulated(WakeUps("constant", one, other)) == simulated(None)


def test_slower_wake_ups_make_no_run_faster_in_the_mean() -> None:
    def seconds(factor: int) -> float:
        delays = Delays((0.0, 0.9, 1.0), (1000.0 * factor, 5000.0 * factor, 50_000.0 * factor))
        late = WakeUps("made up", delays, delays)
        return mean(simulated(late, seed).whole.seconds for seed in range(8))

    times = [seconds(factor) for factor in (1, 10, 100)]
    assert times == sorted(times) and times[-1] > 1.01 * times[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"percents": [0, 60, 50, 100]}, "ascend from 0 to 100"),
        ({"percents": [0, float("nan"), 100]}, "ascend from 0 to 100"),
        ({"percents": [1, 50, 100]}, "ascend from 0 to 100"),
        ({"percents": list(range(0, 101, 4))}, "percents"),
        ({"worker_ns": [1, 2]}, "worker_ns must have a value for each of the 3 percents, not 2"),
        ({"executor_ns": [1, 3, 2]}, "executor_ns must not descend"),
        ({"executor_ns": [-1, 3, 4]}, "executor_ns"),
        ({"worker_ns": [1, 3, float("nan")]}, "worker_ns"),
        ({"worker_ns": "fast"}, "worker_ns"),
        ({"driver_ns": [1, 2, 3]}, "driver_ns"),
    ],
)
def test_a_malformed_file_is_named_with_its_fault(changes: dict[str, Any], reason: str) -> None:
    assert wakeups.validate("mine.toml", table()).worker.shares == (0, 0.5, 1)
    with pytest.raises(WakeUpsError, match=reason) as raised:
        wakeups.validate("mine.toml", table(**changes))
    assert str(raised.value).startswith("mine.toml: ") and "\n" not in str(raised.value)


def test_a_file_is_read_by_its_path_and_an_unknown_name_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("percents = [0, 100]\nworker_ns = [1, 2]\nexecutor_ns = [3, 4.5]\n")
    assert wakeups.load(str(file)).executor == Delays((0, 1), (3, 4.5))
    with pytest.raises(WakeUpsError, match="did you mean 'busy'"):
        wakeups.load("bussy")


def test_what_the_benchmark_records_is_what_the_simulator_reads() -> None:
    delays = list(range(1000, 0, -1))
    text = as_toml(Recorded(delays, [2 * delay for delay in delays], looks=4000), beside=2)
    found = wakeups.validate("recorded", tomllib.loads(text))
    assert found.worker.shares == tuple(percent / 100 for percent in PERCENTS)
    assert found.worker.delays_ns[PERCENTS.index(50)] == pytest.approx(500, abs=1)
    assert found.executor.delays_ns[-1] == 2000
    conditions = tomllib.loads(text)["conditions"]
    assert (conditions["computing_beside"], conditions["samples"]) == (2, 1000)
