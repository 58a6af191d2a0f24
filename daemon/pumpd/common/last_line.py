"""The last line of a job whose first process could not print it: it was killed, for instance.

DESIGN
  A process that a signal ends runs no code of the shim's, so pumpd prints. It holds no
  descriptor of the job's, since a pipe's reader would wait for pumpd then. pump-run names the
  terminal or the regular file that its standard error is, and pumpd opens it again for the one
  line. It names a file only if that is open for appending: what runs after the job would write
  over the line otherwise. Without a place, only the log has the line.

  Processes of the job note their lines, and whether the job has had its own
  (shim/life/job_end.c). The worker of a process that ended without a line notes its numbers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pump.names import printable
from pump.paths import NOTES_NAME
from pump.report.advice import NOTHING, VAGUE, estimated
from pump.report.words import size

NOTES_BYTES = 8 << 20
"""That are read."""
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LINE_MAX = 100
"""Characters of a line, "pump: " included, the job's name not."""
_PLACE = re.compile(r"([0-9]+):([0-9]+):(/.*)", re.DOTALL)
_ENDED = re.compile(r"ended ([0-9]{1,20}) ([^\t]*)\t(.*)")
_CUT = re.compile(r"cut" + 6 * r" ([0-9]{1,20})")
_LEFT = re.compile(r"left ([0-9]{1,3})")
_FAILED = "failed "

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


class Ended(NamedTuple):
    """The line of a process, as it composed it: the greatest rank counts (shim/life/last_line.h).
    brief: what follows the status of a program that failed."""

    rank: int
    full: str
    brief: str


class Notes(NamedTuple):
    """What is noted of a job: how many processes passed cuInit, and how it failed in one (""); the
    lines of those that ended; whether the job has had its line, and the status of its first
    process, None if that was killed; what workers noted of processes that ended without a line."""

    clients: int
    ended: Sequence[Ended] = ()
    said: bool = False
    cut: Sequence[Cut] = ()
    failed: str = ""
    status: int | None = None


class Place(NamedTuple):
    """Where a job's last line goes: device:inode:path, and what it begins with.

    name: of the job, where the user chose it. details: whether lines with more follow.
    """

    path: str
    name: str = ""
    details: bool = False


def write(place: Place, text: str) -> bool:
    """Write "pump: text" to the place, if it still is what it was. Returns whether it did."""
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
    """Print the job's last line, unless one of its processes has."""
    found = notes(folder)
    line = of_job(found)
    if line is None:
        return
    for text in details(found):
        if place.details:
            write(place, text)
    write(place, line)


def notes(folder: str) -> Notes:
    """What is noted in the job's folder; nothing where there is no file."""
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
    if found.failed and not found.clients:
        return _short(found.failed)
    full, brief = _texts(found)
    if found.status is None:
        return _short(f"ended by a signal or _exit; {brief}")
    return _short(f"failed with status {found.status}; {brief}" if found.status else full)


def _short(text: str) -> str:
    """The text, which is a line's: shim and worker make none that is longer."""
    return text[: LINE_MAX - len("pump: ")]


def _texts(found: Notes) -> tuple[str, str]:
    """The line of a program that succeeded, and what follows the status of one that failed."""
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
    """The time that a process lost, as a share: "lost about 50 % of 4.00 s to memory"."""
    whole = max(1, cut.of_ns)
    lost, least, most = (
        round(100 * min(part, whole) / whole) for part in (cut.lost_ns, cut.least_ns, cut.most_ns)
    )
    share = f"about {lost}" if most - least <= 100 * VAGUE else f"{least} to {most}"
    return f"lost {share if most > 100 * NOTHING else 'under 1'} % of {_time(whole)} to memory"


def _time(time_ns: int) -> str:
    """At most nine characters, as pump_duration_text of shim/life/last_line.c."""
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
    """What is said at level info before the line."""
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
