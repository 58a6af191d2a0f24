"""What tests compile, once for all processes of a test run.

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
"""Names the folder to the processes of a run."""


@functools.cache
def folder() -> Path:
    """The folder of this run. The first process that asks makes it, and removes it at its end."""
    if VARIABLE not in os.environ:
        made = tempfile.mkdtemp(prefix="pump-builds-")
        Path(made).chmod(0o755)  # programs run as other users, too
        os.environ[VARIABLE] = made
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ[VARIABLE])


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` of this run, which `make` has filled. Other processes wait meanwhile."""
    made = folder() / name
    with made.with_name(f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_size == 0:
            shutil.rmtree(made, ignore_errors=True)  # of one that failed
            made.mkdir()
            make(made)
            lock.write("made")
    return made
