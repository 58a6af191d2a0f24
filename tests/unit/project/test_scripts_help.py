"""Each script of scripts/ explains itself, and starts nothing on an unknown option."""

from __future__ import annotations

import subprocess

import pytest
from places import ROOT

SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file())
PASSES_ON = "test"
"""Passes other arguments to pytest, which refuses unknown ones."""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "scripts" / script), *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_does_and_does_nothing(script: str, option: str) -> None:
    done = run(script, option)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 1 and "#" not in done.stdout.splitlines()[0]


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != PASSES_ON])
def test_a_script_refuses_an_option_that_it_does_not_know(script: str) -> None:
    done = run(script, "--no-such-option")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--no-such-option" in done.stderr
