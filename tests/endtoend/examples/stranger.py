"""Makes the environment of a user who has only installed the packages that a page names.

The environment has links to the installed files of these distributions and their requirements. So a
command that imports an unnamed package fails, as for a stranger. Needs no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PUMP = "pump-cuda"


def requirements(page: str) -> list[Requirement]:
    """Returns pump and the packages that a page installs before its first command."""
    found = re.findall(r"`pip install ([^`]+)`", page.partition("```sh")[0])
    named = [word.strip("'").replace(".[", f"{PUMP}[") for word in " ".join(found).split()]
    return [Requirement(PUMP), *map(Requirement, named)]


def closure(asked: list[Requirement]) -> set[str]:
    """Returns the names of these distributions and of all their requirements. Raises
    PackageNotFoundError if one is not installed."""
    found: set[tuple[str, str]] = set()
    waiting = list(asked)
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) in found:
                continue
            found.add((one.name, extra))
            for text in metadata.requires(one.name) or []:
                required = Requirement(text)
                if required.marker is None or required.marker.evaluate({"extra": extra}):
                    waiting.append(required)
    return {name for name, _ in found}


def environment(folder: Path, asked: list[Requirement]) -> Path:
    """Makes the environment in `folder`; returns its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    commands = folder / "bin"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in closure(asked):
        distribution = metadata.distribution(name)
        for file in distribution.files or []:
            path = Path(str(distribution.locate_file(file))).resolve()
            if file.parts[0] != "..":
                top = site / file.parts[0]
                if not top.is_symlink():
                    top.symlink_to(Path(str(distribution.locate_file(file.parts[0]))).resolve())
            elif "bin" in file.parts:
                _copy_command(path, commands)
    return commands


def _copy_command(path: Path, commands: Path) -> None:
    """Copies a command; the copy starts the environment's own Python."""
    data = path.read_bytes()
    if data.startswith(b"#!"):
        data = b"#!%s/python\n" % bytes(commands) + data.partition(b"\n")[2]
    (commands / path.name).write_bytes(data)
    (commands / path.name).chmod(0o755)
