"""The pure parts of scripts/quickstart: the floor, the table and the JSON."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys

import floor
import pytest
import train_mlp
from floor import BLOCK_BYTES, Touch, Traffic
from mlp import Model
from places import ROOT
from quickstart import report
from quickstart import run as quickstart
from quickstart.report import Run, Setting

from pump.base import outputs
from pump.measure.runs import Stop


def blocks_to_gpu(operations: list[Touch], repeats: int, capacity: int) -> int:
    return floor.least_traffic(operations, repeats, capacity * BLOCK_BYTES).h2d_bytes // BLOCK_BYTES


def cheapest_of_all_schedules(operations: list[Touch], capacity: int) -> int:
    """Returns the fewest fetches over all choices of kept blocks, from any start."""
    everything = sorted({b for t in operations for b in (*t.reads, *t.updates, *t.overwrites)})

    def subsets(blocks, size: int):
        for count in range(min(size, len(blocks)) + 1):
            yield from map(frozenset, itertools.combinations(sorted(blocks), count))

    states = dict.fromkeys(subsets(everything, capacity), 0)
    for touch in operations:
        used = frozenset((*touch.reads, *touch.updates, *touch.overwrites))
        after: dict[frozenset, int] = {}
        for state, cost in states.items():
            missing = sum(block not in state for block in (*touch.reads, *touch.updates))
            for kept in subsets(state - used, capacity - len(used)):
                key = kept | used
                after[key] = min(after.get(key, 10**9), cost + missing)
        states = after
    return min(states.values())


def test_the_floor_equals_the_best_of_all_schedules_on_random_programs():
    source = random.Random(1)
    fetched = 0
    for _ in range(150):
        operations = []
        for _ in range(source.randint(3, 8)):
            used = source.sample(range(5), source.randint(1, 2))
            parts: list[list[int]] = [[], [], []]
            for block in used:
                parts[source.randrange(3)].append(block)
            operations.append(Touch(*map(tuple, parts)))
        capacity = source.randint(2, 4)
        found = blocks_to_gpu(operations, 1, capacity)
        assert found == cheapest_of_all_schedules(operations, capacity)
        fetched += found
    assert fetched > 50  # not all programs were trivial


def test_a_cyclic_sweep_fetches_only_what_does_not_fit():
    sweep = [Touch((block,), (), ()) for block in range(10)]
    assert blocks_to_gpu(sweep, 5, 10) == 0
    # At best nine of ten stay, and the block in transit needs memory too.
    assert blocks_to_gpu(sweep, 11, 9) == pytest.approx(11 * 10 / 8, abs=3)
    assert blocks_to_gpu(sweep, 5, 1) == 49


def test_contents_that_are_overwritten_before_they_are_read_cost_nothing():
    scratch = [Touch((), (), (block,)) for block in range(10)]
    assert floor.least_traffic(scratch, 3, 2 * BLOCK_BYTES) == Traffic(0, 0)


def test_what_is_only_read_is_not_written_back_twice():
    reads = [Touch((block,), (), ()) for block in range(4)]
    traffic = floor.least_traffic(reads, 20, 2 * BLOCK_BYTES)
    assert traffic.d2h_bytes <= 2 * BLOCK_BYTES < traffic.h2d_bytes


def test_an_operation_larger_than_the_memory_still_has_a_floor():
    large = [Touch((), tuple(range(6)), ())]
    assert blocks_to_gpu(large, 3, 4) >= 2 * 2


def test_more_memory_never_moves_more_and_the_host_side_never_exceeds_the_other():
    model = Model(width=1024, layers=4, batch=512, rate=1e-4)
    blocks = floor.block_numbers(model.tensors())
    operations = floor.touches(model.iteration(), blocks)
    total = sum(map(len, blocks.values()))
    previous = Traffic(10**18, 0)
    for capacity in range(total // 4, total + 1):
        traffic = floor.least_traffic(operations, 4, capacity * BLOCK_BYTES)
        assert traffic.d2h_bytes <= traffic.h2d_bytes <= previous.h2d_bytes
        previous = traffic
    assert previous == Traffic(0, 0)


def test_tensors_below_a_block_have_none_and_others_whole_ones():
    numbers = floor.block_numbers({"a": 5 << 20, "small": 100, "b": 2 << 20})
    assert [len(numbers[name]) for name in ("a", "small", "b")] == [3, 0, 1]
    assert not set(numbers["a"]) & set(numbers["b"])


def test_the_floor_is_the_larger_of_computing_and_moving():
    assert floor.floor_seconds(2.0, Traffic(10 * 10**9, 0), 25e9) == 2.0
    assert floor.floor_seconds(0.1, Traffic(10 * 10**9, 0), 25e9) == pytest.approx(0.4)


SETTING = Setting(
    gpu="A100 (a100-pcie4)",
    virtual=True,
    mode="timing",
    time_scale=1.0,
    baseline="naive",
    floors={1.0: 1.0, 1.5: 1.0, 2.0: 1.25},
    remark="Baseline: naive.",
)


def runs(last_hash: str | None = "abc") -> list[Run]:
    return [
        Run("unlimited", 1.0, 1.0, 0, 0, 0, "abc"),
        Run("naive", 1.5, 4.0, 3 << 30, 2 << 30, 1000, "abc"),
        Run("window", 1.5, 1.6, 2 << 30, 2 << 30, 10, "abc"),
        Run("naive", 2.0, 5.0, 4 << 30, 3 << 30, 2000, "abc"),
        Run("window", 2.0, 2.5, 3 << 30, 3 << 30, 20, last_hash),
    ]


def test_the_json_has_exactly_the_agreed_keys_and_the_figures():
    found = report.as_json(SETTING, runs())
    assert list(found) == ["gpu", "virtual", "mode", "time_scale", "runs", "speedup", "identical"]
    assert found["speedup"] == {"1.5": 2.5, "2.0": 2.0}
    assert found["identical"] is True and found["virtual"] is True
    assert found["runs"][4] == {
        "policy": "window",
        "oversubscription": 2.0,
        "seconds": 2.5,
        "slowdown": 2.5,
        "of_floor": 0.5,
        "h2d_bytes": 3 << 30,
        "d2h_bytes": 3 << 30,
        "faults": 20,
        "weights_sha256": "abc",
    }
    assert json.loads(json.dumps(found)) == found
    assert outputs.COMPARED.fits(json.dumps(found, indent=1).encode()), "the next replaces it"


@pytest.mark.parametrize("bad", ["abd", None])
def test_one_other_or_missing_hash_makes_the_result_not_identical(bad):
    assert report.as_json(SETTING, runs(bad))["identical"] is False
    text = report.table(SETTING, runs(bad))
    assert "DIFFER" in text and text.count(" NO") == 1


def test_missing_hashes_everywhere_are_no_proof_of_identity():
    blind = [Run(r.policy, r.oversubscription, r.seconds, 0, 0, 0, None) for r in runs()]
    assert report.identical(blind) is False


def test_the_table_labels_virtual_figures_and_their_speed_up():
    text = report.table(SETTING, runs())
    assert text.startswith("VIRTUAL GPU A100")
    assert "Speed-up at 1.5x (virtual): 2.50" in text
    assert "are bit-identical" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("window  "))
    assert " ".join(row.split()) == "window 1/1.5 1.60 s 1.60x 62% 2.0 GiB 2.0 GiB 10 yes"


def test_figures_that_a_real_gpu_does_not_tell_are_dashes_and_null():
    setting = Setting("H200", False, "hardware", 1.0, "naive", SETTING.floors, "emulated")
    real = [Run(r.policy, r.oversubscription, r.seconds, None, None, None, "abc") for r in runs()]
    assert report.as_json(setting, real)["runs"][0]["faults"] is None
    text = report.table(setting, real)
    assert "virtual" not in text.lower() and " - " in text


def test_two_unlimited_runs_are_an_error():
    with pytest.raises(ValueError, match="2 unlimited runs"):
        report.identical([*runs(), runs()[0]])


@pytest.mark.parametrize("workload", [quickstart.RESULTS, quickstart.SPEED])
def test_a_workload_reaches_the_example_as_it_was_meant(workload):
    options, model = train_mlp.parse(workload.options())
    assert model == workload.model
    assert (options.iterations, options.warm_up) == (workload.iterations, workload.warm_up)


@pytest.mark.parametrize("workload", [quickstart.RESULTS, quickstart.SPEED])
def test_the_memory_of_a_workload_is_its_footprint_divided_by_the_ratio(workload):
    assert workload.footprint_bytes >= sum(workload.model.tensors().values())
    for ratio in quickstart.RATIOS:
        memory = workload.memory_bytes(ratio)
        assert memory % BLOCK_BYTES == 0
        assert workload.footprint_bytes / memory == pytest.approx(ratio, rel=0.02)
    # The memory holds each operation several times.
    blocks = floor.block_numbers(workload.model.tensors())
    widest = max(
        len(t.reads) + len(t.updates) + len(t.overwrites)
        for t in floor.touches(workload.model.iteration(), blocks)
    )
    assert widest * BLOCK_BYTES < workload.memory_bytes(2.0) / 4


def test_the_real_gpu_is_asked_for_a_few_gib_only():
    assert 3 << 30 < quickstart.SPEED.footprint_bytes < 6 << 30


def test_a_run_in_which_the_driver_saw_a_rule_broken_is_a_failure():
    found = {"h2d_bytes": 3, "d2h_bytes": 70, "faults": 7, "violations": 0}
    assert quickstart.moved(found) == (3, 70, 7)
    found |= {"violations": 1, "violations_by_check": {"free_unknown": 1}}
    with pytest.raises(quickstart.RunError, match="free_unknown"):
        quickstart.moved(found)


def test_a_run_that_fails_is_named_with_the_end_of_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "LOGS", tmp_path)
    run = quickstart.Runner(1, Stop())
    with pytest.raises(quickstart.RunError, match=r"(?s)window at 1.5x: exit status 3.*no memory"):
        run("window at 1.5x", ["sh", "-c", "echo no memory >&2; exit 3"], {})
    assert "[1/1] window at 1.5x ... failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--json", "/no/such/folder/x.json"], "/no/such/folder"),
        (["--json", __file__], "it is not a result of scripts/quickstart"),
        (["--jason"], "--jason"),
    ],
)
def test_a_bad_option_ends_with_status_2_before_anything_is_installed(options, named, tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart", *options],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHON": sys.executable},
    )
    assert done.returncode == 2
    assert named in done.stderr and "Setting up" not in done.stdout


@pytest.mark.parametrize("script", ["examples/quickstart/run.py", "lab/bench/bench_run.py"])
def test_options_are_checked_by_a_python_without_anything_installed(script):
    """A fresh clone has no packages: -S hides installed ones, and -B writes no caches."""
    done = subprocess.run(
        [sys.executable, "-S", "-B", ROOT / script, "--check-options"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_curve_beside_the_speed_ups_is_the_committed_one_and_says_that_it_is_simulated():
    data = json.loads(quickstart.CURVE.read_text())
    (found,) = (one for one in data["curves"] if one["program"] == "quickstart")
    lines = report.curve(data).splitlines()
    assert "SIMULATED" in lines[0]
    rows = [line.split() for line in lines if line.endswith("x")]
    assert [float(row[0]) for row in rows] == [point["x"] for point in found["points"][::2]]
    for row, point in zip(rows, found["points"][::2], strict=True):
        shown = [float(cell.removesuffix("x")) for cell in row[1:]]
        kept = [point[name] for name in ("naive", "window", "planned", "floor")]
        assert shown == pytest.approx(kept, abs=0.051)
