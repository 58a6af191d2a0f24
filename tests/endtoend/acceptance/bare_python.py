"""Makes a Python with the packages of a lent GPU's image, without pump, and a checkout for it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

from places import ROOT

INSTALLED = (
    "numpy",
    "psutil",
    "nvidia-ml-py",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "scikit-learn",
)
"""Packages of the machine; the image has more, but none that pump needs."""
CARRIED = (
    *("cffi", "msgspec", "pycparser"),
    *("rich", "markdown-it-py", "mdurl", "pygments", "prometheus_client"),
)
"""Packages that travel as wheels."""
TREES = ("pump", "daemon/pumpd", "lab/pump_lab", "scripts", "examples", "tests/acceptance")
ALONE = (["unshare", "-n"], ["unshare", "-rn"])
"""Prefixes that run a command without a network, for root and for other users."""


def entries(package: str) -> set[Path]:
    """Returns the files and folders of an installed package in this interpreter's site-packages."""
    folder = Path(site.getsitepackages()[0])
    files = importlib.metadata.distribution(package).files or []
    names = {file.parts[0] for file in files} - {"..", "__pycache__"}
    return {folder / name for name in names}


def with_needs(packages: Iterable[str]) -> set[str]:
    """Returns the packages and all of their installed requirements."""
    found: set[str] = set()
    todo = list(packages)
    while todo:
        package = todo.pop()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            needs = importlib.metadata.requires(package) or []
            if package not in found:
                found.add(package)
                todo += [re.split(r"[^\w.-]", text)[0] for text in needs if "extra" not in text]
    return found


def python(folder: Path) -> Path:
    """Makes the Python; returns its executable. Links to packages make this fast (a second)."""
    venv.create(folder / "python", with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = folder / "python" / "lib" / version / "site-packages"
    for entry in {entry for name in with_needs(INSTALLED) for entry in entries(name)}:
        (own / entry.name).symlink_to(entry)
    return folder / "python" / "bin" / "python"


def wheels(folder: Path) -> Path:
    """Makes wheels of CARRIED from the installed files; returns their folder."""
    out = folder / "wheels"
    out.mkdir()
    for package in CARRIED:
        with zipfile.ZipFile(out / f"{package}-1.0-py3-none-any.whl", "w") as archive:
            for entry in entries(package):
                files = entry.rglob("*") if entry.is_dir() else [entry]
                for file in files:
                    if file.is_file() and file.suffix != ".pyc":
                        archive.write(file, file.relative_to(entry.parent))
    return out


def checkout(folder: Path) -> Path:
    """Copies the parts of the checkout that the acceptance runs; returns the folder."""
    root = folder / "checkout"
    for tree in TREES:
        if (ROOT / tree).is_dir():
            shutil.copytree(ROOT / tree, root / tree, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", root)
    return root


def without_network() -> list[str]:
    """Returns the prefix that runs a command without a network; empty if that is not allowed."""
    for words in ALONE:
        try:
            done = subprocess.run([*words, "true"], capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return words
    return []
