"""Takes the code blocks out of a tutorial of docs and runs them as they stand.

A block of `sh` is run by bash, which ends at the first command that fails; a block of `python` is a
file, whose name stands in backticks in the line above it. Blocks of `text` are for readers.
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
SECONDS_MOST = 240


def run(name: str, folder: Path, path: list[Path]) -> str:
    """Run the tutorial in `folder`, with these folders in front of PATH; what it printed on both
    streams. AssertionError where a command fails, or where there is none."""
    (folder / "examples").symlink_to(DOCS.parent / "examples")
    blocks = list(BLOCK.finditer((DOCS / name).read_text(encoding="utf-8")))
    assert {block["kind"] for block in blocks} <= {"sh", "python", "text"}
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PUMP_V")},
        "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
        "PUMP_SERVICE": "none",  # whatever else runs on this machine
        "PUMP_VIRTUAL_CARDS": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JUPYTER_DATA_DIR": str(folder / "jupyter"),
    }
    said = []
    for block in blocks:
        if block["kind"] == "python":
            (folder / block["name"]).write_text(block["text"], encoding="utf-8")
        elif block["kind"] == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block["text"]],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS_MOST,
                check=False,
            )
            assert done.returncode == 0, f"{block['text']}\n{done.stdout[-4000:]}"
            said.append(done.stdout)
    assert said, f"{name} has no command"
    return "".join(said)
