"""How many instructions a program executes in a stretch of its work: perf or callgrind.

DESIGN
  Processors that tell are asked by perf; others (most virtual machines) are played by
  valgrind's callgrind, which counts only between two calls of counting.c and so costs seconds
  where a whole run of PyTorch would cost many minutes. Either way a program runs a short
  and a long stretch, and the difference is divided by the iterations between them: start-up
  and warm-up subtract.

  callgrind tells by which library instructions are executed. Those of the virtual driver and
  of all that it calls are left out: it stands for a GPU, its threads work as long as the
  clock lets them, and it asks pump's pool where tensors end, which no driver does. perf cannot
  tell them apart and counts everything. Pure, but for probe().
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
    """ "perf", "callgrind", or None where neither can count here."""
    if shutil.which("perf") is not None:
        done = subprocess.run([*PERF, "true"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and re.match(r"\d+,", done.stderr):
            return "perf"
    return "callgrind" if shutil.which("valgrind") is not None else None


def of_perf(text: str) -> int:
    """The instructions in perf's file. Raises ValueError without any."""
    found = re.search(r"^(\d+),", text, re.MULTILINE)
    if found is None:
        raise ValueError("perf has counted nothing")
    return int(found[1])


class Dump(NamedTuple):
    """own: instructions of each library. called: of what functions of one library call in
    another, with all that those call, by (caller, callee)."""

    own: Counter[str]
    called: Counter[tuple[str, str]]

    def without(self, library: str) -> int:
        """Instructions of all but libraries of this name and of what they call."""
        own = sum(count for name, count in self.own.items() if library not in name)
        theirs = (
            count
            for (caller, callee), count in self.called.items()
            if library in caller and library not in callee
        )
        return own - sum(theirs)


def of_callgrind(lines: Iterable[str]) -> Dump:
    """The figures of one of callgrind's dumps. Raises ValueError for anything else."""
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
