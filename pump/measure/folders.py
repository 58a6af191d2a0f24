"""A folder for each run: what the command reads is there by its relative name, what it writes
newly stays apart from the other runs'.

The folder mirrors the present one: real folders, and links to the files. So `python train.py`,
`python -m package` and `open("data/x")` find what they find here, and a checkpoint goes to the
run's own folder. A file that is there already is one file for all runs.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

ENTRIES_MOST = 20_000
"""Mirrored one by one; of more, whole folders are linked."""
SELDOM_WRITTEN = ("pyvenv.cfg", "conda-meta")
"""In a folder with one of them lies an environment of Python."""


def mirror(source: Path, target: Path, without: Path) -> None:
    """Make the folder `target` a mirror of `source`, but for `without` and what lies there.

    Hidden folders, environments of Python and what lies behind ENTRIES_MOST are links to whole
    folders. Raises OSError.
    """
    target.mkdir()
    left = ENTRIES_MOST
    waiting = deque([(source, target)])
    while waiting:
        here, there = waiting.popleft()
        with os.scandir(here) as entries:
            found = list(entries)
        left -= len(found)
        for entry in found:
            path = here / entry.name
            if path == without:
                continue
            if _own(entry, path, left):
                (there / entry.name).mkdir()
                waiting.append((path, there / entry.name))
            else:
                (there / entry.name).symlink_to(path)


def _own(entry: os.DirEntry[str], path: Path, left: int) -> bool:
    return (
        left > 0
        and entry.is_dir(follow_symlinks=False)
        and not entry.name.startswith(".")
        and os.access(path, os.R_OK | os.X_OK)
        and not any((path / name).exists() for name in SELDOM_WRITTEN)
    )
