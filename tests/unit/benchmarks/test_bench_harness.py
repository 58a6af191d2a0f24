"""The benchmarks' own code: statistics, rows, pairs, pinning, scripts/bench."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import bench_run
import harness
import pytest
from harness import Options, Row
from places import ROOT

from pump.measure import paired as stats

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# ---- statistics -------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 100, 5.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 99, 4.96),
    ],
)
def test_a_percentile_lies_between_its_neighbours(values, percent, expected):
    assert stats.percentile(values, percent) == pytest.approx(expected)


def test_percentiles_of_nothing_or_beyond_100_are_errors():
    with pytest.raises(ValueError, match="no values"):
        stats.percentile([], 50)
    with pytest.raises(ValueError, match="101"):
        stats.percentile([1.0], 101)


# Ranks of the sign test's interval, from printed tables of the binomial distribution. The last one
# is for as many values as a recording has: n / 2 - 1.96 / 2 * sqrt(n).
@pytest.mark.parametrize(
    ("count", "rank"),
    [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40), (20_000, 9861)],
)
def test_the_interval_has_the_ranks_of_the_sign_test(count, rank):
    values = [float(n) for n in range(1, count + 1)]
    random.Random(1).shuffle(values)
    assert stats.interval(values) == (float(rank), float(count + 1 - rank))


def test_five_pairs_are_too_few_for_an_interval():
    assert stats.interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert stats.interval([]) is None
    assert stats.compare([1.0], [2.0]).interval is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2.0], (2.0, 2.0, 0.0)), ([3.0, 1.0, 2.0], (1.0, 3.0, 0.75)), ([1.0] * 5, (1, 1, 0.9375))],
)
def test_the_range_of_few_values_says_how_sure_it_is(values, expected):
    assert stats.enclosing(values) == expected
    with pytest.raises(ValueError):
        stats.enclosing([])


def test_a_comparison_takes_the_median_of_ratios_not_the_ratio_of_medians():
    found = stats.compare([1.0, 20.0, 6.0], [1.0, 10.0, 2.0])
    assert found.ratio == 2.0
    assert (found.first_median, found.second_median) == (6.0, 2.0)
    assert found.pairs == 3


@pytest.mark.parametrize("bad", [[0.0], [-1.0], [float("nan")], [float("inf")], [1.0, 2.0]])
def test_what_cannot_be_a_ratio_is_an_error(bad):
    with pytest.raises(ValueError):
        stats.compare(bad, [1.0])
    with pytest.raises(ValueError):
        stats.compare([1.0], bad)


def held(source: random.Random, pairs: int, draws: int, truth: float) -> float:
    """Returns the share of simulated comparisons whose interval holds the true ratio."""
    inside = 0
    for _ in range(draws):
        first, second = [], []
        for _ in range(pairs):
            # Both sides of a pair share a disturbance; all noise is skewed.
            disturbance = source.lognormvariate(0, 0.5)
            first.append(truth * disturbance * source.lognormvariate(0, 0.1))
            second.append(disturbance * source.lognormvariate(0, 0.1))
        low, high = stats.compare(first, second).interval
        inside += low <= truth <= high
    return inside / draws


@pytest.mark.parametrize("pairs", [6, 30])
def test_the_interval_holds_the_true_ratio_as_often_as_it_says(pairs):
    share = held(random.Random(pairs), pairs, 1500, truth=1.3)
    assert 0.94 <= share <= 0.99


# ---- rows -------------------------------------------------------------------


def test_a_row_without_comparison_has_name_value_unit_and_more():
    assert Row("a.b", 3.0, "ns", p99=4).as_json() == {
        "name": "a.b",
        "value": 3.0,
        "unit": "ns",
        "p99": 4,
    }


def test_a_row_of_a_comparison_has_all_its_keys_even_without_an_interval():
    row = harness.compared("a", stats.compare([3.0], [2.0]), "x", baseline="naive", mode="timing")
    assert row.as_json() == {
        "name": "a",
        "value": 1.5,
        "unit": "x",
        "baseline": "naive",
        "ratio": 1.5,
        "interval": None,
        "mode": "timing",
        "pairs": 1,
        "first_median": 3.0,
        "second_median": 2.0,
    }


@pytest.mark.parametrize("name", ["", "A", "a..b", "a b", "a."])
def test_a_bad_name_of_a_row_is_an_error(name):
    with pytest.raises(ValueError, match="no name"):
        Row(name, 1.0, "s")


def test_numbers_that_json_cannot_carry_are_errors():
    with pytest.raises(ValueError, match="nan"):
        Row("a", float("nan"), "s")
    with pytest.raises(ValueError, match="inf"):
        Row("a", 1.0, "s", more=float("inf"))


# ---- pairs and pinning ------------------------------------------------------


def test_pairs_are_interleaved_and_their_order_alternates():
    calls: list[str] = []

    def measure(name: str, value: float):
        return lambda: calls.append(name) or value

    found = harness.paired(measure("a", 3.0), measure("b", 2.0), 4, warm_up=1)
    assert calls == list("abbaabbaab")
    assert (found.ratio, found.pairs) == (1.5, 4)


def test_rounds_call_every_measure_once_and_turn_the_order():
    calls: list[str] = []
    measures = {name: (lambda n=name: calls.append(n) or float(len(calls))) for name in "abc"}
    found = harness.rounds(measures, 3)
    assert calls == list("abcbcacab")
    assert found == {"a": [1.0, 6.0, 8.0], "b": [2.0, 4.0, 9.0], "c": [3.0, 5.0, 7.0]}


def test_pinning_holds_for_the_block_and_its_children_and_ends_with_it():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), harness.pin() as chosen:
        assert os.sched_getaffinity(0) == set(chosen) == {max(before)}
        text = harness.child([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"])
        assert text.strip() == str(set(chosen))
        raise KeyError
    assert os.sched_getaffinity(0) == before


def test_pinning_to_a_cpu_that_is_not_ours_names_it():
    with pytest.raises(harness.UnavailableError, match="99999"), harness.pin(99999):
        pass


def test_a_child_that_fails_or_hangs_is_named_with_its_output():
    with pytest.raises(harness.MeasurementError, match=r"(?s)exit status 3.*no luck"):
        harness.child(["sh", "-c", "echo no luck >&2; exit 3"])
    with pytest.raises(harness.MeasurementError, match=r"no end within 0.1 s"):
        harness.child(["sleep", "10"], seconds_max=0.1)
    with pytest.raises(harness.MeasurementError, match="/no/such/program"):
        harness.child(["/no/such/program"])


@needs_compiler
def test_c_is_built_against_the_headers_and_refused_source_is_shown(tmp_path):
    tools = harness.Tools(work=tmp_path / "work")
    source = tmp_path / "a.c"
    source.write_text(
        '#include "pump_abi.h"\nint main(void) { return PUMP_ABI_VERSION ? 7 : 1; }\n'
    )
    made = harness.compile_c(tools, "a", [source])
    assert subprocess.run([made], check=False).returncode == 7
    assert [path.name for path in tools.work.iterdir()] == ["a"]
    source.write_text("int main(void) { return nonsense; }\n")
    with pytest.raises(harness.MeasurementError, match="nonsense"):
        harness.compile_c(tools, "a", [source])


def test_rows_of_the_virtual_gpu_carry_mode_scale_and_profile_hash():
    facts = harness.virtual_facts("a100-pcie4", "timing")
    assert (facts["mode"], facts["time_scale"], facts["profile"]) == ("timing", 1.0, "a100-pcie4")
    assert len(facts["profile_hash"]) == 12


# ---- scripts/bench ----------------------------------------------------------

SUITES = {
    "good": '''"""Counts to two.

