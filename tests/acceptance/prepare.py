"""--prepare: on a machine with a network, downloads the wheels that the GPU's machine lacks.

The wheels go into one folder, which is copied along with the checkout; build.py unpacks them there.
pip downloads, for Python 3.12, only packages that are not in AVAILABLE_THERE.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from acceptance.contract import Json
from acceptance.results import now

MACHINES = ("x86_64", "aarch64")
PYTHON = "3.12"
GLIBC = (17, 24, 28, 31, 34, 35, 39)
"""Minor versions of glibc 2 for which wheels are accepted."""
TOTAL_BYTES_MAX = 50_000_000
LIMIT_S = 600
MANIFEST = "manifest.json"

AVAILABLE_THERE = (
    *("torch", "triton", "jax", "cupy", "cuda-bindings", "cuda-python", "numpy", "psutil"),
    *("nvidia-ml-py", "scikit-learn", "pytest", "cmake", "ninja", "nvidia-cuda-nvrtc"),
)
"""Packages known to be on the GPU's machine; cuda-python only wraps cuda-bindings."""


class PrepareError(Exception):
    """The wheels could not be downloaded; the text gives the reason."""


Told = Callable[[str], None]


def dependencies(pyproject: str) -> list[str]:
    """Returns pump's own requirements, with their versions."""
    import tomllib

    found = tomllib.loads(pyproject)["project"]["dependencies"]
    return [str(requirement) for requirement in found]


def name_of(requirement: str) -> str:
    """Returns the package of a requirement, spelled as in names of wheels."""
    return re.split(r"[ <>=!~\[;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def lacking(requirements: Sequence[str], available: Sequence[str]) -> list[str]:
    return [text for text in requirements if name_of(text) not in available]


def command(requirements: Sequence[str], folder: Path, machine: str) -> list[str]:
    """Returns the pip command, which also resolves the wheels' own dependencies."""
    words = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    words += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    words += [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
    words += [f"--platform=manylinux2014_{machine}", "--dest", str(folder)]
    return [*words, *requirements]


def main(folder: Path, machine: str, told: Told) -> int:
    """Downloads into `folder` and writes its manifest. Raises PrepareError."""
    root = Path(__file__).resolve().parents[2]
    requirements = lacking(dependencies((root / "pyproject.toml").read_text()), AVAILABLE_THERE)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    told(f"fetching {', '.join(requirements)} for Python {PYTHON} on {machine} ...")
    fetch(command(requirements, folder, machine))
    entries = manifest(sorted(folder.glob("*.whl")))
    (folder / MANIFEST).write_text(json.dumps(entries, indent=1) + "\n")
    total = sum(entry["size_bytes"] for entry in entries["wheels"])
    print(f"{len(entries['wheels'])} wheels, {total / 1e6:.1f} MB, in {folder}: carry it along")
    return 0


def fetch(words: Sequence[str]) -> None:
    """Runs pip. Raises PrepareError if it fails or takes too long."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PrepareError(f"pip took more than {LIMIT_S} s; is there a network?") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise PrepareError(f"pip cannot fetch: {said[-1] if said else done.returncode}")


def manifest(wheels: Sequence[Path]) -> dict[str, Json]:
    """Returns names, versions, sizes and hashes. Raises PrepareError if the total is too large."""
    entries = []
    for wheel in wheels:
        content = wheel.read_bytes()
        name, version = wheel.name.split("-")[:2]
        entries.append(
            {
                "file": wheel.name,
                "name": name,
                "version": version,
                "size_bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    total = sum(wheel.stat().st_size for wheel in wheels)
    if total > TOTAL_BYTES_MAX:
        raise PrepareError(
            f"the wheels take {total / 1e6:.1f} MB, at most {TOTAL_BYTES_MAX / 1e6:.0f} MB may be "
            "carried: add what the machine has to AVAILABLE_THERE"
        )
    return {"schema": 1, "date": now(), "python": PYTHON, "wheels": entries}
