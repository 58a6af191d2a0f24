"""Counts the instructions that a program executes in a stretch of its work: perf or callgrind.

DESIGN
  If the CPU has an instruction counter, perf reads it. Otherwise (on most virtual machines),
  valgrind's callgrind simulates the CPU. It counts only between two calls of counting.c, which
  takes seconds instead of the many minutes of a whole run of PyTorch. Either way a program runs a
  short and a long stretch. The difference is divided by the iterations between them, so start-up
  and warm-up cancel out.

  callgrind reports which library executes instructions. Instructions of the virtual driver, and of
  everything that it calls, are left out. The virtual driver replaces a GPU: Its threads work for as
  long as the clock lets them. It asks pump's pool where tensors end, which no driver does. perf
  cannot separate libraries and counts everything. Pure, except for probe().
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

PERF = ["perf", "stat", "-x,", "-e", "instructions:u"]
CALLGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
NAMED = re.compile(r"(c?ob|c?fn|cfi|cfl|f[ile])=\((\d+)\)(?: (.*))?")


def probe() -> str | None:
    """Returns "perf", "callgrind", or None if neither can count here."""
    if shutil.which("perf") is not None:
        done = subprocess.run([*PERF, "true"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and re.match(r"\d+,", done.stderr):
            return "perf"
    return "callgrind" if shutil.which("valgrind") is not None else None


def of_perf(text: str) -> int:
    """Returns the instructions in perf's output. Raises ValueError if it has none."""
    found = re.search(r"^(\d+),", text, re.MULTILINE)
    if found is None:
        raise ValueError("perf has counted nothing")
    return int(found[1])


class Dump(NamedTuple):
    """`own`: instructions of each library. `called`: instructions of functions that one library
    calls in another, with everything that those call, by (caller, callee)."""

    own: Counter[str]
    called: Counter[tuple[str, str]]

    def without(self, library: str) -> int:
        """Returns all instructions except for libraries of this name and their callees."""
        own = sum(count for name, count in self.own.items() if library not in name)
        theirs = (
            count
            for (caller, callee), count in self.called.items()
            if library in caller and library not in callee
        )
        return own - sum(theirs)


def of_callgrind(lines: Iterable[str]) -> Dump:
    """Parses one of callgrind's dumps. Raises ValueError for anything else."""
    names: dict[str, str] = {}
    own: Counter[str] = Counter()
    called: Counter[tuple[str, str]] = Counter()
    library = callee = ""
    in_call = seen = False
    for line in lines:
        named = NAMED.match(line)
        if named is not None:
            kind, number, name = named.groups()
            if not kind.endswith("ob"):
                continue
            if name is not None:
                names[number] = name
            if kind == "cob":
                callee = names[number]
            else:
                library = callee = names[number]
        elif line.startswith("calls="):
            in_call = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            count = int(line.split()[1])
            if in_call:
                called[library, callee] += count
            else:
                own[library] += count
            in_call, callee = False, library
        seen = seen or line.startswith("events: Ir")
    if not seen:
        raise ValueError("it is no dump of callgrind's that counts instructions")
    return Dump(own, called)
