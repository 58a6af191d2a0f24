"""Missing tests are named, unless they were retired with a reason (tests/tidy/gone_tests.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

SCRIPT = ROOT / "tests" / "tidy" / "gone_tests.py"
PYTHON = "def test_one() -> None:\n    pass\n\n\nclass Two:\n    def test_two(self) -> None:\n"
C = 'SCENARIO(three) {\n}\nstatic const struct hard_case cases[] = {{"four", four}};\n'


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(root), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def compare(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Makes a repository with four test names at its baseline."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(PYTHON)
    (tmp_path / "tests" / "case_a.c").write_text(C)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "baseline")
    (tmp_path / "tests" / "baseline").write_text(git(tmp_path, "rev-parse", "HEAD") + "\n")
    return tmp_path


def test_where_all_are_there_also_in_another_file_nothing_is_said(root: Path) -> None:
    assert compare(root) == (0, [])
    (root / "tests" / "test_a.py").rename(root / "tests" / "test_b.py")
    assert compare(root) == (0, []), "git does not know of the new file yet"


@pytest.mark.parametrize("name", ["test_one", "test_two", "three", "four"])
def test_each_kind_of_name_that_is_gone_is_named(root: Path, name: str) -> None:
    for path in (root / "tests").glob("*a.*"):
        path.write_text(path.read_text().replace(name, "test_other"))
    status, (line,) = compare(root)
    assert status == 1 and line.startswith(f"{name} was there at ") and "tests/retired.txt" in line


def test_one_of_two_that_have_a_name_counts(root: Path) -> None:
    (root / "tests" / "test_b.py").write_text("def test_one() -> None:\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a second of that name")
    (root / "tests" / "baseline").write_text(git(root, "rev-parse", "HEAD"))
    (root / "tests" / "test_b.py").unlink()
    status, (line,) = compare(root)
    assert status == 1 and line.startswith("test_one was there")


def test_a_name_that_is_retired_by_itself_or_by_a_pattern_passes(root: Path) -> None:
    (root / "tests" / "test_a.py").unlink()
    retired = root / "tests" / "retired.txt"
    retired.write_text("# the reasons\n\ntest_one  decision 0012\n")
    status, (line,) = compare(root)
    assert status == 1 and line.startswith("test_two was there")
    retired.write_text("test_*  what they tested is gone (0012)\n")
    assert compare(root) == (0, [])


@pytest.mark.parametrize("line", ["test_one", "test_one ", "* everything"])
def test_a_line_without_a_reason_or_a_pattern_for_everything_is_refused(
    root: Path, line: str
) -> None:
    (root / "tests" / "retired.txt").write_text(f"{line}\n")
    status, (said,) = compare(root)
    assert status == 2 and said.startswith("tests/retired.txt:1: ")


def test_a_baseline_that_is_no_commit_is_refused(root: Path) -> None:
    (root / "tests" / "baseline").write_text("main\n")
    status, (said,) = compare(root)
    assert status == 2 and said.startswith("tests/baseline: must hold the 40 digits")
    (root / "tests" / "baseline").unlink()
    assert compare(root)[0] == 2


def test_without_history_it_says_so_in_one_line_and_passes(root: Path, tmp_path: Path) -> None:
    (root / "tests" / "test_a.py").unlink()
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "later")
    shallow = tmp_path / "shallow"
    git(root, "clone", "-q", "--depth", "1", f"file://{root}", str(shallow))
    status, (line,) = compare(shallow)
    assert status == 0 and line.startswith("no history back to ")
    (tmp_path / "tarball" / "tests").mkdir(parents=True)
    (tmp_path / "tarball" / ".git").write_text("gitdir: /nonexistent\n")  # hides the one above
    assert compare(tmp_path / "tarball") == (
        0,
        ["no history here: names of tests are not compared"],
    )
