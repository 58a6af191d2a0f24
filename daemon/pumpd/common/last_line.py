"""The last line of a job whose first process could not print it: it was killed, for instance.

DESIGN
  A process that a signal ends runs no code of the shim's, so pumpd prints. It holds no
  descriptor of the job's, since a pipe's reader would wait for pumpd then. pump-run names the
  terminal or the regular file that its standard error is, and pumpd opens it anew for the one
  line. Where standard error is a pipe or a socket, only the log has the line.

  What processes of the job have noted tells whether there was a line (shim/life/job_end.c). The
  worker of a process that ended without a line notes its figures.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pump.paths import NOTES_NAME
from pump.report.advice import estimated
from pump.report.words import size

NOTES_BYTES = 65536
"""That are read."""
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PLACE = re.compile(r"([0-9]+):([0-9]+):(/.*)", re.DOTALL)
_FITTED = re.compile(r"fitted ([0-9]{1,20}) ([0-9]{1,20})")
_CUT = re.compile(r"cut ([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,20}) ([0-9]{1,20}) "
                  r"([0-9]{1,20})")  # fmt: skip

log = logging.getLogger("pumpd")


class Cut(NamedTuple):
    """Figures of a process that ended without a line, as its worker knew them last. Times in ns;
    `of_ns`: how long its operations were followed."""

    of_ns: int
    lost_ns: int
    least_ns: int
    most_ns: int
    peak_bytes: int
    budget_bytes: int


class Notes(NamedTuple):
    """What processes of the job noted: how many passed cuInit, peak and budget in bytes of those
    that pump left alone, whether a process has printed the job's last line; and what workers
    noted of processes that ended without one."""

    clients: int
    fitted: list[tuple[int, int]]
    said: bool
    cut: Sequence[Cut] = ()


def write(place: str, text: str) -> bool:
    """Write "pump: text" to the place, if it still is what it was. Returns whether it did."""
    log.info("%s", text)
    match = _PLACE.fullmatch(place)
    if match is None:
        return False
    try:
        descriptor = os.open(match[3], FLAGS)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (int(match[1]), int(match[2])):
            return False
        line = f"pump: {text}\n".encode(errors="replace")
        return os.write(descriptor, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def end_job(place: str, folder: str) -> None:
    """Print the job's last line, unless one of its processes has."""
    if line := of_job(notes(folder)):
        write(place, line)


def notes(folder: str) -> Notes:
    """What is noted in the job's folder; nothing where there is no file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{folder}/{NOTES_NAME}", flags)
    except OSError:
        return Notes(0, [], False)
    with os.fdopen(descriptor, "rb") as file:
        lines = file.read(NOTES_BYTES).decode(errors="replace").splitlines()
    fitted = [(int(m[1]), int(m[2])) for m in map(_FITTED.fullmatch, lines) if m]
    cut = [Cut(*map(int, m.groups())) for m in map(_CUT.fullmatch, lines) if m]
    return Notes(lines.count("client"), fitted, "said" in lines, cut)


def note(folder: str, figures: Cut) -> None:
    """Note the figures of a process that ended without a line, in the job's folder."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{folder}/{NOTES_NAME}", flags)
    except OSError:
        return  # its line says less
    with os.fdopen(descriptor, "ab", buffering=0) as file, contextlib.suppress(OSError):
        file.write(" ".join(map(str, ("cut", *figures))).encode() + b"\n")


def of_job(found: Notes) -> str | None:
    """The line for a job that has ended; None where there was one."""
    if found.said:
        return None
    if found.fitted and len(found.fitted) == found.clients:
        peak, budget = max(found.fitted)
        if not peak:
            return "this job used CUDA and allocated no GPU memory, so pump did nothing"
        return (
            f"peak {size(peak)} of a budget of {size(budget)}: all of it fitted on the GPU, so "
            "pump did nothing"
        )
    if found.cut:
        return _of_cut(max(found.cut), len(found.cut))
    if found.clients:
        return (
            "this job ended before pump could sum up what it did: by a signal (Ctrl-C, SIGTERM, a "
            "time limit) or _exit; pump-run --record FILE keeps the figures even then, for pump "
            "report FILE"
        )
    return (
        "no process of this job used CUDA (none called cuInit), so pump did nothing; if one "
        "should have, put pump-run in front of that program itself; pump doctor -- COMMAND tells "
        "more"
    )


def _of_cut(cut: Cut, count: int) -> str:
    """The line of the process that was followed longest, of so many."""
    names = ("seconds", "least_seconds", "most_seconds", "of_seconds")
    times = (cut.lost_ns, cut.least_ns, cut.most_ns, cut.of_ns)
    lost = estimated({name: value / 1e9 for name, value in zip(names, times, strict=True)})
    others = f", the longest of {count} processes" if count > 1 else ""
    ratio = f" ({cut.peak_bytes / cut.budget_bytes:.2f}x)" if cut.budget_bytes else ""
    return (
        f"time lost to memory: {lost}{others}, until a signal (Ctrl-C, SIGTERM, a time limit) or "
        f"_exit ended it; peak {size(cut.peak_bytes)} on a budget of {size(cut.budget_bytes)}"
        f"{ratio}; "
        "pump compare -- COMMAND measures what memory costs"
    )
