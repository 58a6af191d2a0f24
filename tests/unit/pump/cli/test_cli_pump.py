"""The command pump and its verbs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import pump
from pump import profiles

CODE = "import sys; from pump.cli.main import main; sys.exit(main())"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_profile_is_listed_with_its_memory_and_hash() -> None:
    done = run("profiles")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == profiles.names()
    for line in lines:
        profile = profiles.load(line.split()[0])
        assert profile.hash() in line
        assert f"{int(profile.values['device.memory_bytes']) / 2**30:.1f} GiB" in line


def test_a_reader_that_goes_away_ends_it_without_a_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-c", CODE, "profiles"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"pump {pump.__version__}\n"
    pyproject = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"', pyproject, re.MULTILINE)
    assert found
    assert found[1] == pump.__version__


def test_help_names_every_verb() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert re.search(r"^  profiles +list", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no verb given"),
        (["profile"], "did you mean 'profiles'"),
        (["--wrong"], "--wrong"),
        (["profiles", "x"], "from-probe"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(words: list[str], expected: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_closed_output_end_it_without_a_traceback(unbuffered: str) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = f"'{sys.executable}' -c '{CODE}' profiles"
    full, closed = (
        subprocess.run(
            ["sh", "-c", f"{command} {where}"],
            env=environ, capture_output=True, text=True, timeout=60, check=False,
        )
        for where in (">/dev/full", ">&-")
    )  # fmt: skip
    assert full.returncode == 1
    assert full.stderr == "pump: cannot write all of the output: No space left on device\n"
    assert (closed.returncode, closed.stderr) == (0, "")


def test_a_library_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", CODE, "simulate", str(trace)],
        env={**os.environ, "PUMP_LIB_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"pump: .* is missing from .*\n", done.stderr)


@pytest.mark.parametrize(
    ("verb", "text", "least"),
    [
        ("top", "0.05", "0.1"),
        ("top", "soon", "0.1"),
        ("metrics", "nan", "1"),
        ("metrics", "4e3", "1"),
    ],
)
def test_an_interval_out_of_bounds_is_refused_with_the_bounds(
    verb: str, text: str, least: str
) -> None:
    done = run(verb, "--interval", text)
    assert done.returncode == 2
    assert f"--interval: must be a time from {least} to 3600 seconds, not '{text}'" in done.stderr
