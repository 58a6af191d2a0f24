"""Runs the tutorials without frameworks exactly as written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import stranger
import tutorials
from places import ROOT

RUN_BY = (
    Path(__file__),
    ROOT / "tests" / "frameworks" / "test_torch_tutorials.py",
    ROOT / "tests" / "endtoend" / "enabled" / "test_enabled.py",
    ROOT / "packaging" / "release" / "first_steps",
)
"""Test files that run the commands of pages."""


def run(name: str, folder: Path) -> str:
    """Runs a page in an environment with only pump and the packages that the page names; returns
    the output."""
    page = (tutorials.DOCS / name).read_text()
    commands = stranger.environment(folder / "environment", stranger.requirements(page))
    return tutorials.run(name, folder, [commands])


def test_the_first_job_is_run_recorded_simulated_and_compared(tmp_path: Path) -> None:
    said = run("start/first-job.md", tmp_path)
    assert said.count("x the budget") >= 3
    assert "<svg" in (tmp_path / "layers.html").read_text()
    for way in ("naive", "demand", "window", "planned", "floor", "plain"):
        assert way in said
    assert re.search(r"^\W*\d+ .*layers\.py.*planned", said, re.M), "the job's row of pump top"


def test_two_jobs_share_a_card_and_both_end_well(tmp_path: Path) -> None:
    said = run("guides/several-jobs.md", tmp_path)
    for job in ("first", "second"):
        rows = re.findall(rf"^\W*\d+ .*{job}.*planned.* ([1-9][\d.]*) MiB", said, re.M)
        assert len(rows) == 2, "one of pump jobs, one of pump top, both with memory on the GPU"
    assert said.count("final loss") == 2 and said.count("x the budget") == 2


def test_a_notebook_runs_in_the_kernel_and_sees_what_pump_did(tmp_path: Path) -> None:
    said = run("start/notebooks.md", tmp_path)
    assert said.count("jupyter/kernels/pump/kernel.json") == 2  # written, removed
    cells = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]
    printed = ["".join(map(str, cell["outputs"])) for cell in cells if cell["cell_type"] == "code"]
    assert "192 MiB allocated and written" in printed[0]
    assert "pump: policy planned; GPU 0: " in printed[1]
    assert "operations: 120" in printed[2]


def test_an_environment_has_nothing_that_was_not_asked_for(tmp_path: Path) -> None:
    commands = stranger.environment(tmp_path, stranger.requirements(""))
    assert {path.name for path in commands.glob("pump*")} >= {"pump", "pump-run", "pumpd"}
    assert not list(tmp_path.glob("lib/*/site-packages/sklearn"))
    assert list(tmp_path.glob("lib/*/site-packages/numpy"))


def test_no_tutorial_is_left_out_here_and_among_the_frameworks() -> None:
    tests = "".join(file.read_text() for file in RUN_BY)
    pages = tutorials.pages_with_commands()
    assert pages and {name for name in pages if name not in tests} == set()
