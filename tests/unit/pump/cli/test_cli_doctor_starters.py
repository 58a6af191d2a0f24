"""pump doctor finds commands that start other programs without pump."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pump.cli.doctor import switches, target
from pump.cli.doctor.finding import OK, PROBLEM, Finding

Judge = Callable[..., Finding]
HEADER, PROGRAM_HEADER = 64, 56
INTERPRETER, PT_INTERP = "/lib64/ld-linux-x86-64.so.2", 3


def program(interpreter: str = INTERPRETER) -> bytes:
    """Returns a program for this machine with that loader; "": static."""
    header = bytearray(HEADER)
    header[:5] = b"\x7fELF\x02"
    own = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine, 62)
    struct.pack_into("<H", header, 18, own)
    struct.pack_into("<Q", header, 32, HEADER)
    struct.pack_into("<HH", header, 54, PROGRAM_HEADER, 1)
    place, name = HEADER + PROGRAM_HEADER, interpreter.encode() + b"\0"
    kind = PT_INTERP if interpreter else 1
    entry = struct.pack("<IIQQQQQQ", kind, 4, place, place, place, len(name), len(name), 1)
    return bytes(header) + entry + name


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Returns a judge of commands whose PATH has starters, a program `job`, and programs that are
    not served."""
    starters = ("env", "sh", "bash", "nice", "nohup", "timeout", "stdbuf", "setsid", "job", "sudo")
    files = dict.fromkeys(starters, program())
    files |= {"alpine": program("/lib/ld-musl-x86_64.so.1"), "static": program("")}
    files["emptied"] = b"#!/usr/bin/env -S -i job\n"
    files["script"] = b"#!/usr/bin/env -S A=1 job\n"
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)

    def found(*words: str) -> Finding:
        (finding,) = target.findings(words, {"PATH": str(tmp_path)})
        return finding

    return found


@pytest.mark.parametrize(
    "words",
    [
        ["job", "-i"],
        ["env", "A=1", "B=2", "job", "-i"],
        ["env", "-u", "OTHER", "--", "job"],
        ["env", "--unset=OTHER", "-C", "/", "LD_PRELOAD=/a.so:/x/libpump.so", "job"],
        ["env", "-S", "A=1 job", "-i"],
        ["env", "PUMP_DISABLE=0", "job"],
        ["env"],
        ["sh", "-c", "cd /; A=1 job x && env B=2 job | sort; exec job"],
        ["sh", "-c", "if job; then $NAME; fi; unset OTHER; export A=1"],
        ["bash", "-lc", 'echo "env -i job"; job'],
        ["sh", "script.sh"],
        ["sh", "-c", "an open 'quote"],
        ["timeout", "-s", "KILL", "5", "nice", "-n", "5", "stdbuf", "-oL", "nohup", "job"],
        ["script"],
    ],
    ids=" ".join,
)
def test_commands_that_keep_the_environment_are_served(judge: Judge, words: list[str]) -> None:
    assert judge(*words).status == OK, judge(*words)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["env", "-i", "job"], "env -i empties the environment"),
        (["env", "-", "A=1", "job"], "env - empties"),
        (["env", "-vi", "job"], "empties"),
        (["env", "--ignore-environment", "job"], "empties"),
        (["env", "-u", "LD_PRELOAD", "job"], "env removes LD_PRELOAD"),
        (["env", "-uLD_PRELOAD", "job"], "env removes LD_PRELOAD"),
        (["env", "--unset=LD_PRELOAD", "A=1", "job"], "env removes LD_PRELOAD"),
        (["env", "-S", "-i job"], "empties"),
        (["env", "LD_PRELOAD=/x/libjemalloc.so", "job"], "takes the place of pump's"),
        (["env", "PUMP_DISABLE=1", "job"], "switches pump off"),
        (["env", "A=1", "static"], "statically linked"),
        (["env", "nothing"], "not found"),
        (["nice", "-n", "5", "timeout", "-k", "1", "5", "env", "-i", "job"], "empties"),
        (["sh", "-c", "job && env -i job"], "empties"),
        (["sh", "-c", "LD_PRELOAD= job"], "takes the place"),
        (["sh", "-c", "unset LD_PRELOAD; job"], "unset LD_PRELOAD"),
        (["sh", "-c", "export LD_PRELOAD=/a.so\njob"], "takes the place"),
        (["bash", "-ec", "sudo job"], "does not pass on its environment"),
        (["sh", "-c", "sh -c 'static'"], "statically linked"),
        (["setsid", "alpine"], "uses musl"),
        (["emptied"], "empties"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_loses_pump_on_the_way_is_said(judge: Judge, words: list[str], text: str) -> None:
    found = judge(*words)
    assert found.status == PROBLEM, found
    assert text in found.text and found.remedy, found


def test_the_remedy_puts_pump_run_behind_what_loses_it(judge: Judge) -> None:
    found = judge("nohup", "env", "-i", "A=1", "job", "two words")
    assert found.remedy.endswith("pump-run job 'two words'")


def test_commands_that_start_themselves_are_examined_in_bounded_time(judge: Judge) -> None:
    assert judge(*["env"] * 100, "job").status == OK


@pytest.mark.parametrize(
    ("chosen", "served"),
    [("", True), ("verify_asan_link_order=0", True), ("a=1:verify_asan_link_order=1", False)],
)
def test_a_sanitizer_that_wants_to_come_first_is_named(chosen: str, served: bool) -> None:
    found = switches.findings({"ASAN_OPTIONS": chosen})
    assert ("ASAN_OPTIONS" in {finding.name for finding in found}) != served
