"""The stages speed and trace of the acceptance in their smallest sizes on the virtual GPU."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from acceptance import build, running, stage_speed, stage_trace
from acceptance.contract import GIB, INFO, LATE, PASS, VIRTUAL, Context, Item, Machine
from acceptance.speed import plan as speed_plan
from places import ROOT

from pump.base import paths

PROFILE = "a100-pcie4"
LIMIT_S = 150.0


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory):
    """Makes a context with its own checkout, so that no file is written into this one."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("scripts", "tests", "examples", "lab", "pump", "daemon"):
        (root / name).symlink_to(ROOT / name)
    out, work = root / "out", root / "work"
    out.mkdir()
    work.mkdir()
    machine = Machine(VIRTUAL, PROFILE, "a virtual A100", total_bytes=40 * GIB,
                      free_bytes=40 * GIB, host_available_bytes=16 * GIB)  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUMP_LIB_DIR", str(Path(paths.library("libpump.so")).parent))
        build.build(root, None, True, 60)
        yield Context(root, out, work, machine, quick=True, deadline=time.monotonic() + LIMIT_S)


def items(stage, context: Context, job: stage_speed.Job, patch) -> dict[str, Item]:
    """Runs a stage that has only this job; returns its items by name."""
    patch.setattr(stage_speed, "jobs", lambda _: [job])
    found = list(stage.run(context))
    assert len({item.name for item in found}) == len(found)
    return {item.name: item for item in found}


def test_the_speed_stage_switches_one_process_between_budgets_and_policies(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stage_speed.Job("mlp", (1.5,))
    found = items(stage_speed, context, job, monkeypatch)
    assert found["mlp.run"].status == PASS, found["mlp.run"]
    demand, window = (found[f"mlp.1_5x.{policy}"] for policy in ("demand", "window"))
    for item in (demand, window):
        assert item.status == INFO and item.reason != LATE
        assert item.values["rounds"] == speed_plan.ROUNDS
        assert item.values["seconds_per_iteration"] > 0
        assert item.values["of_floor"] > 0
        footprint = item.values["model"]["footprint_bytes"]
        assert item.values["budget_bytes"] == speed_plan.budget_bytes(footprint, 1.5)
    # Both policies evicted through pump's executors; only the window prefetched.
    assert demand.values["evicted_bytes_per_iteration"] > 0
    assert demand.values["prefetched_bytes_per_iteration"] == 0
    assert window.values["prefetched_bytes_per_iteration"] > 0
    assert "emulated" in demand.values["label"]
    assert window.values["speedup_over_demand_emulated"] > 0
    # The next call has nothing left to do.
    done = frozenset(found) - {"mlp.run"}
    assert list(stage_speed.run(dataclasses.replace(context, done=done))) == []


def test_what_fits_is_judged_by_two_processes_that_take_turns(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = running.start

    def counted(*words: Any, **more: Any) -> running.Program:
        started.append(more["pump"])
        return start(*words, **more)

    monkeypatch.setattr(running, "start", counted)
    found = items(stage_speed, context, stage_speed.Job("mlp", ()), monkeypatch)
    item = found["mlp.fits"]
    assert (item.status, item.reason, item.values["pairs"]) == (INFO, "", 2)
    assert item.values["pumped_seconds_per_iteration"] > 0
    assert sorted(started) == [False, True]


def test_a_program_that_cannot_run_is_one_failed_item_with_its_reason(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "managed", lambda _, length_bytes: length_bytes)
    monkeypatch.setattr(Context, "most_bytes", lambda _: 4 << 20)
    found = items(stage_speed, context, stage_speed.Job("sweep", (1.5,)), monkeypatch)
    assert found["sweep.run"].status == "fail"
    assert "OUT_OF_MEMORY" in found["sweep.run"].reason
    assert "sweep.1_5x.window" not in found


def test_the_trace_stage_keeps_a_whole_small_recording_with_the_models_floor(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = items(stage_trace, context, stage_speed.Job("mlp", (1.5,)), monkeypatch)
    item = found["trace.mlp"]
    assert item.status == PASS, item
    recording = context.out / item.values["file"]
    assert 0 < recording.stat().st_size < stage_trace.RECORDING_MOST_BYTES
    assert item.values["iteration_operations"] > 20
    for tag in ("1_5x", "2x"):
        key = f"floor_to_gpu_bytes_per_iteration_{tag}_of_"
        assert 0 < item.values[f"{key}recording"] == item.values[f"{key}model"]
