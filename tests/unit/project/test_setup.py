"""scripts/setup asks pip for missing packages, and for pump only if its sources have changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

PYTHON = f"""#!/bin/sh
# A Python whose pip only records its arguments.
[ "$1" = -m ] || exec {sys.executable} "$@"
shift 3 # -m pip install
echo "$*" >> asked
"""


class Clone:
    """A folder with scripts/setup, some sources, and a fake Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("scripts/setup", "pyproject.toml", "CMakeLists.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        for name in ("pump", "daemon", "shim", "lab/gpu"):
            (folder / name).mkdir(parents=True)
            (folder / name / "source").write_text("1")
        python = folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)

    def setup(self, extras: str) -> list[str]:
        """Returns what pip was asked to install: "." is pump, otherwise a file of requirements."""
        asked = self.folder / "asked"
        asked.write_text("")
        done = subprocess.run(
            [str(self.folder / "scripts" / "setup"), extras],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [word for word in asked.read_text().split() if not word.startswith("-")]

    def required(self) -> str:
        """Returns the requirements of the last extras."""
        return (self.folder / "build" / "requirements.txt").read_text()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_the_packages_of_the_site_are_installed_without_pump(clone: Clone) -> None:
    assert clone.setup("docs") == ["build/requirements.txt"]
    assert "mkdocs==" in clone.required() and "pump" not in clone.required()
    assert clone.setup("docs") == []


def test_pump_is_built_once_for_all_extras_and_again_when_a_source_changes(clone: Clone) -> None:
    assert clone.setup("examples") == ["build/requirements.txt", "."]
    assert clone.setup("examples") == []
    assert clone.setup("test,lint") == ["build/requirements.txt"]
    assert "pytest" in clone.required() and "ruff" in clone.required()
    (clone.folder / "shim" / "source").write_text("2")
    assert clone.setup("docs") == ["build/requirements.txt"]
    assert clone.setup("test,lint") == ["build/requirements.txt", "."]
    assert clone.setup("examples") == ["build/requirements.txt"]


def test_an_unknown_extra_is_named_with_those_that_exist(tmp_path: Path, clone: Clone) -> None:
    done = subprocess.run(
        [str(tmp_path / "scripts" / "setup"), "examples,dosc"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert "'dosc'" in line and "docs" in line
    assert not (tmp_path / "asked").exists()
