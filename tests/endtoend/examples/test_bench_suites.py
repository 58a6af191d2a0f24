"""Each suite of lab/bench/ runs with --quick; the tests do not check its measured values."""

from __future__ import annotations

import shutil
from pathlib import Path

import harness
import pytest
from bench_rows import bench
from suites import path as suite_path
from suites import policy as suite_policy
from suites import virtual as suite_virtual

from pump_lab.sim import wakeups

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_the_virtual_suite_gives_every_row_with_what_it_must_carry(tmp_path: Path) -> None:
    rows = bench(tmp_path, "virtual")
    names = {f"virtual.{program}.{policy}.speedup" for program in ("train", "sweep", "gather")
             for policy in ("window", "planned", "demand")}  # fmt: skip
    names |= {f"virtual.{program}.{policy}.of_floor" for program in ("train", "sweep")
              for policy in ("window", "planned", "demand")}  # fmt: skip
    names |= {f"virtual.{program}.{policy}.over_demand" for program in ("train", "sweep", "gather")
              for policy in ("window", "planned")}  # fmt: skip
    change = {f"virtual.change.planned.{what}" for what in ("relearned", "worst_step", "steps")}
    alone = {"bench.machine", "virtual.sync.window", "virtual.stops.planned"}
    assert set(rows) == {*alone, *names, *change}
    (steps,) = rows["virtual.change.planned.steps"]
    assert len(steps["each_s"]) == len(steps["demand_each_s"]) == 24
    assert [row["sync_every"] for row in rows["virtual.sync.window"]] == ["iteration", "launch"]
    for name in names:
        (row,) = rows[name]
        assert (row["mode"], row["time_scale"], row["oversubscription"]) == ("timing", 1.0, 1.5)
        assert len(row["profile_hash"]) == 12
        assert row["h2d_bytes"] > 0 and row["pairs"] == 1
    assert rows["virtual.sweep.window.of_floor"][0]["value"] < 1.05, "below the floor is cheating"


def test_the_shared_suite_gives_every_row_of_two_jobs_on_one_card(tmp_path: Path) -> None:
    rows = bench(tmp_path, "shared", "--", "--program", "sweep")
    names = {f"shared.sweep.{part}" for part in ("together", "priority", "priority_naive")}
    assert set(rows) == {"bench.machine", *names}
    (row,) = rows["shared.sweep.together"]
    assert (row["mode"], row["share"], row["pairs"]) == ("timing", 0.75, 1)
    assert row["h2d_bytes"] > 0, "a budget also binds a job that is alone"
    assert row["overlap"] <= 1


def test_the_lost_suite_tells_the_time_lost_beside_a_neighbour_and_the_truth(
    tmp_path: Path,
) -> None:
    rows = bench(tmp_path, "lost", "--", "--only", "two_jobs", "--record")
    assert set(rows) == {"bench.machine", "lost.two_jobs"}
    (row,) = rows["lost.two_jobs"]
    assert (row["mode"], row["oversubscription"], row["runs"]) == ("timing", 1.7, 1)
    assert 0 <= row["least_s"] <= row["value"] <= row["most_s"] and row["most_s"] > 0
    assert row["each_s"][0][1] == pytest.approx(row["baseline"])


def test_the_path_suite_gives_each_second_and_each_faulted_block_one_cause(tmp_path: Path) -> None:
    rows = bench(tmp_path, "path")
    (whole,) = rows["path.seconds"]
    assert sum(row["value"] for row in rows["path.time"]) == pytest.approx(whole["value"], rel=1e-3)
    waited = next(row["value"] for row in rows["path.time"] if row["case"] == "faults")
    waits = sum(row["wait_s"] for row in rows["path.faults"])
    assert waits == pytest.approx(waited, rel=1e-3, abs=1e-6), "rows are rounded"
    moved = {row["case"]: row["value"] for row in rows["path.moved"]}
    assert moved["prefetched, used"] > 0
    assert {"program", "worker"} < {row["case"] for row in rows["path.processor"]}


@pytest.mark.parametrize("words", [["--program", "train"], ["--steps", "8", "8"], ["--steps", "1"]])
def test_a_bad_option_of_the_path_suite_ends_with_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        suite_path.parse(words)
    assert ended.value.code == 2


@needs_compiler
def test_the_ring_suite_loses_nothing_while_producers_wait(tmp_path: Path) -> None:
    rows = bench(tmp_path, "ring")
    assert [row["threads"] for row in rows["ring.records_per_s"]] == [1, 2, 4]
    for row in rows["ring.records_per_s"]:
        assert row["lost"] == 0 and row["extents_per_operation"] == 4
        assert row["records_per_s"] == pytest.approx(2 * row["value"], rel=1e-5)
    assert all(0 <= row["value"] <= 100 for row in rows["ring.flood.dropped"])


@needs_compiler
def test_the_link_suite_builds_its_program_and_moves_both_ways(tmp_path: Path) -> None:
    rows = bench(tmp_path, "link")
    assert len(rows) > 1, rows
    assert all(row["value"] > 0 for name in rows if name != "bench.machine" for row in rows[name])


def test_the_policy_suite_measures_a_window_that_is_kept_full_and_moves(tmp_path: Path) -> None:
    rows = bench(tmp_path, "policy")
    figures = rows["policy.us_per_operation"]
    assert [(row["case"], row["wake"]) for row in figures] == list(suite_policy.CASES)
    for row in figures:
        assert (row["window"], row["blocks"], row["oversubscription"]) == (1000, 20000, 1.5)
        assert row["blocks_in_per_operation"] > 1
    assert {row["ticks_per_operation"] for row in figures if row["wake"] == "marker"} == {1 / 16}
    for part in ("read", "follow", "rest"):
        parts = rows[f"policy.us_per_operation.{part}"]
        assert len(parts) == len(figures) and all(0 < row["share"] < 1 for row in parts)


