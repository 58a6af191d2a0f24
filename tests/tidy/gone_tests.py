"""Finds tests and scenarios that existed at the commit named in tests/baseline and are missing now.

Not a test: scripts/lint runs `gone_tests.py [FOLDER]`. A commit from a stale tree silently removes
tests, and the remaining tests pass. Each name that is missing, or occurs less often than at that
commit, must match a line of tests/retired.txt: a name or a pattern (fnmatch), then the reason. Exit
status 0: all are there, or there is no history to compare with; 1: some are missing; 2: one of the
two files is malformed.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

BASELINE, RETIRED = "tests/baseline", "tests/retired.txt"
TESTS = r"def test_[A-Za-z0-9_]+"
SCENARIOS = r'SCENARIO\([a-z0-9_]+\)|\{"[a-z0-9_]+", [a-z][a-z0-9_]*\}'
"""Names that a C harness runs: a scenario, or a row of a table of cases."""


class BadFileError(Exception):
    """A malformed file: one line with its name and the reason."""


def git(root: Path, *words: str) -> str | None:
    """Returns git's output; None if git fails. Status 1 of git grep means: nothing found."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode <= (words[0] == "grep") else None


def names(root: Path, commit: str | None) -> Counter[str]:
    """Returns how often each name occurs below tests/, at a commit or, for None, in the present
    files."""
    found: Counter[str] = Counter()
    for pattern, ending in ((TESTS, "py"), (SCENARIOS, "c")):
        where = [pattern, commit] if commit else ["--untracked", pattern]
        told = git(root, "grep", "-hoE", *where, "--", f"tests/*.{ending}")
        assert told is not None, "git can read neither"
        for line in told.splitlines():
            match = re.search(r"\b(?!def\b|SCENARIO\b)[A-Za-z0-9_]+", line)
            found[match[0] if match else line] += 1
    return found


def baseline(root: Path) -> str:
    """Returns the commit named in tests/baseline. Raises BadFileError if the file is malformed."""
    try:
        text = (root / BASELINE).read_text().strip()
    except OSError as error:
        raise BadFileError(f"{BASELINE}: {error.strerror}") from None
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise BadFileError(f"{BASELINE}: must hold the 40 digits of a commit, not {text[:60]!r}")
    return text


def retired(root: Path) -> list[str]:
    """Returns the names and patterns. Raises BadFileError for a line without a reason."""
    path = root / RETIRED
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            if not reason.strip() or not re.search("[a-z]{4}", name):
                raise BadFileError(f"{RETIRED}:{number}: write a name or pattern, then the reason")
            found.append(name)
    return found


def missing_test_names(root: Path, commit: str) -> list[str]:
    """Returns the names of tests that are missing and not retired."""
    patterns = retired(root)
    missing = names(root, commit) - names(root, None)
    return [
        name
        for name in sorted(missing)
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def main(words: list[str]) -> int:
    """Prints a line for each missing name. Returns the exit status."""
    root = Path(words[0]) if words else Path(__file__).parents[2]
    try:
        if git(root, "rev-parse", "--git-dir") is None:
            print("no history here: names of tests are not compared")
            return 0
        commit = baseline(root)
        if git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
            print(f"no history back to {commit[:12]}: names of tests are not compared")
            return 0
        missing = missing_test_names(root, commit)
    except BadFileError as error:
        print(error, file=sys.stderr)
        return 2
    for name in missing:
        print(
            f"{name} was there at {commit[:12]} and is gone: restore it, or add it to {RETIRED} "
            "with the reason",
            file=sys.stderr,
        )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