More."""
from harness import Row
def run(options):
    yield Row("good.pairs", options.pairs, "", rest=options.rest)
    yield Row("good.quick", int(options.quick), "")
''',
    "breaks": '''"""Breaks."""
from harness import Row
def run(options):
    yield Row("breaks.first", 1, "")
    raise KeyError("lost")
''',
    "fails": '''"""Fails."""
from harness import MeasurementError
def run(options):
    raise MeasurementError("the child died")
    yield
''',
    "lacks": '''"""Lacks."""
from harness import UnavailableError
def run(options):
    raise UnavailableError("no abacus; buy one")
    yield
''',
    "empty": '''"""Empty."""
def run(options):
    return iter(())
''',
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Writes these suites as modules that only this test imports; returns their folder."""
    made = tmp_path / "suites"
    made.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in SUITES.items():
        (made / f"{name}.py").write_text(text)
    yield made
    for name in SUITES:
        sys.modules.pop(f"suites.{name}", None)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_are_printed_and_written_one_json_object_a_line(folder, tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    status = bench_run.main(["good", "--json", str(file), "--", "--depth", "3"], folder)
    assert status == 0
    first, *rest = lines(file)
    assert first["name"] == "bench.machine"
    assert {"commit", "date", "cpu", "kernel", "driver", "load", "pairs"} <= set(first)
    assert rest == [
        {"name": "good.pairs", "value": 30, "unit": "", "rest": ["--depth", "3"]},
        {"name": "good.quick", "value": 0, "unit": ""},
    ]
    printed = capsys.readouterr().out
    assert "good: Counts to two.\n" in printed and "good.pairs" in printed


def test_quick_means_three_pairs_unless_told_otherwise(folder, tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert bench_run.main(["good", "--quick", "--json", str(file)], folder) == 0
    assert [line["value"] for line in lines(file)[1:]] == [3, 1]
    assert "quick figures" in capsys.readouterr().out
    assert bench_run.main(["good", "--quick", "--pairs", "8", "--json", str(file)], folder) == 0
    assert [line["value"] for line in lines(file)[1:]] == [8, 1]


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("breaks", 1, "failed: KeyError: 'lost'"),
        ("fails", 1, "failed: the child died"),
        ("lacks", 3, "cannot run here: no abacus; buy one"),
        ("empty", 1, "failed: gave no row"),
    ],
)
def test_a_suite_that_ends_badly_is_named_and_the_others_go_on(
    folder, capsys, name, status, reason
):
    file = folder / "rows.jsonl"
    assert bench_run.main([name, "good", "--json", str(file)], folder) == status
    found = lines(file)
    assert {"name": name, "value": None, "unit": "", "error": reason} in found
    assert found[-1]["name"] == "good.quick"
    assert f"scripts/bench: {name}: {reason}" in capsys.readouterr().err


