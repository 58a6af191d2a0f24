"""An installation of pump with parts that other users may replace, and pump's message about it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.cli.support import service_code
from pump.cli.support.lines import BadInputError

SITE = "venv/lib/python3.11/site-packages"
WEAK = (
    *(
        "",
        "venv",
        "venv/bin",
        "venv/bin/pumpd",
        "venv/bin/pump-start",
        "base/bin",
        "base/bin/python3.11",
    ),
    *("base/lib/python3.11", "venv/lib", SITE, f"{SITE}/pump", f"{SITE}/pumpd/main.py"),
    *(f"{SITE}/other.pth", "venv/pyvenv.cfg"),
)


@pytest.fixture
def made() -> Iterator[Path]:
    """Makes an installation like `python3 -m venv` and pip, in a folder open to all users."""
    with tempfile.TemporaryDirectory(prefix="pump-code-", dir="/tmp") as name:
        folder = Path(name)
        for one in ("base/bin", "base/lib/python3.11", "venv/bin", f"{SITE}/pump", f"{SITE}/pumpd"):
            (folder / one).mkdir(parents=True)
        texts = {
            "base/bin/python3.11": "",
            "venv/pyvenv.cfg": "",
            "venv/bin/pumpd": "#!/bin/sh\n",
            "venv/bin/pump-start": f"#!{folder}/venv/bin/python\n",
            "venv/bin/pump": f"#!{folder}/venv/bin/python\n",
            f"{SITE}/pump/__init__.py": "",
            f"{SITE}/pumpd/main.py": "",
            f"{SITE}/other.pth": "",
        }
        for path, text in texts.items():
            (folder / path).write_text(text)
        for path in (folder, *folder.rglob("*")):
            executable = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if executable else 0o644)
        (folder / "venv/bin/python").symlink_to("python3")
        (folder / "venv/bin/python3").symlink_to(folder / "base/bin/python3.11")
        yield folder


def refusal(made: Path, *, user: bool = False) -> str:
    """Returns the one-line refusal; "" if pump accepts the installation."""
    try:
        service_code.check(str(made / "venv/bin/pumpd"), user=user)
    except BadInputError as error:
        assert "\n" not in str(error)
        return str(error)
    return ""
