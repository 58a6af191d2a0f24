"""Runs a part of pump in an interpreter that is isolated from the user's settings.

    python -E -P -S start.py COMMAND [argument ...]

COMMAND: `pump-run`, `pump`, `pumpd`; a module with a `main`; or -c and code. -E ignores PYTHONHOME
and similar variables. -S keeps site from running a sitecustomize before pump's first line. The
environment itself stays unchanged: pump-run passes it on to the program.

This file is also the command pump-start, which the other commands read to find their interpreter
(daemon/launcher). So the file imports nothing of pump before find_packages() has run.
"""

import contextlib
import os
import site
import sys

MAINS = {"pump-run": "pump.cli.run", "pump": "pump.cli.main", "pumpd": "pumpd.main"}


def find_packages() -> None:
    """Sets up the module path like site, but runs neither sitecustomize nor usercustomize.

    If the interpreter does not find pump, as with environment modules of a cluster, appends pump's
    own folder and PYTHONPATH. They come last, so that a json.py there hides nothing.
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
    """Replaces the customization hooks of site."""


def run(words: list[str]) -> str | int | None:
    """Runs a command and returns its exit status."""
    name, *rest = words
    if name == "-c":
        sys.argv = words[:1] + rest[1:]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        return 0
    sys.argv = words
    if name in MAINS:  # so that ps and top show the command
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
