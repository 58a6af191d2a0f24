"""Builds the shim and the virtual driver with plain CMake, and lays out the folder `site`.

All files are in build/acceptance of the checkout. Nothing is installed and no network is used.
Libraries carried there from another machine are used if they load here. If PUMP_LIB_DIR is set
(for developers of pump), the libraries in that folder are used instead.
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
"""Maps each package's name in `site` to its folder in the checkout."""


LOADS_LIMIT_S = 30.0
LOADS = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"


class BuildError(Exception):
    """The build failed or cannot start; the text gives the reason and the path of the log."""


@dataclass(frozen=True)
class Built:
    """Result of a build.

    `libraries`: "built", "carried" or "PUMP_LIB_DIR". `wheels`: names of the wheels in `site`.
    `lacks`: why nothing can run under pump, "" if it can.
    """

    libraries: str = ""
    wheels: tuple[str, ...] = ()
    seconds: float = 0.0
    lacks: str = ""


def build(root: Path, wheels: Path | None, virtual: bool, limit_s: float) -> Built:
    """Builds the changed parts, within `limit_s` seconds.

    On a real GPU, a failure is returned in `Built.lacks`. Raises BuildError if `virtual` is set,
    because nothing runs on the virtual GPU without libraries.
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
        if virtual:  # a real GPU needs them only to test its own profile
            raise
    return Built(libraries, tuple(names), time.monotonic() - began)


def _libraries(root: Path, folder: Path, limit_s: float) -> str:
    """Ensures that TARGETS exist and returns their origin. Raises BuildError."""
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
    """Returns why no usable libraries were carried here, "" if there are some. The text is a prefix
    of another message."""
    files = [libraries / name for name in TARGETS]
    if _configured_here(root, folder) or not all(file.is_file() for file in files):
        return "nothing was carried in build/acceptance/pump; "
    why = loading(files)
    return f"the carried libraries do not load here: {why}; " if why else ""


def loading(files: Sequence[Path]) -> str:
    """Returns why a process on this machine cannot load these libraries, "" if it can."""
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
    """Returns the command that configures the build. Deletes the cache of a build that was carried
    from another path, because CMake refuses to continue such a build."""
    cache = folder / "CMakeCache.txt"
    if cache.exists() and not _configured_here(root, folder):
        cache.unlink()
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    words = ["cmake", "-S", str(root), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    words += ["-DPUMP_WARNINGS_ARE_ERRORS=OFF"]  # a new compiler's warnings would stop the build
    return words + (["-G", "Ninja"] if not cache.exists() and shutil.which("ninja") else [])


def _configured_here(root: Path, folder: Path) -> bool:
    """Returns whether CMake has configured a build of this checkout in `folder`."""
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
    """Creates `site`: links to the checkout's packages, and every wheel unpacked.

    An up-to-date `site` is not touched, because another call may be using it. All packages are in
    one folder because pump/start.py, which starts pump-run and pumpd, adds only the folder that
    contains pump. Returns the wheels' names. Raises BuildError for a broken wheel, after everything
    else has been laid out.
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
