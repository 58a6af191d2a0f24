"""The pure parts of the acceptance's speed stage: order, numbers, verdicts, sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance import models, stage_speed, stage_trace
from acceptance.contract import (
    CARD,
    FAIL,
    GIB,
    INFO,
    LATE,
    MANAGED_MOST_BYTES,
    MIB,
    PASS,
    VIRTUAL,
    Context,
    Machine,
)
from acceptance.models import sizes
from acceptance.speed import plan as speed_plan
from acceptance.speed.plan import DEMAND, UNLIMITED, WINDOW, Measured, Phase
from places import ROOT

LINK = 10e9


def measured(policy: str, seconds: float, number: int = 0, **more: Any) -> Measured:
    """Returns ten iterations at 1.5x that took `seconds` together."""
    values: dict[str, Any] = {
        "phase": Phase(1.5, number, policy),
        "iterations": 10,
        "seconds": seconds,
        "budget_bytes": 2 * GIB,
        "to_gpu_bytes": 0 if policy == UNLIMITED else 20 * GIB,
        "to_host_bytes": 0,
        "overshoot_bytes": 0,
        "resident_bytes": 2 * GIB,
        "blocks_used": 100,
        "blocks_hit": 90,
        "floor_h2d_bytes": 0 if policy == UNLIMITED else 15_000_000_000,
        "settled": True,
        "settling_iterations": 3,
    }
    return Measured(**{**values, **more})


def a_round(number: int, unlimited: float, demand: float, window: float) -> list[Measured]:
    return [
        measured(policy, seconds, number)
        for policy, seconds in ((UNLIMITED, unlimited), (DEMAND, demand), (WINDOW, window))
    ]


def context(tmp_path: Path, kind: str = VIRTUAL, **more: Any) -> Context:
    machine = Machine(kind, "a100-pcie4" if kind == VIRTUAL else "", "NVIDIA H200 NVL", **more)
    return Context(ROOT, tmp_path / "out", tmp_path, machine)


# ---- order ----


def test_each_round_has_every_policy_and_no_limit_and_begins_with_another() -> None:
    found = list(speed_plan.phases(2.0, [DEMAND, WINDOW], 3))
    rounds = [[p.policy for p in found if p.round == number] for number in range(3)]
    assert all(sorted(one) == sorted([UNLIMITED, DEMAND, WINDOW]) for one in rounds)
    assert [one[0] for one in rounds] == [UNLIMITED, DEMAND, WINDOW]
    assert {phase.ratio for phase in found} == {2.0}


def test_the_time_of_a_phase_decides_how_many_iterations_it_has() -> None:
    assert speed_plan.iterations_of(0.1, 1, 1.0) == 10
    assert speed_plan.iterations_of(5.0, 1, 1.0) == 3
    assert speed_plan.iterations_of(0.0, 1, 1.0) == 24
    assert speed_plan.iterations_of(0.4, 4, 2.0) == 20  # whole units of four


def test_a_budget_is_the_footprint_over_the_ratio_in_whole_blocks() -> None:
    assert speed_plan.budget_bytes(3 * GIB, 1.5) == 2 * GIB
    assert speed_plan.budget_bytes(100 * MIB + 5, 3.0) == 32 * MIB


def test_a_phase_survives_the_way_through_json() -> None:
    one = measured(DEMAND, 3.0, 2)
    assert Measured.from_json(json.loads(json.dumps(one.as_json()))) == one


# ---- numbers ----


def test_figures_are_medians_of_ratios_taken_within_a_round() -> None:
    rounds = [a_round(0, 1.0, 4.0, 2.0), a_round(1, 2.0, 12.0, 3.0), a_round(2, 1.0, 9.0, 3.0)]
    found = speed_plan.figures([one for each in rounds for one in each], WINDOW, LINK)
    assert found["slowdown"] == 2.0  # median of 2, 1.5, 3; medians' ratio: 3
    assert found["speedup_over_demand_emulated"] == 3.0  # median of 2, 4, 3
    assert found["seconds_per_iteration"] == pytest.approx(0.3)
    assert found["rounds"] == 3
    # 1.5e9 bytes an iteration at 1e10 a second take 0.15 s, more than the fastest compute.
    # The iterations take 0.2, 0.3 and 0.3 s, so the median share of this floor is a half.
    assert found["of_floor"] == pytest.approx(0.5)
    assert found["floor_to_gpu_bytes_per_iteration"] == 1_500_000_000
    assert found["hit_share"] == 0.9


def test_the_floor_computes_as_fast_as_the_fastest_round_did() -> None:
    rounds = [a_round(0, 3.0, 9.0, 4.0), a_round(1, 2.0, 9.0, 4.0), a_round(2, 2.5, 9.0, 5.0)]
    found = speed_plan.figures([one for each in rounds for one in each], WINDOW, LINK)
    assert found["of_floor"] == pytest.approx(0.5)  # 0.2 s of 0.4, 0.4, 0.5
    assert speed_plan.speedup_possible(rounds[0], LINK) == pytest.approx(3.0)


def test_demand_is_labelled_as_emulated_and_tells_its_overshoot() -> None:
    rounds = a_round(0, 1.0, 4.0, 2.0)
    rounds[1] = measured(DEMAND, 4.0, overshoot_bytes=6 * MIB)
    found = speed_plan.figures(rounds, DEMAND, LINK)
    assert "emulated" in found["label"]
    assert found["overshoot_bytes"] == 6 * MIB
    assert found["speedup_over_demand_emulated"] is None


def test_a_round_that_was_cut_off_does_not_count() -> None:
    rounds = [*a_round(0, 1.0, 4.0, 2.0), measured(UNLIMITED, 50.0, 1), measured(DEMAND, 1.0, 1)]
    assert speed_plan.figures(rounds, WINDOW, LINK)["rounds"] == 1
    assert speed_plan.figures(rounds[:1], WINDOW, LINK) == {}


def test_without_a_known_floor_there_is_no_share_of_it() -> None:
    rounds = [measured(UNLIMITED, 1.0), measured(WINDOW, 2.0, floor_h2d_bytes=None)]
    found = speed_plan.figures(rounds, WINDOW, LINK)
    assert found["of_floor"] is None and found["floor_to_gpu_bytes_per_iteration"] is None
    assert found["speedup_over_demand_emulated"] is None


# ---- verdicts ----


def verdict(speedup: float, possible: float | None, **more: Any) -> tuple[str, str]:
    values = {"speedup_over_demand_emulated": speedup}
    given = {"policy": WINDOW, "ratio": 1.5, "quick": False, **more}
    return stage_speed.judge(given["policy"], given["ratio"], values, possible, given["quick"])


def test_twice_as_fast_as_demand_passes_and_less_needs_the_timeline() -> None:
    assert verdict(2.0, 3.0) == (PASS, "")
    status, reason = verdict(1.7, 3.0)
    assert status == FAIL and "timeline" in reason
    status, reason = verdict(1.7, 1.8)
    assert status == INFO and "1.80" in reason
    assert verdict(1.7, 3.0, policy=DEMAND) == (INFO, "")
    assert verdict(1.7, 3.0, ratio=3.0) == (INFO, "")
    assert verdict(1.7, 3.0, quick=True) == (INFO, "")


def test_a_job_that_fits_may_take_one_percent_longer() -> None:
    def fits(ratio: float, pairs: int = 6, spread: float = 0.0) -> tuple[str, str]:
        pumped = [ratio + spread * (n - (pairs - 1) / 2) for n in range(pairs)]
        item = stage_speed.fits_item("m", pumped, [1.0] * pairs, quick=False)
        return item.status, item.reason

    assert fits(1.005) == (PASS, "")
    assert fits(1.03)[0] == FAIL
    assert fits(1.015, spread=0.01)[0] == INFO  # the interval holds 1
    assert fits(1.0, pairs=3) == (INFO, LATE)


def test_what_was_cut_off_is_measured_again_and_what_is_whole_is_not(tmp_path: Path) -> None:
    phases = a_round(0, 1.0, 5.0, 2.0)
    lines = [
        {"kind": "model", "facts": {"batch": 4}, "footprint_bytes": 3 * GIB},
        *(one.as_json() for one in phases),
    ]
    against = stage_speed.Against([DEMAND, WINDOW], LINK)
    cut = list(stage_speed.items(context(tmp_path), "mlp", lines, against))
    assert [(i.name, i.reason) for i in cut] == [
        ("mlp.1_5x.demand", LATE),
        ("mlp.1_5x.window", LATE),
    ]
    lines.append({"kind": "whole", "ratio": 1.5})
    whole = list(stage_speed.items(context(tmp_path), "mlp", lines, against))
    assert [i.status for i in whole] == [INFO, PASS]
    assert "2.50 times" in whole[1].values["headline"]
    assert whole[1].values["model"]["footprint_bytes"] == 3 * GIB


def test_the_file_of_a_killed_program_counts_up_to_its_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text('{"kind": "model"}\n{"kind": "pha')
    assert stage_speed.read_lines(file) == [{"kind": "model"}]
    assert stage_speed.read_lines(tmp_path / "none") == []


def test_a_timeline_is_kept_beside_the_results_and_named_in_the_item(tmp_path: Path) -> None:
    lines = [
        *(one.as_json() for one in a_round(0, 1.0, 3.0, 2.0)),
        {"kind": "timeline", "ratio": 1.5, "policy": WINDOW, "rows": [[1.0, 2.0]]},
        {"kind": "whole", "ratio": 1.5},
    ]
    given = context(tmp_path)
    found = list(stage_speed.items(given, "mlp", lines, stage_speed.Against([WINDOW], LINK)))
    assert found[0].status == INFO or found[0].status == FAIL
    kept = given.out / found[0].values["timeline"]
    assert json.loads(kept.read_text())["rows"] == [[1.0, 2.0]]


# ---- what runs where ----


def test_a_card_with_pytorch_begins_with_its_models_and_the_virtual_gpu_has_programs(
    tmp_path: Path,
) -> None:
    card = stage_speed.jobs(context(tmp_path, CARD, packages={"torch": "2.11"}))
    assert [(job.model, job.ratios) for job in card] == [
        ("gpt2", (1.5, 2.0)), ("resnet50", (1.5, 2.0)), ("gpt2", ())
    ]  # fmt: skip
    assert {job.model for job in stage_speed.jobs(context(tmp_path))} == {"mlp", "sweep"}
    assert {job.model for job in stage_speed.jobs(context(tmp_path, CARD))} == {"mlp", "sweep"}


def test_a_recording_is_named_after_model_batch_and_card(tmp_path: Path) -> None:
    card, virtual = context(tmp_path, CARD), context(tmp_path)
    name = stage_trace.file_name("gpt2", {"batch": 4}, card)
    assert name == "gpt2-batch4-nvidia-h200-nvl.pumptrace"
    name = stage_trace.file_name("sweep", {}, virtual)
    assert name == "sweep-virtual-a100-pcie4.pumptrace"


# ---- sizes ----


def test_every_model_stays_below_the_hard_limit_and_the_core_ones_near_3_gib() -> None:
    for spec in models.MODELS.values():
        assert spec.expected_bytes(True) < 640 * MIB
        assert 2.5 * GIB < spec.expected_bytes(False) < MANAGED_MOST_BYTES * 0.9, spec.name


def test_resnet_50_has_its_known_parameters_and_products() -> None:
    shape = sizes.resnet(quick=False)
    assert shape.parameters == 25_557_032
    assert len(list(shape.convolutions())) == 53
    assert shape.flop / 6 / shape.batch == pytest.approx(4.09e9, rel=0.01)


def test_the_decoders_parameters_follow_from_its_shape() -> None:
    shape = sizes.gpt(quick=False)
    assert shape.parameters == 8 * (12 * 1024**2 + 13 * 1024) + (8192 + 512 + 2) * 1024
    assert shape.flop == pytest.approx(1.4e12, rel=0.1)
    assert shape.persistent_bytes + shape.activation_bytes < shape.footprint_bytes
