"""Prints the last line of a job whose first process could not, for example because it was killed.

DESIGN
  A process that is killed by a signal runs no shim code, so pumpd prints the line. The job's
  descriptors are not kept open for it, because a pipe's reader would then wait for pumpd. Instead,
  pump-run passes the name of the terminal or regular file on its standard error, and pumpd opens
  it again for this line. The name of a file is passed only if it is open for appending: otherwise,
  later output would overwrite the line. Without a name, only the log contains the line.

  Processes of the job note their own lines, and whether the job's line has been printed
  (shim/life/job_end.c). If a process ends without a line, its worker notes its numbers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pump.base.names import printable
from pump.base.paths import NOTES_NAME
from pump.report.advice import NOTHING, VAGUE, estimated
from pump.report.words import size

NOTES_BYTES = 8 << 20
"""Most bytes that are read from the file of notes."""
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LINE_MAX = 100
"""Most characters of a line, including "pump: " but not the job's name."""
_PLACE = re.compile(r"([0-9]+):([0-9]+):(/.*)", re.DOTALL)
_ENDED = re.compile(r"ended ([0-9]{1,20}) ([^\t]*)\t(.*)")
_CUT = re.compile(r"cut" + 6 * r" ([0-9]{1,20})")
_LEFT = re.compile(r"left ([0-9]{1,3})")
_FAILED = "failed "

log = logging.getLogger("pumpd")


class Cut(NamedTuple):
    """The last numbers that a worker had of a process that ended without a line. Times are in ns;
    `of_ns`: the time in which `lost_ns` was lost."""

    of_ns: int
    lost_ns: int
    least_ns: int
    most_ns: int
    peak_bytes: int
    budget_bytes: int


class Ended(NamedTuple):
    """A process's own line; the one with the highest rank is printed (shim/life/last_line.h).
    `brief`: the text after the status of a failed program."""

    rank: int
    full: str
    brief: str


class Notes(NamedTuple):
    """A job's notes. `clients`: processes that passed cuInit. `ended`: lines of ended processes.
    `said`: the job's line has been printed. `cut`: one for each process that ended without a line.
    `failed`: how cuInit failed, or "". `status`: of the first process; None if it was killed."""

    clients: int
    ended: Sequence[Ended] = ()
    said: bool = False
    cut: Sequence[Cut] = ()
    failed: str = ""
    status: int | None = None


class Place(NamedTuple):
    """The destination of a job's last line, and its prefix.

    `path`: device:inode:path. `name`: the job's name if the user chose it, else "". `details`:
    whether lines with details precede the last line.
    """

    path: str
    name: str = ""
    details: bool = False


