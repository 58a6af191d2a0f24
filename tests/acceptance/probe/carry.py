"""Packs the package and its commit into one file for a machine without the checkout."""

from __future__ import annotations

import pkgutil
import subprocess
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
COMMIT_FILE = "commit.txt"
"""Only in a carried file, because the target machine has no git checkout."""
START = "import sys\n\nfrom probe.entry import main\n\nsys.exit(main())\n"


def write(target: Path) -> None:
    """Writes the whole package to one executable file for a Python with cuda-bindings.

    Raises OSError if the file cannot be written, or if this program is such a file itself.
    """
    if not PACKAGE.is_dir():
        raise OSError("this file was carried itself; copy it")
    fresh = target.with_name(f".{target.name}.new")
    with fresh.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__main__.py", START)
            for source in sorted(PACKAGE.rglob("*.py")):
                archive.write(source, Path("probe") / source.relative_to(PACKAGE))
            archive.writestr(f"probe/{COMMIT_FILE}", commit())
    fresh.chmod(0o755)
    fresh.replace(target)


def commit() -> str:
    """Returns the commit of the checkout that this file is in or was carried from, "" if unknown.
    Appends "-dirty" if the checkout had changes."""
    if not PACKAGE.is_dir():
        return (pkgutil.get_data("probe", COMMIT_FILE) or b"").decode()
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        done = subprocess.run(
            command, cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