def test_a_run_that_pump_did_not_serve_to_its_end_is_no_measurement() -> None:
    result = "pump: lost about 9 % of 2.20 s to memory at 1.50x the budget"
    good = f"{result}: prefetches arrived too late\n"
    suite_virtual.check_presence(good)
    for bad in (
        "",
        "pump: everything fitted on the GPU, so pump did nothing: peak 8 MiB of 62 MiB\n",
        f"{result}: no pumpd served this process\n",
        f"{result}: pumpd's worker died 1 time(s)\n",
    ):
        with pytest.raises(harness.MeasurementError, match="did not serve"):
            suite_virtual.check_presence(bad)


@pytest.mark.parametrize("words", [["--ratio=0.5"], ["--only=nothing"], ["--deep"]])
def test_a_bad_option_of_the_virtual_suite_ends_with_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        suite_virtual.parse(words)
    assert ended.value.code == 2


def test_the_sim_suite_gives_the_study_the_agreement_and_its_own_speed(tmp_path: Path) -> None:
    rows = bench(tmp_path, "sim")
    study = {f"sim.study.{name}" for name in
             ("naive", "naive_serial", "naive_discard", "window50", "window50_again", "window1000",
              "bound_keeping", "bound_dead_known", "bound_touched")}  # fmt: skip
    planned = {f"sim.planned.{name}" for name in
               ("gain", "gain_serial", "window_gain", "window_gain_serial", "of_floor", "of_parts",
                "of_parts_budget", "of_touched", "h2d", "h2d_of_memory", "over_window",
                "over_window50")}  # fmt: skip
    jitter = {f"sim.jitter.{name}{of}" for of in ("", ".all") for name in
              ("event_over_calm", "fixed_over_event", "fixed_each_way_over_event",
               "fixed_as_issued_over_event")}  # fmt: skip
    agrees = {f"sim.agrees.{program}.{policy}" for program in ("sweep", "train")
              for policy in ("naive", "window")}  # fmt: skip
    latency = {f"sim.latency.{policy}" for policy in ("window", "planned", "stopped")}
    train = {f"sim.train.{policy}.of_parts" for policy in ("window", "planned")}
    assert set(rows) == {
        "bench.machine",
        "sim.us_per_operation",
        *study,
        *agrees,
        *planned,
        *jitter,
        *latency,
        *train,
    }
    assert rows["sim.study.naive"][0]["value"] < rows["sim.study.naive_serial"][0]["value"]
    cases = {row["case"] for row in rows["sim.us_per_operation"]}
    assert cases == {"naive", "window", "window+discard", "planned", "planned+discard"}


@needs_compiler
def test_the_learner_suite_says_what_is_predicted_and_what_it_costs(tmp_path: Path) -> None:
    rows = bench(tmp_path, "learner")
    assert len(rows["learner.right"]) == len(rows["learner.misled"]) >= 4
    shares = [row["value"] for name in ("right", "misled", "accesses")
              for row in rows[f"learner.{name}"]]  # fmt: skip
    assert all(0 <= share <= 1 for share in shares)
    cases = {row["case"] for row in rows["learner.us_per_operation"]}
    assert {"steady", "streams", "noise", "kinds"} < cases


def test_the_service_suite_gives_every_row(tmp_path: Path) -> None:
    rows = bench(tmp_path, "service")
    assert rows["service.latency_ms"][0]["clients"] == 64
    assert rows["service.renewed_s"][0]["value"] > 0
    (flood,) = rows["service.flood"]
    assert flood["value"] > 0 if flood["value"] is not None else flood["why"]
    assert {"pumpd_mib", "pumpd_warm_mib", "pumpd_worker_mib"} <= set(rows["service.pss_mib"][0])
    names = ("lease_ms", "idle_cpu", "top_cpu", "pump_run")
    assert all(f"service.{name}" in rows for name in names)


@needs_compiler
def test_the_latency_suite_records_wake_ups_for_the_simulator(tmp_path: Path) -> None:
    rows = bench(tmp_path, "latency", "--", "--record", str(tmp_path))
    for name, beside in (("idle", 0), ("busy", 2)):
        found = wakeups.load(str(tmp_path / f"{name}.toml"))
        both = rows[f"latency.wake.{name}_us"]
        assert [(row["case"], row["beside"]) for row in both] == [
            ("worker", beside),
            ("executor", beside),
        ]
        for row, delays in zip(both, (found.worker, found.executor), strict=True):
            assert row["samples"] == 100
            assert row["max"] == pytest.approx(delays.delays_ns[-1] / 1000, rel=0.01)


@needs_compiler
def test_the_start_suite_tells_a_jobs_start_with_and_without_pump(tmp_path: Path) -> None:
    rows = bench(tmp_path, "start")
    names = ("pump_run_ms", "pump_run_cpu_ms", "cuinit_ms", "cuinit_cpu_ms", "cuinit_later_ms",
             "cuinit_recorded_ms", "pumpd_cpu_ms", "enabled_true_ms")  # fmt: skip
    assert [f"start.{name}" for name in names] == list(rows)[1:]
    assert rows["start.pump_run_cpu_ms"][0]["ratio"] > 1 and rows["start.pumpd_cpu_ms"][0]["value"]
