"""Names pumpd's processes, so that users and tests can find them."""

from __future__ import annotations

import contextlib
from pathlib import Path


def name_process(name: str) -> None:
    """Sets the name that ps and top show, at most 15 characters (prctl(2), PR_SET_NAME)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
