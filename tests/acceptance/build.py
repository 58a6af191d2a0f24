"""Makes what runs: the shim and the virtual driver by plain CMake, and the folder `site`.

Everything lies in build/acceptance of the checkout; nothing is installed and no network is
asked. With PUMP_LIB_DIR (for those who work on pump) the libraries there are taken instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from acceptance import running
from acceptance.contract import Json

TARGETS = ("libpump.so", "libpump_core.so", "virtual/libcuda.so.1")
PACKAGES = {"pump": "pump", "pumpd": "daemon/pumpd"}
"""Packages of the checkout by their name in `site`."""


class BuildError(Exception):
    """The build failed or cannot begin; the text says why and where its log lies."""


def build(root: Path, wheels: Path | None, virtual: bool, limit_s: float) -> dict[str, Json]:
    """Builds what has changed; what was done and how long it took. Raises BuildError."""
    began = time.monotonic()
    folder = root / running.BUILD
    folder.mkdir(parents=True, exist_ok=True)
    carried = lay_out_site(root, folder / "site", wheels)
    libraries = running.library_folder(root)
    if "PUMP_LIB_DIR" not in os.environ:
        _cmake(root, folder, limit_s)
    missing = [name for name in TARGETS if not (libraries / name).is_file()]
    if missing:
        raise BuildError(f"{libraries} lacks {', '.join(missing)}")
    try:
        _host_kernels(root, folder)
    except BuildError:
        if virtual:  # a card needs them only to try its own profile
            raise
    return {
        "libraries": str(
            libraries.relative_to(root) if libraries.is_relative_to(root) else "PUMP_LIB_DIR"
        ),
        "wheels": carried,
        "seconds": round(time.monotonic() - began, 3),
    }


def _cmake(root: Path, folder: Path, limit_s: float) -> None:
    if shutil.which("cmake") is None:
        raise BuildError("no cmake here: install CMake >= 3.20 and a C compiler")
    configure = configuring(root, folder)
    jobs = str(len(os.sched_getaffinity(0)))
    log = folder / "build.log"
    deadline = time.monotonic() + limit_s
    with log.open("w") as stream:
        for command in (configure, ["cmake", "--build", str(folder), "--parallel", jobs]):
            _step(command, stream.fileno(), log, deadline - time.monotonic())


def configuring(root: Path, folder: Path) -> list[str]:
    """The command that configures the build. One that was carried here from another place is
    begun anew: CMake refuses to go on with it."""
    cache = folder / "CMakeCache.txt"
    home = f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\n"
    if cache.exists() and home not in cache.read_text(errors="replace"):
        cache.unlink()
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    words = ["cmake", "-S", str(root), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    words += ["-DPUMP_WARNINGS_ARE_ERRORS=OFF"]  # a new compiler's would end it all
    return words + (["-G", "Ninja"] if not cache.exists() and shutil.which("ninja") else [])


def _step(command: Sequence[str], stream: int, log: Path, limit_s: float) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            timeout=max(1.0, limit_s),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"the build took more than its {limit_s:.0f} s; its log: {log}") from None
    if done.returncode != 0:
        tail = " / ".join(log.read_text(errors="replace").splitlines()[-4:])
        raise BuildError(f"the build failed; its log: {log}; its end: {tail}")


def _host_kernels(root: Path, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(root / "examples" / "host_build.py"), str(folder / "examples")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or "examples/host_build.py failed")
    _link(Path(done.stdout.strip()), folder / "kernels.so")


def lay_out_site(root: Path, site: Path, wheels: Path | None) -> list[str]:
    """Makes `site` anew: links to the checkout's packages, and every wheel unpacked.

    Links, so that pumpd, which keeps of PYTHONPATH only folders with pump in them, finds the
    carried packages as well. Returns the wheels' names. Raises BuildError for a broken one.
    """
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    names = []
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        except (zipfile.BadZipFile, OSError) as error:
            raise BuildError(f"{wheel.name} cannot be unpacked ({error}); fetch it again") from None
        names.append(wheel.name)
    for name, place in PACKAGES.items():
        _link(root / place, site / name)
    return names


def _link(target: Path, link: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
