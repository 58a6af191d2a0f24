"""Runs the code blocks of a page of docs exactly as written.

Blocks of `sh` run one after another in one shell, as in a user's terminal; the first failing
command ends the run. A block of `python` is a file, with its name in backticks in the line above.
Blocks of `text` are for readers.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from places import DOCS

BLOCK = re.compile(
    r"(?:^[^\n]*`(?P<name>[\w.-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
REPORT_FAILURE = "trap 'echo \"this failed: $BASH_COMMAND\"' ERR\n"
SECONDS_MOST = 480


def pages_with_commands() -> set[str]:
    """Returns the pages for users that have blocks of `sh`, relative to docs."""
    pages = (page for folder in ("start", "guides") for page in (DOCS / folder).glob("*.md"))
    return {str(page.relative_to(DOCS)) for page in pages if "```sh\n" in page.read_text()}


def run(name: str, folder: Path, path: list[Path]) -> str:
    """Runs the page `name` of docs in `folder`, with the folders `path` first in PATH.

    Returns the output of both streams. Raises AssertionError if a command fails.
    """
    (folder / "examples").symlink_to(DOCS.parent / "examples")
    blocks = list(BLOCK.finditer((DOCS / name).read_text(encoding="utf-8")))
    assert {block["kind"] for block in blocks} <= {"sh", "python", "text"}
    for block in blocks:
        if block["kind"] == "python" and block["name"]:
            (folder / block["name"]).write_text(block["text"], encoding="utf-8")
    commands = "".join(block["text"] for block in blocks if block["kind"] == "sh")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", REPORT_FAILURE + commands],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("PUMP_V")},
            "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
            "PUMP_SERVICE": "none",  # ignores other services of this machine
            "PUMP_VIRTUAL_CARDS": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "JUPYTER_DATA_DIR": str(folder / "jupyter"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MOST,
        check=False,
    )
    assert commands and done.returncode == 0, f"{name}\n{done.stdout[-4000:]}"
    return done.stdout
