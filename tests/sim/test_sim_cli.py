"""The command `pump simulate`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sim_programs import DATA
from test_sim_tensors import trace

from pump.model.bounds import BLOCK_BYTES, without_reserve

PUMP = Path(sys.executable).parent / "pump"
VIT = str(DATA / "vit_b256_marginal.json.xz")
FLASH = "--host-memory", "4GiB", "--flash", "3.2"


def simulate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PUMP), "simulate", *words], capture_output=True, text=True, timeout=120, check=False
    )


def refused(reason: str, *words: str) -> None:
    """Expects one line on stderr that gives the reason."""
    done = simulate(*words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def figures(*words: str) -> dict[str, Any]:
    done = simulate(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_comparison_names_mapping_profile_and_every_policy() -> None:
    found = figures(VIT, "--oversubscription", "1.5", "--compare", "--iterations", "2")
    assert (found["mapping"], found["profile"], found["simulated"]) == (
        "caching", "a100-pcie4", True,
    )  # fmt: skip
    assert found["oversubscription"] == pytest.approx(1.5, abs=0.01)
    rows = {row["policy"]: row for row in found["policies"]}
    assert set(rows) == {
        "naive", "naive+discard", "window", "window+discard", "planned", "planned+discard",
    }  # fmt: skip
    assert all(0 < row["of_floor"] <= 1 <= row["slowdown"] for row in rows.values())
    assert found["left_out"] == []
    assert rows["naive+discard"]["h2d_bytes"] < 0.6 * rows["naive"]["h2d_bytes"]
    assert rows["window"]["seconds"] < rows["naive"]["seconds"]
    assert found["floor"]["seconds"] >= found["floor"]["link_seconds"]


def test_the_report_for_people_says_that_it_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = simulate(VIT, "--gpu-memory", "8GiB", "--iterations", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    result, origin = done.stdout.splitlines()[:2]
    assert "x the time with enough memory" in result and len(result) <= 100
    assert origin.startswith("Simulated from the only iteration of VIT")
    assert origin.endswith("Not a measurement.") and "mapping caching" in done.stdout
    assert json.loads(file.read_text())["gpu_memory_bytes"] == 8 << 30


def test_shares_of_both_floors_and_what_was_predicted_are_told() -> None:
    words = VIT, "--oversubscription", "1.5", "--iterations", "4", "--policy", "planned"
    found, text = figures(*words), simulate(*words).stdout
    (row,) = found["policies"]
    assert found["floor_of_parts_seconds"] >= found["floor"]["seconds"]
    assert row["of_floor"] <= row["of_parts"] <= 1
    predicted = row["whole_run"]["predicted"]
    assert found["operations"] / 2 < predicted["operations"] < found["operations"]
    assert predicted["confidence"] > 0.9
    assert "of the operations predicted" in text and "operations' order" in text
    plain = figures(*words[:-1], "window")
    assert plain["policies"][0]["whole_run"]["predicted"] is None


def test_what_went_by_schedules_is_told() -> None:
    rows = figures(VIT, "--oversubscription", "2", "--iterations", "3", "--compare")["policies"]
    by_schedule = {row["policy"]: row["whole_run"]["scheduled_bytes"] > 0 for row in rows}
    assert by_schedule == {row["policy"]: not row["policy"].startswith("naive") for row in rows}


def test_an_operation_that_the_gpu_cannot_hold_is_named() -> None:
    words = VIT, "--iterations", "1", "--policy", "window"
    assert "One operation uses 440.0 MiB" in simulate(*words, "--gpu-memory", "256MiB").stdout
    assert "One operation" not in simulate(*words, "--gpu-memory", "8GiB").stdout


def test_a_program_that_holds_itself_up_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "short.json"
    file.write_bytes(trace())  # kernels of about 20 us, and 8 us of host time for each
    slow = simulate(str(file), "--profile", "a100-pcie4", "--iterations", "2")
    assert "program's own CPU time" in slow.stdout
    assert "own CPU time" not in simulate(VIT, "--iterations", "2").stdout


def test_jitter_is_named_in_the_report() -> None:
    words = VIT, "--oversubscription", "1.2", "--jitter", "0.25", "--seed", "3"
    done = simulate(*words)
    assert done.returncode == 0, done.stderr
    assert "25 %, seed 3" in done.stdout
    again, other = (figures(*words[:-1], seed) for seed in ("3", "4"))
    assert (again["jitter"], again["seed"]) == (0.25, 3)
    assert again["policies"][0]["seconds"] != other["policies"][0]["seconds"]


def test_drawn_wake_ups_are_named_in_the_report() -> None:
    words = VIT, "--oversubscription", "2", "--queue-launches", "10", "--wake-ups", "busy"
    done = simulate(*words, "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert "busy, seed 5" in done.stdout
    found, other = (figures(*words, "--seed", seed) for seed in ("5", "6"))
    assert (found["wake_ups"], found["wake_ups_seed"]) == ("busy", 5)
    assert found["policies"][0]["seconds"] != other["policies"][0]["seconds"]


def test_a_sweep_draws_the_curve_that_its_table_tells(tmp_path: Path) -> None:
    file, drawing = tmp_path / "toy.json", tmp_path / "curve.svg"
    file.write_bytes(trace(tensors=_large_tensors()))
    found = figures(str(file), "--sweep", "--svg", str(drawing))
    slowdowns = [point["slowdown"]["planned"] for point in found["points"]]
    assert slowdowns[0] == pytest.approx(1, abs=0.01), "there everything fits"
    assert slowdowns[-1] > slowdowns[0]
    assert all(p["slowdown"]["floor"] <= p["slowdown"]["naive"] + 1e-9 for p in found["points"])
    lines = ElementTree.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points", "").split()) for line in lines] == [len(slowdowns)] * 3
    sizes = [point["gpu_memory_bytes"] for point in found["points"]]
    assert sizes == sorted(set(sizes), reverse=True), "each size once"


def test_a_sweep_discards_nothing_where_all_fits(tmp_path: Path) -> None:
    found = figures(VIT, "--sweep", "--policy", "window+discard", "--iterations", "2")
    roomy, *_, tight = found["points"]
    assert roomy["gpu_memory_bytes"] > found["peak_bytes"] > tight["gpu_memory_bytes"]
    plain = figures(VIT, "--sweep", "--policy", "window", "--iterations", "2")["points"]
    assert roomy["slowdown"]["window+discard"] == plain[0]["slowdown"]["window"]
    assert tight["slowdown"]["window+discard"] < plain[-1]["slowdown"]["window"]


def test_a_recording_is_simulated_under_its_own_budget_where_no_size_is_given() -> None:
    recording = str(DATA.parent / "workloads" / "inference.trace")
    found = figures(recording, "--policy", "naive")
    more = without_reserve(found["gpu_memory_bytes"]) - found["recorded_budget_bytes"]
    assert 0 <= more < 2 * BLOCK_BYTES
    other = figures(recording, "--policy", "naive", "--gpu-memory", "1GiB")
    assert other["gpu_memory_bytes"] == 1 << 30


def test_a_sweep_says_how_far_it_is() -> None:
    done = simulate(VIT, "--sweep", "--policy", "naive", "--iterations", "1")
    lines = done.stderr.splitlines()
    assert len(lines) > 5
    assert lines[-1].startswith(f"[{len(lines)}/{len(lines)}] ")


def test_columns_stay_apart_however_wide_their_figures_are(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    tensors = [{"id": i, "bytes": 600 << 30, "persistent": True} for i in range(2)]
    kernel = {"name": "a", "duration_us": 10, "reads": [0], "writes": [1]}
    file.write_bytes(trace(tensors=tensors, kernels=[kernel]))
    text = simulate(str(file), "--gpu-memory", "1GiB", "--policy", "naive+discard",
                    "--most-uses", "100000000").stdout  # fmt: skip
    (row,) = (line for line in text.splitlines() if line.startswith("naive+discard  "))
    assert row.split()[5:10:2] == ["1.17", "1.17", "3,686,400"]
    names = "planned", "planned+discard"
    file.write_bytes(trace(tensors=_large_tensors()))
    head = simulate(str(file), "--sweep", "--compare", "--iterations", "2").stdout.splitlines()[3]
    assert set(names) <= set(head.split())


def test_a_single_iteration_is_not_called_steady(tmp_path: Path) -> None:
    """Its first touches fault; the reference run with enough memory has no faults."""
    file = tmp_path / "toy.json"
    file.write_bytes(trace(tensors=_large_tensors()))
    words = str(file), "--iterations", "1", "--policy", "naive"
    text, (row,) = simulate(*words).stdout, figures(*words)["policies"]
    assert "the only iteration of" in text and "a steady iteration of" not in text
    assert row["faults"] > 0 and row["slowdown"] > 1


def test_what_expects_nothing_has_no_confidence_to_tell(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    file.write_bytes(trace(tensors=_large_tensors()))
    rows = figures(str(file), "--compare", "--policy", "demand")["policies"]
    told = {row["policy"] for row in rows if row["whole_run"]["predicted"] is not None}
    assert told == {"planned", "planned+discard"}


def _large_tensors() -> list[dict[str, Any]]:
    sizes = {0: 64 << 20, 1: 64 << 20, 2: 32 << 20, 3: 1000}
    return [{"id": i, "bytes": size, "persistent": i == 0} for i, size in sizes.items()]


KERNEL = {"name": "a", "duration_us": 10, "reads": [0], "writes": [1]}
TENSOR = {"id": 0, "bytes": 4 << 20, "persistent": True}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kernels": [KERNEL | {"duration_us": -1}]}, "'duration_us' of kernel 0 is -1.0"),
        ({"kernels": [KERNEL | {"duration_us": float("nan")}]}, "'duration_us' of kernel 0 is nan"),
        ({"kernels": [KERNEL, KERNEL | {"reads": [9]}]}, "kernel 1 uses tensor 9"),
        ({"kernels": [{"name": "a"}]}, "'reads' is missing"),
        ({"kernels": []}, "no kernel uses"),
        ({"tensors": [TENSOR | {"bytes": -5}]}, "'bytes' of tensor 0 is -5"),
        ({"tensors": [TENSOR | {"bytes": "large"}]}, "large"),
        ({"tensors": 7}, "not iterable"),
        ({"tensors": [TENSOR, TENSOR]}, "tensor 0 appears twice"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_fault(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(trace(**changes))
    done = simulate(str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"pump: {file}: ") and reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("part", [b"", b"[]", b'{"tensors": []}', b"[" * 100_000, None])
def test_half_a_trace_is_refused(tmp_path: Path, part: bytes | None) -> None:
    file = tmp_path / "half.json.gz"
    file.write_bytes(trace()[:60] if part is None else part)
    done = simulate(str(file))
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere.json",), "nowhere.json"),
        ((VIT, "--policy", "widnow"), "(did you mean 'window'?); known: naive"),
        ((VIT, "--policy", "naive", "--policy", "window"), "--policy is given twice"),
        ((VIT, "--policy", "naive+discard+discard"), "each also with +discard"),
        ((VIT, "--gpu-memory", "1MiB"), "a GPU of 1,048,576 bytes"),
        ((VIT, "--gpu-memory", "65TiB"), "64 TiB at most"),
        ((VIT, "--gpu-memory", "much"), "--gpu-memory: 'much'"),
        ((VIT, "--iterations", "0"), "--iterations is 0"),
        ((VIT, "--json", "/nowhere/figures.json"), "--json: cannot write"),
        ((VIT, "--sweep", "--svg", "/"), "--svg: cannot write"),
        ((VIT, "--profile", "a100"), "a100-pcie4"),
        ((VIT, "--mapping", "paged"), "unique, caching"),
        ((VIT, "--queue-launches", "0"), "--queue-launches"),
        ((VIT, "--svg", "x.svg"), "--sweep"),
        ((VIT, "--jitter", "1.5"), "--jitter is 1.5"),
        ((VIT, "--seed", "-1"), "--seed is -1"),
        ((VIT, "--wake-ups", "bussy"), "did you mean 'busy'"),
        ((VIT, "--wake-ups", "nowhere.toml"), "cannot read 'nowhere.toml'"),
        ((VIT, "--wake-ups", ""), "--wake-ups is empty"),
        ((VIT, "--seed", str(1 << 64), "--jitter", "0.1"), "below 2^64"),
        (("",), "TRACE is empty"),
        ((VIT, "--gpu-memory", ""), "--gpu-memory is empty"),
        ((VIT, "--policy", ""), "--policy is empty"),
        ((VIT, "--sweep", "--svg", "-"), "--svg: name a file"),
        ((str(Path(__file__)), "--json", str(Path(__file__))), "which is TRACE"),
        (("/proc/self/mem",), "cannot read /proc/self/mem"),
        ((VIT, "--flash", "3.2"), "--host-memory"),
        ((VIT, "--host-memory", "16GiB", "--flash", "fast"), "READ,WRITE"),
        ((VIT, "--host-memory", "4GiB"), "or add --flash"),
        ((VIT, "--flash-writes", "5"), "add --flash"),
        ((VIT, *FLASH, "--flash-latency", "-1"), "--flash-latency is '-1'"),
        ((VIT, *FLASH, "--flash-writes", "nan"), "--flash-writes is nan"),
        ((VIT, "--oversubscription", "0"), "--oversubscription"),
        ((str(Path(__file__)),), "must be a recording of pump-run or a JSON trace"),
    ],
)
def test_bad_input_gets_one_line(words: tuple[str, ...], reason: str) -> None:
    refused(reason, *words)


def test_one_file_is_not_written_twice(tmp_path: Path) -> None:
    name, other = str(tmp_path / "x"), f"{tmp_path}/../{tmp_path.name}/x"
    refused("which is --json", VIT, "--sweep", "--json", name, "--svg", other)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_behind_the_report() -> None:
    done = simulate(VIT, "--iterations", "1", "--json", "/dev/full")
    assert done.returncode == 1 and "mapping caching" in done.stdout
    assert done.stderr == "pump: --json: cannot write to /dev/full: No space left on device\n"


def test_an_interruption_ends_it_without_a_traceback() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([str(PUMP), "simulate", "/dev/stdin"], **pipes) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(1 << 20))  # more than a pipe holds: returns once it is read
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        output = process.stdout.read(), process.stderr.read()
    assert (process.returncode, output) == (130, (b"", b""))
