"""The table of mechanisms matches the code, the decisions and the kept results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evidence import cases, mechanisms, table, variants
from evidence.cases import Case
from evidence.mechanisms import Edit, TableError
from first_card import rows
from harness import Options, Tools
from places import DOCS, ROOT
from probe.questions import QUESTIONS
from suites import evidence

KEPT = ROOT / "lab" / "bench" / "results" / "evidence.jsonl"
MECHANISMS, WITHOUT = mechanisms.table()


def kept() -> list[dict[str, Any]]:
    found = map(json.loads, KEPT.read_text().splitlines())
    return [row for row in found if "mechanism" in row]


def test_each_decision_has_a_mechanism_or_a_reason_for_having_none() -> None:
    named = {decision for one in MECHANISMS for decision in one.decisions}
    files = {file.name for file in (DOCS / "decisions").glob("[0-9]*.md")}
    assert named <= files
    numbers = {name[:4] for name in named}
    assert numbers | set(WITHOUT) == {name[:4] for name in files}
    assert not numbers & set(WITHOUT)
    assert all(WITHOUT.values())


def test_each_class_names_what_it_rests_on() -> None:
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    questions = {*QUESTIONS, *rows.questions()}
    for one in MECHANISMS:
        assert (one.kind == mechanisms.GAIN) == (not one.proof), one.name
        if one.kind == mechanisms.INVARIANT:
            assert all(f"def {test}(" in tests for test in one.proof), one.name
        if one.kind == mechanisms.NOT_MODELLED:
            assert set(one.proof) <= questions, one.name
        assert one.changes or one.kind == mechanisms.INVARIANT, f"{one.name} can be measured"


def test_each_mechanism_has_lines_and_each_change_fits_the_sources(tmp_path: Path) -> None:
    builder = variants.Builder(tmp_path)
    plain = builder.key(())
    for one in MECHANISMS:
        assert one.lines() > 0
        for change in one.changes:
            assert change.settings != change.base
            assert (builder.key(change.settings.edits) == plain) == (not change.settings.edits)
            assert list(cases.of(change, whole=False))


def test_the_kept_results_are_those_of_the_table() -> None:
    of_table = []
    for one in MECHANISMS:
        of_table += [(one.name, change.name) for change in one.changes] or [(one.name, None)]
    assert [(row["mechanism"], row.get("change")) for row in kept()] == of_table
    for row in kept():
        one = next(one for one in MECHANISMS if one.name == row["mechanism"])
        assert (row["what"], row["class"], row["proof"]) == (one.what, one.kind, [*one.proof])


def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path) -> None:
    edit = Edit("daemon/core/schedule/schedule.c", "no such text", "")
    with pytest.raises(TableError, match="0 times instead of once"):
        variants.Builder(tmp_path).key([edit])
    with pytest.raises(TableError, match="is no source of the simulator"):
        variants.Builder(tmp_path).key([Edit("README.md", "pump", "")])
    with pytest.raises(TableError, match="has no gone_function"):
        mechanisms.count("daemon/core/schedule/schedule.c:gone_function")


def test_lines_are_those_with_code() -> None:
    assert mechanisms.count("daemon/core/schedule/schedule.c:later_than") == 4
    assert mechanisms.count("daemon/core/schedule/schedule.c:REACH_BLOCKS") == 1
    assert mechanisms.count("pump/model/bounds.py:without_reserve") == 2
    assert mechanisms.count("pump/policy/scheduled.py:Window") == 4


def test_means_by_host_are_over_cases_that_each_host_has() -> None:
    here, there = (Case("traces", "a", 2.0, host, "window") for host in ("server", "vm"))
    found = table.figures({here: 2.0, there: 1.0, here._replace(ratio=4.0): 4.0})
    assert found["mean"] == pytest.approx(2.0)
    assert found["means"] == {"server": pytest.approx(2.0), "vm": pytest.approx(1.0)}
    assert found["best"] == [4.0, "a 4x, window, server"]
    assert found["worst"] == [1.0, "a 2x, window, vm"]


@pytest.mark.parametrize(
    ("mean", "best", "pays"), [(1.009, 1.049, False), (1.01, 1.01, True), (0.99, 1.05, True)]
)
def test_a_mechanism_pays_by_its_mean_or_by_one_case(mean: float, best: float, pays: bool) -> None:
    assert table.pays({"value": mean, "best": [best, ""]}) == pays


def test_the_suite_measures_a_change_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(quick=True, rest=["--only", "distance rule"], tools=Tools(work=tmp_path))
    first = [row.as_json() for row in evidence.run(options)]
    assert [row["change"] for row in first] == [
        change.name for one in MECHANISMS if one.name == "distance rule" for change in one.changes
    ]
    assert all(0.5 < row["value"] < 2 and row["lines"] > 0 for row in first)

    def simulate(*_: object) -> None:
        raise AssertionError("a run that is kept is simulated again")

    monkeypatch.setattr(evidence.Runs, "_simulate", simulate)
    assert [row.as_json() for row in evidence.run(options)] == first
