"""pump kernel: a Jupyter kernel "Python (pump)", whose Python runs under pump-run.

It writes a kernel specification, a folder with kernel.json, where Jupyter looks for them
(jupyter_client, "Making kernels for Jupyter"), and needs no package of Jupyter itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pump import folders, inputs, outputs
from pump.cli.support.lines import BadInputError

HELP = "install or remove the Jupyter kernel Python (pump)"
NAME = "pump"
DISPLAY_NAME = "Python (pump)"
SPECIFICATION = "kernel.json"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    verbs = parser.add_subparsers(metavar="install|remove", required=True)
    install = verbs.add_parser("install", help="write the kernel", allow_abbrev=False)
    install.set_defaults(act=_install)
    remove = verbs.add_parser("remove", help="remove what install wrote", allow_abbrev=False)
    remove.set_defaults(act=_remove)
    for one in (install, remove):
        one.add_argument(
            "--prefix",
            metavar="DIR",
            default="",
            help="write below DIR/share/jupyter instead of the user's folder",
        )
    install.add_argument(
        "--python",
        metavar="PATH",
        default=sys.executable,
        help="the kernel's Python, with ipykernel",
    )
    install.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- OPTION", help="options of pump-run"
    )


def run(asked: argparse.Namespace) -> int:
    """Install or remove. Raises BadInputError."""
    status: int = asked.act(asked)
    return status


def _install(asked: argparse.Namespace) -> int:
    from pump.cli.support import options as run_options

    words = asked.words[1:] if asked.words[:1] == ["--"] else asked.words
    run_options.parse([*words, "--", "true"])  # what is wrong is said now, not in a notebook
    folder = _folder(asked.prefix)
    path = os.path.join(folder, SPECIFICATION)
    if os.path.lexists(folder) and not _is_ours(path):
        raise BadInputError(f"{folder} already exists and is not pump's; move it away")
    if not os.path.isabs(asked.python) or not os.access(asked.python, os.X_OK):
        raise BadInputError(f"--python: must be the absolute path of a program, not {asked.python}")
    text = json.dumps(_specification(asked.python, words), indent=1) + "\n"
    try:
        folders.make(folder, below=asked.prefix)
        outputs.write(path, text, outputs.KERNEL, mode=0o644)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from None
    print(f"written  {path}")
    return 0


def _remove(asked: argparse.Namespace) -> int:
    folder = _folder(asked.prefix)
    path = os.path.join(folder, SPECIFICATION)
    if not os.path.lexists(folder):
        raise BadInputError(f"there is no kernel in {folder}; name the --prefix of its install")
    if not _is_ours(path):
        raise BadInputError(f"{folder} is not pump's, so it stays")
    try:
        folders.remove(path, asked.prefix)
        print(f"removed  {path}")
        os.rmdir(folder)
    except OSError as error:
        raise BadInputError(f"{folder}: {error.strerror}") from None
    return 0


def _specification(python: str, words: list[str]) -> dict[str, Any]:
    pump_run = os.path.join(os.path.dirname(sys.executable), "pump-run")
    launcher = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return {
        "argv": [pump_run, *words, "--", *launcher],
        "display_name": DISPLAY_NAME,
        "language": "python",
        # pump-run becomes the kernel by exec: signals reach the kernel's own process.
        "interrupt_mode": "signal",
        "metadata": {"debugger": True, "pump": True},
    }


def _folder(prefix: str) -> str:
    return os.path.join(_kernels(prefix), NAME)


def _kernels(prefix: str) -> str:
    """Jupyter's folder of kernels: the user's (Jupyter, "Common Directories and File
    Locations") or that of a prefix. Raises BadInputError."""
    if prefix:
        return os.path.join(os.path.abspath(prefix), "share", "jupyter", "kernels")
    data = os.environ.get("JUPYTER_DATA_DIR", "")
    if data:
        return os.path.join(os.path.abspath(data), "kernels")
    base = os.environ.get("XDG_DATA_HOME", "")
    if not base:
        home = os.environ.get("HOME", "")
        if not home.startswith("/"):
            raise BadInputError("HOME is not set; set it, or add --prefix DIR")
        base = os.path.join(home, ".local", "share")
    return os.path.join(base, "jupyter", "kernels")


def _is_ours(path: str) -> bool:
    try:
        found = json.loads(inputs.read(path))
    except (OSError, ValueError, RecursionError):
        return False
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and metadata.get("pump") is True
