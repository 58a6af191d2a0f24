"""The name of a process, by which tests and people find the parts of pumpd."""

from __future__ import annotations

import contextlib
from pathlib import Path


def name_process(name: str) -> None:
    """Sets the name that ps and top show (15 characters at most)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
