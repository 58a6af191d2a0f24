"""pump report on a recorded run: its metrics agree with the virtual driver's, and its page opens in
a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import opened
from places import EXAMPLES

BIN = Path(sys.executable).parent
SWEEP = EXAMPLES / "cyclic_sweep.py"
BLOCK = 2 << 20
MIB = 1 << 20
TIMEOUT_S = 180


TRIES = 5


class Run:
    """Records a sweep over 12 buffers of 32 MiB on a GPU of 256 MiB."""

    def __init__(self, folder: Path, policy: str = "window", iterations: int = 12) -> None:
        self.recording = folder / "run.pump"
        report = folder / "driver.json"
        words = ["--buffers", "12", "--buffer-mib", "32", "--iterations", f"{iterations}"]
        sweep = [sys.executable, SWEEP, *words]
        virtual = ["--virtual", "a100-pcie4", "--virtual-set", "memory=256MiB"]
        # On a busy machine pumpd may be too late for a short job: cuInit waits 2 s for pumpd.
        for _ in range(TRIES):
            subprocess.run(
                [
                    BIN / "pump-run",
                    *virtual,
                    "--policy",
                    policy,
                    "--record",
                    self.recording,
                    *sweep,
                ],
                env={"PATH": "/usr/bin:/bin", "PUMP_VIRTUAL_REPORT": str(report), **_library()},
                check=True,
                capture_output=True,
                timeout=TIMEOUT_S,
            )
            self.driver = json.loads(report.read_text())
            if self._whole():
                return
        raise AssertionError(f"{TRIES} recordings, and none of them whole")

    def _whole(self) -> bool:
        told = self.pump("report", "--json", self.recording).stdout
        found = json.loads(told) if told else {"state": "", "operations": 0}
        return found["state"] == "complete" and found["operations"] == self.driver["operations"]

    def pump(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "pump", *map(str, words)],
            cwd=self.recording.parent,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


def _library() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PUMP_LIB_DIR", "HOME") if name in os.environ}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("report"))


def near(told: float, counted: float) -> bool:
    """Returns whether the values differ by at most 5 %."""
    return abs(told - counted) <= 0.05 * counted


@pytest.mark.alone
def test_figures_are_the_virtual_drivers_within_five_percent(run: Run) -> None:
    told = json.loads(run.pump("report", "--json", run.recording).stdout)
    counters = run.driver["counters"]
    # A prefetch that populates blocks moves no bytes for them. The populated bytes are an upper
    # bound of such prefetches; operations may also have populated blocks.
    prefetched = counters["prefetch_in_blocks"] * BLOCK
    least = 0.95 * (prefetched - counters["populated_bytes"])
    assert least <= told["moved_to_gpu_bytes"] <= 1.05 * prefetched
    assert near(told["moved_to_host_bytes"], counters["prefetch_out_blocks"] * BLOCK)
    assert told["operations"] == run.driver["operations"]
    counts = {kernel["name"]: kernel["count"] for kernel in told["kernel_list"]}
    assert counts.pop("(copies)") == counters["copies"]
    assert counts == run.driver["kernels"]
    (device,) = told["devices"]
    assert device["allocated_bytes_peak"] == counters["populated_bytes"] == 12 * 32 * MIB
    assert device["resident_bytes_peak"] <= run.driver["peak_resident_bytes"]
    assert device["total_bytes"] == run.driver["memory_bytes"]


def test_misses_are_the_virtual_drivers_faults_within_five_percent(tmp_path: Path) -> None:
    run = Run(tmp_path, "demand", 40)
    told = json.loads(run.pump("report", "--json", run.recording).stdout)
    (device,) = told["devices"]
    missed = device["blocks_unseen"] + device["blocks_no_room"]
    assert near(missed, run.driver["counters"]["fault_blocks"])
    assert told["moved_to_gpu_bytes"] == told["moved_to_host_bytes"] == 0


def test_the_parts_of_a_report_agree_with_each_other(run: Run) -> None:
    told = json.loads(run.pump("report", "--json", run.recording).stdout)
    (device,) = told["devices"]
    series = device["series"]
    assert len({len(values) for values in series.values()}) == 1
    for at in range(len(series["seconds"])):
        places = ("sure", "maybe_evicted", "arriving", "leaving", "host")
        whole = sum(series[f"{place}_bytes"][at] for place in places)
        assert whole == series["allocated_bytes"][at]
    misses = device["blocks_late"] + device["blocks_unseen"] + device["blocks_no_room"]
    assert device["blocks_used"] == device["blocks_hit"] + misses
    shared = sum(kernel["estimated_missed_blocks"] for kernel in told["kernel_list"])
    assert near(shared, misses)
    assert told["operations_series"]["executed"][-1] <= told["operations"]
    assert told["top_extents"][0]["length_bytes"] == 32 * MIB


def test_the_text_names_the_cause_and_labels_estimates(run: Run) -> None:
    text = run.pump("report", "--text", run.recording).stdout
    assert text.startswith("Time lost to memory: ") and "of the misses on GPU 0" in text
    assert "(misses and times are estimates)" in text
    assert re.search(r"^ .* 144 +sweep$", text, re.M)


def test_the_page_opens_in_a_browser_and_draws_its_plots(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    said = run.pump("report", run.recording, "-o", page).stdout.splitlines()
    assert said[0].startswith("Time lost to memory: ") and said[1:] == [f"wrote {page}"]
    text = page.read_text()
    assert not re.search(r"https?://|src=|@import|url\(", text), "it loads nothing"
    shown = opened(page, "--dump-dom")
    assert shown.count('class="plot"') == 5
    assert shown.count("<polygon") == 5 and shown.count("<polyline") == 6
    assert "Memory of GPU 0" in shown and "nan" not in shown.lower().replace("finance", "")
    assert '<button hidden="">' not in shown, "the script that copies has run"
    picture = tmp_path / "shot.png"
    opened(page, f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 50_000


def test_a_page_lies_beside_its_recording_unless_told_otherwise(run: Run) -> None:
    run.pump("report", run.recording.name)
    assert run.recording.with_name("run.pump.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("words", [["--json"], ["--text"], []])
def test_what_is_no_recording_and_no_job_is_told_in_one_line(
    run: Run, words: list[str], tmp_path: Path
) -> None:
    done = run.pump("report", *words, "nothing-of-this-name")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no file and no running job 'nothing-of-this-name'" in done.stderr
    other = tmp_path / "other"
    other.write_text("plain text")
    done = run.pump("report", *words, other)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"pump: {other}: not a recording of pump\n"


def test_a_run_against_itself_has_lost_nothing_and_its_json_carries_the_advice(run: Run) -> None:
    done = run.pump("report", "--json", run.recording, "--with", run.recording)
    found = json.loads(done.stdout)
    assert found["compared"]["lost_seconds"] == 0.0
    assert found["compared"]["operations"] == max(found["pace"]["operations"]) > 0
    first = found["advice"][0]
    assert first["key"] == "time-lost" and "no measurable time" in first["advice"]
    assert found["compared"]["other_fits"] is False


def test_what_cannot_be_compared_is_refused_in_one_line(run: Run) -> None:
    done = run.pump("report", run.recording, "--with", "nowhere.pump")
    assert done.returncode == 2 and "cannot read nowhere.pump" in done.stderr
    assert len(done.stderr.splitlines()) == 1
