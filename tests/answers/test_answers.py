"""Every function answers bad arguments like the plain driver, with pump dormant and active."""

from __future__ import annotations

import fnmatch
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from answer_calls import program
from builds import once
from jobs import BIN
from places import ROOT

EXCEPTIONS = Path(__file__).with_name("exceptions.txt")
RESTARTS_MOST = 8
"""Most restarts of the program after calls that end it. Calls that remain then are skipped."""
BUDGET_MIB, FILL_MIB = 32, 64


class Call(NamedTuple):
    function: str
    argument: str
    how: str


def build(folder: Path) -> None:
    """Compiles the program into the folder."""
    source = folder / "answers.c"
    source.write_text(program())
    command = ["cc", "-w", "-O0", f"-I{ROOT}", f"-I{ROOT / 'shim' / 'include'}"]
    subprocess.run([*command, source, "-o", folder / "answers", "-ldl"], check=True, timeout=120)


@pytest.fixture(scope="module")
def binary() -> Path:
    return once("answers", build) / "answers"


LATE = {"PUMP_VIRTUAL_LATE_HANDLES": "1"}
"""Delays handle reuse, so that pump's own objects do not get a stale handle."""


def answers(binary: Path, *options: str, **env: str) -> dict[Call, str]:
    """Returns the answer of every call: the code, the arguments written to, and the context's
    state. A call that ended the program or timed out has the exit status as its answer."""
    found: dict[Call, str] = {}
    first = ended = 0
    while ended <= RESTARTS_MOST:
        done = subprocess.run(
            [BIN / "pump-run", "--virtual", "a100-pcie4", *options, "--", binary, str(first)],
            env={**os.environ, "ANSWERS_FILL_MIB": str(FILL_MIB), **LATE, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        rows = [line.split(maxsplit=4) for line in done.stdout.splitlines()]
        for row in rows:
            found[Call(*row[1:4])] = row[4] if len(row) > 4 else f"ended by {done.returncode}"
        if done.returncode == 0:
            return found
        assert rows, done.stderr
        first, ended = int(rows[-1][0]) + 1, ended + 1
    return found


@pytest.fixture(scope="module")
def plain(binary: Path) -> dict[Call, str]:
    return answers(binary, PUMP_DISABLE="1")


def exceptions() -> list[Call]:
    """Returns the listed patterns of calls whose answer may differ; each has a reason."""
    found = []
    for line in EXCEPTIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            call, reason = line.split(": ", 1)
            assert reason.strip(), line
            found.append(Call(*call.split()))
    return found


def excepts(pattern: Call, call: Call) -> bool:
    """Returns whether the pattern matches the call."""
    return all(fnmatch.fnmatchcase(one, p) for one, p in zip(call, pattern, strict=True))


def test_the_virtual_driver_answers_every_bad_call(plain: dict[Call, str]) -> None:
    assert len(plain) > 2000
    assert [call for call, answer in plain.items() if "ended" in answer] == []
    right = [answer for call, answer in plain.items() if call.how == "right"]
    assert sum(answer.startswith("0 ") for answer in right) > 200, (
        "too few right calls succeed for the comparison to prove anything"
    )


@pytest.mark.parametrize("options", [(), (f"--budget={BUDGET_MIB}MiB",)], ids=["dormant", "active"])
def test_bad_arguments_get_the_plain_drivers_answer(
    options: tuple[str, ...], binary: Path, plain: dict[Call, str]
) -> None:
    pumped = answers(binary, *options)
    assert pumped.keys() == plain.keys()
    different = {call for call in plain if pumped[call] != plain[call]}
    allowed = exceptions()
    wrong = [call for call in different if not any(excepts(one, call) for one in allowed)]
    assert not wrong, {tuple(call): (plain[call], pumped[call]) for call in sorted(wrong)}
    unused = [one for one in allowed if not any(excepts(one, call) for call in different)]
    assert not unused, "exceptions that nothing needs"
