"""Makes what runs: the shim and the virtual driver by plain CMake, and the folder `site`.

Everything is in build/acceptance of the checkout; nothing is installed and no network is asked.
Libraries that were carried there from another machine are used if they load here. With
PUMP_LIB_DIR (for those who work on pump) the libraries there are taken instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acceptance import running

TARGETS = ("libpump.so", "libpump_core.so", running.VIRTUAL_DRIVER)
PACKAGES = {"pump": "pump", "pumpd": "daemon/pumpd", "pump_lab": "lab/pump_lab"}
"""Packages of the checkout by their name in `site`."""


LOADS_LIMIT_S = 30.0
LOADS = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"


class BuildError(Exception):
    """The build failed or cannot begin; the text says why and where its log is."""


@dataclass(frozen=True)
class Built:
    """What there is to run. `libraries`: "built", "carried" or "PUMP_LIB_DIR". `wheels`: names of
    those in `site`. `lacks`: why nothing can run under pump, "" if it can."""

    libraries: str = ""
    wheels: tuple[str, ...] = ()
    seconds: float = 0.0
    lacks: str = ""


def build(root: Path, wheels: Path | None, virtual: bool, limit_s: float) -> Built:
    """Builds what has changed, within `limit_s` seconds; on a card a failure is in the answer.

    Raises BuildError with `virtual`: nothing at all runs on the virtual GPU without libraries.
    """
    began = time.monotonic()
    folder = root / running.BUILD
    folder.mkdir(parents=True, exist_ok=True)
    try:
        names = lay_out_site(root, folder / "site", wheels)
        libraries = _libraries(root, folder, limit_s)
    except BuildError as error:
        if virtual:
            raise
        return Built(seconds=time.monotonic() - began, lacks=str(error))
    try:
        _host_kernels(root, folder)
    except BuildError:
        if virtual:  # a card needs them only to try its own profile
            raise
    return Built(libraries, tuple(names), time.monotonic() - began)


def _libraries(root: Path, folder: Path, limit_s: float) -> str:
    """Sees to it that TARGETS are there; where they come from. Raises BuildError."""
    libraries = running.library_folder(root)
    if "PUMP_LIB_DIR" in os.environ:
        origin = "PUMP_LIB_DIR"
    else:
        why = _unusable(root, folder, libraries)
        if not why:
            return "carried"
        try:
            _cmake(root, folder, limit_s)
        except BuildError as error:
            raise BuildError(f"{why}{error}") from None
        origin = "built"
    missing = [name for name in TARGETS if not (libraries / name).is_file()]
    if missing:
        raise BuildError(f"{libraries} lacks {', '.join(missing)}")
    return origin


def _unusable(root: Path, folder: Path, libraries: Path) -> str:
    """Why there are no libraries that were carried here and load; "" if there are. The text goes
    in front of another."""
    files = [libraries / name for name in TARGETS]
    if _configured_here(root, folder) or not all(file.is_file() for file in files):
        return "nothing was carried in build/acceptance/pump; "
    why = loading(files)
    return f"the carried libraries do not load here: {why}; " if why else ""


def loading(files: Sequence[Path]) -> str:
    """Why a process here cannot load these libraries; "" if it can."""
    environ = {key: text for key, text in os.environ.items() if not key.startswith(running.OURS)}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", LOADS, *map(str, files)],
            env={**environ, "PUMP_DISABLE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOADS_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LOADS_LIMIT_S:.0f} s"
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return said[-1] if done.returncode else ""


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
    begun again: CMake refuses to go on with it."""
    cache = folder / "CMakeCache.txt"
    if cache.exists() and not _configured_here(root, folder):
        cache.unlink()
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    words = ["cmake", "-S", str(root), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    words += ["-DPUMP_WARNINGS_ARE_ERRORS=OFF"]  # a new compiler's would end it all
    return words + (["-G", "Ninja"] if not cache.exists() and shutil.which("ninja") else [])


def _configured_here(root: Path, folder: Path) -> bool:
    """Whether CMake has configured a build of this checkout in `folder`."""
    cache = folder / "CMakeCache.txt"
    home = f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\n"
    return cache.exists() and home in cache.read_text(errors="replace")


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
    words = [sys.executable, str(root / "examples" / "host_build.py"), str(folder / "examples")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise BuildError("examples/host_build.py took more than 120 s") from None
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or "examples/host_build.py failed")
    _link(Path(done.stdout.strip()), folder / "kernels.so")


def lay_out_site(root: Path, site: Path, wheels: Path | None) -> list[str]:
    """Makes `site`: links to the checkout's packages, and every wheel unpacked. If it is as it
    would be made, it is left alone, for another call may use it.

    All in one folder, because pump/start.py, which starts pump-run and pumpd, adds the folder in
    which it finds pump: the carried packages are there, too. Returns the wheels' names. Raises
    BuildError for a broken one, after everything else has been laid out.
    """
    carried = sorted(wheels.glob("*.whl")) if wheels else []
    stamp = site / "made-of"
    made_of = "".join(f"{file} {file.stat().st_mtime_ns}\n" for file in carried)
    if stamp.is_file() and stamp.read_text() == made_of:
        return [file.name for file in carried]
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    names, broken = [], ""
    for wheel in carried:
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        except (zipfile.BadZipFile, OSError) as error:
            broken = broken or f"{wheel.name} cannot be unpacked ({error}); fetch it again"
            continue
        names.append(wheel.name)
    for name, place in PACKAGES.items():
        _link(root / place, site / name)
    if broken:
        raise BuildError(broken)
    stamp.write_text(made_of)
    return names


def _link(target: Path, link: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
