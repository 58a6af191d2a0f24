"""The name of a process, by which users and tests find pumpd's processes."""

from __future__ import annotations

import contextlib
from pathlib import Path


def name_process(name: str) -> None:
    """Set the name that ps and top show, 15 characters at most (prctl(2), PR_SET_NAME)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