def test_a_failure_counts_for_more_than_a_suite_that_cannot_run(folder):
    assert bench_run.main(["lacks", "fails"], folder) == 1


def test_without_a_name_every_suite_runs(folder, tmp_path):
    file = tmp_path / "rows.jsonl"
    assert bench_run.main(["--json", str(file)], folder) == 1
    names = {line["name"] for line in lines(file)}
    assert {"good.pairs", "breaks.first", "lacks", "empty"} <= names


def test_rows_written_before_a_suite_hangs_or_dies_are_in_the_files_draft(folder, tmp_path):
    file = tmp_path / "rows.jsonl"
    (folder / "looks.py").write_text(
        '"""Reads the draft while it is written."""\n'
        "from pathlib import Path\nfrom harness import Row\n"
        "def lines(file):\n"
        "    (draft,) = file.parent.glob(f'{file.name}.part-*')\n"
        "    return draft.read_text().splitlines()\n"
        "def run(options):\n"
        "    yield Row('looks.a', 1, '')\n"
        "    yield Row('looks.b', len(lines(Path(options.rest[0]))), '')\n"
    )
    assert bench_run.main(["looks", "--json", str(file), "--", str(file)], folder) == 0
    assert lines(file)[-1]["value"] == 2
    sys.modules.pop("suites.looks")


def test_rows_before_an_interrupt_are_in_the_file(folder, tmp_path):
    file = tmp_path / "rows.jsonl"
    (folder / "stops.py").write_text(
        '"""Ends as by Ctrl-C."""\nfrom harness import Row\n'
        "def run(options):\n    yield Row('stops.a', 1, '')\n    raise KeyboardInterrupt\n"
    )
    assert bench_run.main(["stops", "--json", str(file)], folder) == 130
    assert lines(file)[-1]["name"] == "stops.a"
    sys.modules.pop("suites.stops")


def test_a_file_that_holds_something_else_stays(folder, tmp_path, capsys):
    file = tmp_path / "thesis"
    file.write_text("mine")
    with pytest.raises(SystemExit):
        bench_run.main(["good", "--json", str(file)], folder)
    assert file.read_text() == "mine"
    assert "it is not rows of scripts/bench" in capsys.readouterr().err


def test_the_list_names_every_suite_with_its_first_line(folder, capsys):
    assert bench_run.main(["--list"], folder) == 0
    assert "good    Counts to two.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            ["nonsense"],
            "there is no suite 'nonsense'; there are: breaks, empty, fails, good, lacks",
        ),
        (["good", "good"], "named twice"),
        (["good", "--pairs", "0"], "--pairs is 0"),
        (["good", "--jason", "x"], "--jason"),
        (["good", "--json", "/no/such/folder/x"], "/no/such/folder"),
        (["good", "fails", "--", "--x"], "exactly one SUITE"),
    ],
)
def test_a_bad_option_ends_with_status_2_and_names_it(folder, capsys, options, named):
    with pytest.raises(SystemExit) as ended:
        bench_run.main(options, folder)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [(["nonsense"], 2, "nonsense"), (["--list"], 0, ""), (["--help"], 0, "")],
)
def test_the_script_answers_before_anything_is_installed(options, status, named):
    done = subprocess.run(
        [ROOT / "scripts" / "bench", *options],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHON": sys.executable},
    )
    assert done.returncode == status
    assert named in done.stderr and "Setting up" not in done.stdout


def test_every_real_suite_says_what_it_measures():
    for name, text in bench_run.suites(bench_run.SUITES).items():
        assert text.endswith("."), f"suites/{name}.py needs one sentence as its first line"


def test_options_have_the_promised_defaults():
    options = Options()
    assert (options.pairs, options.quick, options.rest) == (30, False, [])
    assert options.tools.python == sys.executable