def write(place: Place, text: str) -> bool:
    """Writes "pump: text" if the place is still the same file. Returns whether it succeeded."""
    log.info("%s", text)
    match = _PLACE.fullmatch(place.path)
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
        name = f"[{place.name}] " if place.name else ""
        line = f"pump: {name}{printable(text)}\n".encode(errors="replace")
        return os.write(descriptor, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def end_job(place: Place, folder: str) -> None:
    """Prints the job's last line, unless one of its processes has printed it."""
    found = notes(folder)
    line = of_job(found)
    if line is None:
        return
    for text in details(found):
        if place.details:
            write(place, text)
    write(place, line)


def notes(folder: str) -> Notes:
    """Returns the notes in the job's folder; empty notes if there is no file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{folder}/{NOTES_NAME}", flags)
    except OSError:
        return Notes(0)
    with os.fdopen(descriptor, "rb") as file:
        lines = file.read(NOTES_BYTES).decode(errors="replace").splitlines()
    left = [int(m[1]) for m in map(_LEFT.fullmatch, lines) if m]
    failed = [line.removeprefix(_FAILED) for line in lines if line.startswith(_FAILED)]
    return Notes(
        lines.count("client"),
        [Ended(int(m[1]), m[2], m[3]) for m in map(_ENDED.fullmatch, lines) if m],
        "said" in lines,
        [Cut(*map(int, m.groups())) for m in map(_CUT.fullmatch, lines) if m],
        failed[-1] if failed else "",
        left[-1] if left else None,
    )


def note(folder: str, numbers: Cut) -> None:
    """Notes the numbers of a process that ended without a line, in the job's folder."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{folder}/{NOTES_NAME}", flags)
    except OSError:
        return  # the job's line will lack these numbers
    with os.fdopen(descriptor, "ab", buffering=0) as file, contextlib.suppress(OSError):
        file.write(" ".join(map(str, ("cut", *numbers))).encode() + b"\n")


def of_job(found: Notes) -> str | None:
    """Returns the last line of an ended job; None if it has been printed."""
    if found.said:
        return None
    if found.failed and not found.clients:
        return _short(found.failed)
    full, brief = _texts(found)
    if found.status is None:
        return _short(f"ended by a signal or _exit; {brief}")
    return _short(f"failed with status {found.status}; {brief}" if found.status else full)


def _short(text: str) -> str:
    """Truncates a text to the length of a line, which texts of shim and worker never exceed."""
    return text[: LINE_MAX - len("pump: ")]


def _texts(found: Notes) -> tuple[str, str]:
    """Returns the line of a successful program, and the text after the status of a failed one."""
    if found.ended and len(found.ended) >= found.clients:
        best = max(found.ended)
        return best.full, best.brief
    if found.cut:
        lost = _lost(max(found.cut))
        return lost, lost
    if found.clients:
        unknown = "pump's effect is unknown"
        return f"{unknown}: a process ended by a signal or _exit", unknown
    return (
        "no process of this job used CUDA, so pump did nothing: pump saw no call of cuInit",
        "no process of this job used CUDA",
    )


def _lost(cut: Cut) -> str:
    """Formats the time lost by a process as a share: "lost about 50 % of 4.00 s to memory"."""
    whole = max(1, cut.of_ns)
    lost, least, most = (
        round(100 * min(part, whole) / whole) for part in (cut.lost_ns, cut.least_ns, cut.most_ns)
    )
    share = f"about {lost}" if most - least <= 100 * VAGUE else f"{least} to {most}"
    return f"lost {share if most > 100 * NOTHING else 'under 1'} % of {_time(whole)} to memory"


def _time(time_ns: int) -> str:
    """Formats at most nine characters, like pump_duration_text of shim/life/last_line.c."""
    for below_s, unit_s, decimals, name in (
        (1.0, 1e-3, 0, "ms"),
        (10.0, 1.0, 2, "s"),
        (60.0, 1.0, 1, "s"),
        (3600.0, 60.0, 1, "min"),
        (48 * 3600.0, 3600.0, 1, "h"),
        (1000 * 86400.0, 86400.0, 0, "days"),
    ):
        if time_ns / 1e9 < below_s:
            return f"{time_ns / 1e9 / unit_s:.{decimals}f} {name}"
    return f"{time_ns / 1e9 / (365 * 86400.0):.0f} years"


def details(found: Notes) -> list[str]:
    """Returns the lines that precede the last line at log level info."""
    if found.cut:
        cut = max(found.cut)
        names = ("seconds", "least_seconds", "most_seconds", "of_seconds")
        times = (cut.lost_ns, cut.least_ns, cut.most_ns, cut.of_ns)
        lost = estimated({name: value / 1e9 for name, value in zip(names, times, strict=True)})
        others = f", in the longest of {len(found.cut)} processes" if len(found.cut) > 1 else ""
        budget = size(cut.budget_bytes) if cut.budget_bytes else "not known"
        return [
            f"time lost to memory: {lost}{others} (to measure: pump compare -- COMMAND)",
            f"memory: peak {size(cut.peak_bytes)}, budget {budget}",
        ]
    if found.clients > len(found.ended):
        return ["next time use pump-run --record FILE, which keeps the numbers (pump report FILE)"]
    return []
