"""The tutorials without frameworks, run block by block as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stranger
import tutorials

PAGES = [
    tutorials.DOCS / name
    for name in ("start/first-job.md", "start/notebooks.md", "guides/several-jobs.md")
]


def run(name: str, folder: Path) -> str:
    """Run a tutorial in an environment with what it names; return what it printed."""
    page = (tutorials.DOCS / name).read_text()
    commands = stranger.environment(folder / "environment", stranger.requirements(page))
    return tutorials.run(name, folder, [commands])


def test_the_first_job_is_run_recorded_simulated_and_compared(tmp_path: Path) -> None:
    said = run("start/first-job.md", tmp_path)
    assert said.count("x the budget") >= 2
    assert "<svg" in (tmp_path / "small.html").read_text()
    for way in ("naive", "demand", "window", "planned", "floor", "plain"):
        assert way in said


def test_two_jobs_share_a_card_and_both_end_well(tmp_path: Path) -> None:
    said = run("guides/several-jobs.md", tmp_path)
    assert said.count("final loss") == 2 and said.count("x the budget") == 2


def test_a_notebook_runs_in_the_kernel_and_sees_what_pump_did(tmp_path: Path) -> None:
    said = run("start/notebooks.md", tmp_path)
    assert said.count("jupyter/kernels/pump/kernel.json") == 2  # written, removed
    cells = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]
    printed = ["".join(map(str, cell["outputs"])) for cell in cells if cell["cell_type"] == "code"]
    assert "192 MiB allocated and written" in printed[0]
    assert "pump: policy window; GPU 0: " in printed[1]
    assert "operations: 120" in printed[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_what_its_commands_need_before_the_first_one(page: Path) -> None:
    text = page.read_text()
    assert "```sh" not in text or len(stranger.requirements(text)) > 1


def test_an_environment_has_nothing_that_was_not_asked_for(tmp_path: Path) -> None:
    commands = stranger.environment(tmp_path, stranger.requirements(""))
    assert {path.name for path in commands.glob("pump*")} >= {"pump", "pump-run", "pumpd"}
    assert not list(tmp_path.glob("lib/*/site-packages/sklearn"))
    assert list(tmp_path.glob("lib/*/site-packages/numpy"))
