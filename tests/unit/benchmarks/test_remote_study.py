"""Sparse memory read in place: the study's bound, its frequencies, and the table of its results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench_run import main
from places import ROOT
from study.sparse import in_place as study
from study.sparse import table

from pump.model.bounds import BLOCK_BYTES
from pump_lab import profiles

MEMORY = 1 << 30
KEPT = ROOT / "lab" / "bench" / "results" / "remote.jsonl"
CASES = {**study.tables(), **study.skewed(), **study.others()}
SMALL = profiles.load("a100-pcie4").changed({"link.remote_reach_gib": "0.2"})
"""A reach that small memory exceeds as a real table exceeds the real reach."""


@pytest.mark.parametrize(
    "name",
    ["table.2x.128.8th", "table.4x.1024.64th", "zipf.100.hashed.hot", "zipf.75.heat.cold",
     "ascending.8th", "many.8th", "paged.half", "paged_same.4th", "mixed.64th", "dense.2"],
)  # fmt: skip
def test_reads_in_place_take_the_time_of_the_bound_and_move_nothing(name: str) -> None:
    case = CASES[name]
    taken_s, counters = study.seconds(case, SMALL, MEMORY, "remote")
    assert taken_s == pytest.approx(study.bound_seconds(case, SMALL, MEMORY), rel=0.02)
    assert counters["h2d_demand_bytes"] == counters["d2h_evict_bytes"] == 0
    assert counters["h2d_remote_bytes"] > 0


def test_a_missed_translation_is_in_the_bound() -> None:
    case = CASES["table.2x.128.64th"]
    bound_s = study.bound_seconds(case, SMALL, MEMORY)
    assert bound_s > 5 * study.bound_seconds(case, study.without_walks(SMALL), MEMORY)
    ascending = replace(case, ascending=True)
    assert bound_s > 5 * study.bound_seconds(ascending, SMALL, MEMORY)


@pytest.mark.parametrize("way", ["naive", "window"])
def test_the_other_ways_migrate(way: str) -> None:
    _, counters = study.seconds(CASES["table.2x.1024.64th"], SMALL, MEMORY, way)
    assert counters["h2d_remote_bytes"] == 0
    assert counters["h2d_demand_bytes"] + counters["h2d_prefetch_bytes"] > 0.5 * MEMORY


@pytest.mark.parametrize("case", study.skewed().values(), ids=list(study.skewed()))
def test_strata_cover_all_blocks_and_reads_in_descending_frequency(case: study.Case) -> None:
    found = study.strata(case, MEMORY)
    assert [one.first for one in found[1:]] == [one.first + one.blocks for one in found[:-1]]
    assert found[-1].first + found[-1].blocks == case.blocks(MEMORY)
    assert sum(one.share for one in found) == pytest.approx(1)
    each = [one.share / one.blocks for one in found]
    assert each == sorted(each, reverse=True)


def test_frequencies_are_zipfs() -> None:
    exact = np.cumsum(np.arange(1, 200_001) ** -0.75)
    ranks = np.array([1, 10, 1000, 5000, 200_000])
    assert study._frequency_until(ranks, 0.75) == pytest.approx(exact[ranks - 1], rel=1e-4)


def test_the_half_that_is_resident_is_the_one_that_was_written_last() -> None:
    case = CASES["zipf.100.heat.hot"]
    hot_s = study.bound_seconds(case, SMALL, MEMORY)
    assert hot_s < 0.2 * study.bound_seconds(replace(case, hot_resident=False), SMALL, MEMORY)
    assert study.seconds(case, SMALL, MEMORY, "remote")[0] == pytest.approx(hot_s, rel=0.05)


def test_every_kept_result_has_its_case_and_the_profile_of_today() -> None:
    kept = [json.loads(line) for line in KEPT.read_text().splitlines()]
    names = [f"remote.{card}.{name}" for card in ("a100", "h100") for name in CASES]
    assert [row["name"] for row in kept] == names
    hashes = {row["name"].split(".")[1]: row["profile_hash"] for row in kept}
    assert hashes == {
        name.split("-")[0]: profiles.load(name).hash() for name in ("a100-pcie4", "h100-pcie5")
    }
    row = next(row for row in kept if row["name"] == "remote.a100.table.2x.256.64th")
    profile = profiles.load("a100-pcie4")
    case = CASES["table.2x.256.64th"]
    assert row["bound_s"] == pytest.approx(
        study.bound_seconds(case, profile, row["memory_bytes"]), rel=1e-6
    )


def test_the_suite_gives_a_row_for_each_chosen_case(capsys: Any, tmp_path: Any) -> None:
    file = tmp_path / "rows.jsonl"
    assert main(["remote", "--quick", "--json", str(file), "--", "--only", "paged.8th"]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    (row,) = [row for row in rows if row["name"].startswith("remote.")]
    assert row["name"] == "remote.a100.paged.8th"
    assert row["memory_bytes"] % BLOCK_BYTES == 0
    assert row["naive_least_s"] < row["naive_s"] < row["naive_most_s"]
    assert row["over_window"] == pytest.approx(row["window_s"] / row["value"], rel=1e-4)
    other = {**row, "name": "remote.h100.paged.8th", "over_window": 1.0}
    *_, line = table.lines([row, other])
    assert line.startswith("| paged.8th | ") and line.endswith(" | 1 (less) | 6.4 |")
    assert line.count("(less)") == 1
