"""Compiles files of tests once for all processes of a test run.

Not a test. tests/conftest.py makes the folder in the process that starts the others.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "TESTS_BUILDS"
"""Tells the processes of a run the path of the folder."""


@functools.cache
def folder() -> Path:
    """Returns the folder of this run. The first process makes it, and removes it at its end."""
    if VARIABLE not in os.environ:
        made = tempfile.mkdtemp(prefix="pump-builds-")
        Path(made).chmod(0o755)  # other users also run programs from it
        os.environ[VARIABLE] = made
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ[VARIABLE])


def once(name: str, make: Callable[[Path], object]) -> Path:
    """Returns the folder `name` of this run after `make` has filled it. Other processes wait."""
    made = folder() / name
    with made.with_name(f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_size == 0:
            shutil.rmtree(made, ignore_errors=True)  # left by a failed call
            made.mkdir()
            make(made)
            lock.write("made")
    return made
