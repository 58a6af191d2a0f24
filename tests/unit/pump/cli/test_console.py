"""Output for people: the verbs that import rich, and tables on narrow terminals and in pipes."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from pump.base.console import Columns, console
from pump.cli.doctor import _lines
from pump.cli.doctor.finding import ok, problem, warning
from pump.cli.main import VERBS

FOR_PEOPLE = {"top", "doctor", "jobs", "compare", "fit"}
CODE = """
import sys
import {module}
print(sorted({{name.partition('.')[0] for name in sys.modules}} & {{'rich', 'prometheus_client'}}))
"""


@pytest.mark.parametrize("verb", ["run", *sorted(set(VERBS) - FOR_PEOPLE)])
def test_only_verbs_for_people_import_rich(verb: str) -> None:
    module = VERBS.get(verb, "pump.cli.run")
    code = CODE.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ("['prometheus_client']" if verb == "service metrics" else "[]")


def test_a_narrow_table_leaves_out_columns_and_cuts_no_number() -> None:
    def shown(width: int) -> list[str]:
        made = Columns(["NAME", "BYTES", "MORE"], {"BYTES"}, ["MORE", "BYTES"])
        made.add_row("train.py", "1024.0 MiB", "x" * 30)
        out = io.StringIO()
        Console(file=out, width=width).print(made)
        return [line.rstrip() for line in out.getvalue().splitlines()]

    assert shown(80) == ["NAME          BYTES MORE", f"train.py 1024.0 MiB {'x' * 30}"]
    assert shown(30) == ["NAME          BYTES", "train.py 1024.0 MiB"]
    assert shown(10) == ["NAME", "train.py"]


def test_a_pipe_gets_whole_lines_without_colours_and_with_what_its_encoding_has() -> None:
    made = Columns(["NAME"], (), ())
    made.add_row("é" * 300, style="bad")
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    console(out).print(made)
    out.flush()
    assert raw.getvalue().split() == [b"NAME", b"?" * 300]


def test_a_reader_that_has_gone_is_an_error_for_the_verb_and_no_exit() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        console(Gone()).print("x")


def test_doctors_problems_come_first_and_what_is_fine_is_short() -> None:
    found = [
        ok("memfd", "shared memory works"),
        warning("pidfd", "slow", "use another kernel"),
        ok("driver", "CUDA 13.0"),
        problem("devices", "none\x1b", "unset CUDA_VISIBLE_DEVICES"),
        ok("sockets", "in /run"),
    ]
    assert [line.plain.rstrip() for line in _lines(found)] == [
        "problem  devices: none?",
        "           fix: unset CUDA_VISIBLE_DEVICES",
        "warning  pidfd: slow",
        "           fix: use another kernel",
        "ok       driver: CUDA 13.0",
        "ok       memfd, sockets",
    ]
