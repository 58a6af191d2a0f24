"""Makes the environment of a user who has installed what a page says, and nothing else.

It has the installed files of these distributions and of what they require, as links: so a command
that imports something the page does not name fails, as it would for a stranger. Needs no network.
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
    """What a page tells to install before its first command, and pump."""
    found = re.findall(r"`pip install ([^`]+)`", page.partition("```sh")[0])
    named = [word.strip("'").replace(".[", f"{PUMP}[") for word in " ".join(found).split()]
    return [Requirement(PUMP), *map(Requirement, named)]


def closure(asked: list[Requirement]) -> set[str]:
    """The names of these distributions and of all that they require here. Raises
    PackageNotFoundError for one that is not installed."""
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
    """Make the environment in `folder`; its folder of commands."""
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
    """Copies a command, which then starts the environment's own Python."""
    data = path.read_bytes()
    if data.startswith(b"#!"):
        data = b"#!%s/python\n" % bytes(commands) + data.partition(b"\n")[2]
    (commands / path.name).write_bytes(data)
    (commands / path.name).chmod(0o755)
