"""Runs a part of pump in an interpreter that nothing of the user's program changes.

    python -E -P -S start.py COMMAND [argument ...]

COMMAND: pump-run, pump, pumpd; a module with a `main`; or -c and code. -E leaves out PYTHONHOME and
the like, and without -S, site would run a sitecustomize before any line of pump's. The environment
itself stays: pump-run passes it on to the program.

The same file is the command pump-start, from which the other commands learn their interpreter
(daemon/launcher). So it imports nothing of pump before pump can be found.
"""

import contextlib
import os
import site
import sys

MAINS = {"pump-run": "pump.cli.run", "pump": "pump.cli.main", "pumpd": "pumpd.main"}


def find_packages() -> None:
    """Does what site does at the start, but for sitecustomize and usercustomize.

    Where pump is none of the interpreter's own packages, as with modules of a cluster, the folders
    of PYTHONPATH follow: last, so that a json.py there hides nothing.
    """
    vars(site).update(execsitecustomize=_nothing, execusercustomize=_nothing)
    site.main()
    try:
        import pump  # noqa: F401
    except ModuleNotFoundError:
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        folders = [here, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        sys.path += [os.path.abspath(folder) for folder in folders if folder]


def _nothing() -> None:
    """Takes the place of what site would run."""


def run(words: list[str]) -> str | int | None:
    """Run a command and return its exit status."""
    name, *rest = words
    if name == "-c":
        sys.argv = words[:1] + rest[1:]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        return 0
    sys.argv = words
    if name in MAINS:  # ps and top show the command
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write(name)
    import importlib

    status: str | int | None = importlib.import_module(MAINS.get(name, name)).main()
    return status


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("pump-start: internal; use pump-run, pump or pumpd")
    find_packages()
    sys.exit(run(sys.argv[1:]))
