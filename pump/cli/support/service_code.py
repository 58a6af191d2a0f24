"""Checks that a service may run a pumpd: other users cannot replace any part of its code, and the
service's own user can read all of it. Reads files; starts nothing.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator

from pump.base import inputs, trust
from pump.cli.support.lines import BadInputError

ANOTHER = "name another pumpd with --pumpd PATH"
REMEDY = (
    "install pump for all users, as root (python3 -m venv /opt/pump && "
    f"/opt/pump/bin/pip install ...), or {ANOTHER}"
)
PACKAGES = ("pump", "pumpd")
SCRIPT_BYTES = 4096
"""Bytes to read of a script, to find its interpreter."""


def check(pumpd: str, *, user: bool) -> None:
    """Raises BadInputError if other users could replace a file of pumpd, or if the service's user
    could not read one. `user`: check for a user's own service; otherwise for the user pump."""
    if not os.path.isfile(pumpd):
        raise BadInputError(f"there is no {pumpd}; name it with --pumpd PATH")
    interpreter = _interpreter(pumpd)
    programs = [pumpd, *([interpreter] if interpreter else [])]
    beside = os.path.join(os.path.dirname(pumpd), "pump")  # pump-metrics.service starts it
    programs += [beside] if not user and os.path.lexists(beside) else []
    programs += [start] if os.path.lexists(start := _start(pumpd)) else []
    for path in (*programs, *_libraries(programs)):
        need = os.R_OK | os.X_OK if path in programs or os.path.isdir(path) else os.R_OK
        try:
            weak = trust.weakness(path, (os.geteuid(),) if user else ())
            mine = "" if os.access(path, need) else path
            closed = mine if user else _closed_to_others(path, need)
        except OSError as error:
            raise BadInputError(f"{path}: {error.strerror}; {REMEDY}") from None
        if weak:
            own = f"remove that permission (chmod go-w {weak.path}), or {ANOTHER}"
            raise BadInputError(
                f"{pumpd}: {weak.path} {weak.why}, so other users could replace the "
                f"service's program; {own if user else REMEDY}"
            )
        if closed:
            others = "you" if user else "others"
            raise BadInputError(
                f"{pumpd}: {others} may not enter, read or execute {closed}, so the "
                f"service's user cannot start it; {REMEDY}"
            )


def _closed_to_others(path: str, need: int) -> str:
    """Returns the first component that users other than its owner and group may not enter; for the
    last one: not read or execute (need: os.R_OK, os.X_OK). Returns "" if there is none."""
    *parents, (end, status) = trust.components(path)
    for at, passed in parents:
        if stat.S_ISDIR(passed.st_mode) and not passed.st_mode & stat.S_IXOTH:
            return at
    return "" if status.st_mode & need == need else end


def _libraries(programs: list[str]) -> Iterator[str]:
    """Yields the files and folders that a pumpd and its interpreter import from."""
    prefixes = [os.path.dirname(os.path.dirname(programs[0]))]
    prefixes += [os.path.dirname(os.path.dirname(os.path.realpath(one))) for one in programs[1:]]
    for prefix in dict.fromkeys(prefixes):
        yield from glob.glob(f"{glob.escape(prefix)}/pyvenv.cfg")
        for library in glob.glob(f"{glob.escape(prefix)}/lib/python3*"):
            yield library
            for site in ("site-packages", "dist-packages"):
                yield from _below(os.path.join(library, site))
    if os.path.dirname(programs[0]) == os.path.dirname(sys.executable):  # maybe editable
        for name in PACKAGES:
            spec = importlib.util.find_spec(name)
            for folder in (spec.submodule_search_locations or ()) if spec else ():
                yield from _tree(folder)


def _below(site: str) -> Iterator[str]:
    """Yields a folder of packages, its entries, and all files of pump's own packages."""
    if not os.path.isdir(site):
        return
    yield site
    for name in os.listdir(site):
        path = os.path.join(site, name)
        if name in PACKAGES:
            yield from _tree(path)
        else:
            yield path


def _tree(folder: str) -> Iterator[str]:
    yield folder
    for at, folders, files in os.walk(folder):
        yield from (os.path.join(at, name) for name in folders + files)


def _start(script: str) -> str:
    """Returns the path of pump-start, whose first line names the Python of pump's commands."""
    return os.path.join(os.path.dirname(script), "pump-start")


def _interpreter(script: str) -> str:
    """Returns the program that a script's first line names, "" for none. For a command of pump,
    returns the Python that the command starts (daemon/launcher)."""
    start = _start(script)
    ours = os.path.isfile(start)
    first = inputs.start(start if ours else script, SCRIPT_BYTES).partition(b"\n")[0]
    line = os.fsdecode(first).strip()
    named = line[2:] if line.startswith("#!") else ""
    if not ours:
        return named.partition(" ")[0]
    whole = named.startswith("/") and named != "/bin/sh" and os.access(named, os.X_OK)
    return named if whole else os.path.join(os.path.dirname(start), "python")
