"""The table of papers: its kept results, its page, and its suite on small networks."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from harness import Options, Row, UnavailableError
from places import DOCS, ROOT
from study import sim_g10
from study.papers import artifact, autoswap, experiments, table
from study.papers.experiments import Bench, Cell, Experiment
from suites import papers, sim

from pump_lab import profiles
from pump_lab.sim import tensors

RESULTS = ROOT / "lab" / "bench" / "results" / "papers.jsonl"
COLUMNS = set(table.COLUMNS)


def kept() -> list[dict[str, Any]]:
    rows = map(json.loads, RESULTS.read_text().splitlines())
    return [row for row in rows if row["name"].startswith("papers.")]


def test_each_kept_cell_has_a_value_and_its_command_or_a_reason() -> None:
    found: dict[str, set[str]] = {}
    for row in kept():
        found.setdefault(row["name"].rpartition(".")[0], set()).add(row["column"])
        if row["value"] is None:
            assert len(row["text"]) > 5
            assert row["command"] is None
        elif row["column"] != "published":
            paper = row["name"].split(".")[1]
            assert row["command"].startswith(f"scripts/bench papers -- --only {paper}")
            papers.parse(row["command"].partition(" -- ")[2].split())  # exits on a bad one
            assert row["simulated"]
    assert all(columns == COLUMNS for columns in found.values())
    assert {name.split(".")[1] for name in found} == set(papers.PAPERS)


def test_kept_figures_stay_within_their_bounds() -> None:
    values: dict[str, dict[str, Any]] = {}
    for row in kept():
        values.setdefault(row["name"].rpartition(".")[0], {})[row["column"]] = row["value"]
    both = {name for name, cells in values.items() if cells["pump"] and cells["bound"]}
    better = [name for name in both if "g10" not in name]
    assert len(better) > 8
    for name in better:
        cells = values[name]
        lower = name.startswith("papers.smartpool.") and not name.endswith("spared")
        sign = -1 if lower else 1  # less reserved memory is better
        assert sign * cells["pump"] <= sign * cells["bound"] * 1.001, name


def test_the_page_tells_of_each_paper_and_names_records_that_are_there() -> None:
    page = (DOCS / "papers.md").read_text()
    for row in kept():
        assert f"\n## {row['paper']} (" in page
    for line in table.lines(kept()):
        assert line in page


def test_a_cell_shows_its_span_over_traces_or_why_it_is_empty() -> None:
    found = Experiment(
        "name.of",
        "Paper",
        "text",
        "%",
        Cell(34.2, "up to"),
        experiments.mean({"a": 10.0, "b": 20.0}, geometric=False),
        Cell(None, "needs a card"),
        experiments.mean({"a": 4.0}),
    )
    made = "scripts/bench papers -- --only paper --whole"
    rows = [row.as_json() for row in found.rows(made)]
    assert [row["command"] for row in rows] == [None, made, None, made]
    *_, line = table.lines([{"name": "bench.machine"}, *rows])
    assert line == (
        "| Paper | text | up to 34.2 % | 15.0 % (10.0 to 20.0) | needs a card | 4.0 % | `--whole` |"
    )
    assert table.number(1.234, "x") == "1.23x"
    assert experiments.mean({"a": 1.0, "b": 4.0}).value == pytest.approx(2.0)


def test_a_row_without_a_value_is_shown_as_such() -> None:
    assert Row("a.b", None, "x").as_text().split() == ["a.b", "-", "x"]
    assert Row("a.b", None, "x").as_json()["value"] is None


def small_raw() -> dict[str, Any]:
    """Returns a trace of layers of 32 MiB, forward and backward."""
    depth, mib = 8, 32 << 20
    raw: dict[str, Any] = {"model": "layers", "batch": 1}
    raw["tensors"] = [{"id": i, "bytes": mib, "persistent": i >= depth} for i in range(2 * depth)]
    forth = [([i + depth, *([i - 1] if i else [])], [i]) for i in range(depth)]
    back = [([i, i + depth], [i + depth]) for i in reversed(range(depth))]
    raw["kernels"] = [
        {"name": "k", "duration_us": 5000, "reads": reads, "writes": writes}
        for reads, writes in forth + back
    ]
    return raw


def small() -> tensors.TensorTrace:
    return tensors.parse(json.dumps(small_raw()).encode(), "layers")


def cells(bench: Bench, only: list[str]) -> dict[str, float | None]:
    """Returns values by the rows' names."""
    rows = (one.rows("") for _, one in papers.experiments(bench, only))
    return {row.name: row.value for found in rows for row in found}


def test_the_simulated_rows_come_out_the_same_twice() -> None:
    pytest.importorskip("scipy")
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    only = ["pump", "autoswap", "g10", "turnip"]

    def values() -> dict[str, float | None]:
        return cells(Bench([small()], profile, whole=False), only)

    first = values()
    assert first == values()
    for ratio in (15, 20):
        planned, bound = (first[f"papers.pump.speedup_{ratio}.{one}"] for one in ("pump", "bound"))
        assert planned is not None
        assert bound is not None
        assert 1 < planned <= bound
    spared = first["papers.autoswap.search.reproduction"]
    assert spared is not None
    assert 0 < spared < 100
    assert first["papers.g10.bert_base_b256.pump"] is None


def test_the_whole_table_has_g10s_networks_and_each_score_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy")
    raw = small_raw()
    for kernel in raw["kernels"]:
        kernel |= {"uvm_input_fault_duration_us": 6000, "uvm_all_fault_duration_us": 7000}
    for name in sim_g10.PUBLISHED:
        (tmp_path / f"{name}.json.xz").write_bytes(lzma.compress(json.dumps(raw).encode()))
    monkeypatch.setattr(experiments, "PUBLISHED", tmp_path)
    for machine in (sim_g10, artifact):
        monkeypatch.setattr(machine, "MEMORY_BYTES", 320 << 20)
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    bench = Bench([small()], profile, whole=True)
    carried = [one for one in cells(bench, ["autoswap"]) if ".carried_" in one]
    assert len(carried) == 4 * (len(autoswap.SCORES) + 1)
    g10 = cells(bench, ["g10"])
    names = ("bert_base_b256.bound", "bert_base_b256.pump", "bert_base_b256_uvm.reproduction")
    bound, planned, naive = (g10[f"papers.g10.{name}"] or 0 for name in names)
    assert 100.1 > bound >= planned > 100 / naive  # the floor ignores the time of launches
    mean = g10["papers.g10.mean.reproduction"]
    assert mean is not None
    assert 100 / naive < mean <= 100
    assert g10["papers.g10.senet154_b1024.pump"] == planned  # the same trace in this test


def test_a_folder_without_traces_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="marginal"):
        next(papers.run(Options(rest=["--traces", str(tmp_path)])))


def test_an_unknown_paper_is_refused_with_status_two() -> None:
    with pytest.raises(SystemExit) as failure:
        papers.parse(["--only", "vdnn"])
    assert failure.value.code == 2
