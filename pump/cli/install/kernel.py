"""pump install kernel: installs a Jupyter kernel "Python (pump)" that runs Python under pump-run.

Writes a kernel specification, a folder with kernel.json, to Jupyter's folder for kernels
(jupyter_client, "Making kernels for Jupyter"). Does not need any package of Jupyter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pump.base import folders, inputs, outputs
from pump.cli.support.lines import BadInputError, take_options_as_words

HELP = 'install or remove the Jupyter kernel "Python (pump)"'
EXAMPLES = (
    "pump install kernel -- --budget 20GiB",
    "pump install kernel --remove",
)
NAME = "pump"
DISPLAY_NAME = "Python (pump)"
SPECIFICATION = "kernel.json"


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options. All other options belong to pump-run."""
    take_options_as_words(parser)
    parser.add_argument("--remove", action="store_true", help="remove the kernel")
    parser.add_argument(
        "--prefix", metavar="DIR", default="", help="use DIR/share/jupyter instead of the user's"
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=sys.executable,
        help="the kernel's Python, which has ipykernel (default: pump's own)",
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- OPTION", help="options of pump-run"
    )


def run(asked: argparse.Namespace) -> int:
    """Installs or removes the Jupyter kernel. Raises BadInputError."""
    words = asked.words[1:] if asked.words[:1] == ["--"] else asked.words
    folder = os.path.join(_kernels(asked.prefix), NAME)
    if asked.remove and words:
        raise BadInputError(
            f"--remove takes no options of pump-run, such as '{words[0]}'; "
            "see pump install kernel --help"
        )
    if asked.remove:
        _remove(folder, asked.prefix)
    else:
        _install(folder, asked.prefix, asked.python, words)
    return 0


def _install(folder: str, prefix: str, python: str, words: list[str]) -> None:
    from pump.cli.support import options as run_options

    run_options.parse([*words, "--", "true"])  # refuse bad options now, not in a notebook
    path = os.path.join(folder, SPECIFICATION)
    if os.path.lexists(folder) and not _is_ours(path):
        raise BadInputError(f"{folder} already exists, but pump did not write it; move it away")
    if not os.path.isabs(python) or not os.access(python, os.X_OK):
        raise BadInputError(f"--python: must be the absolute path of a program, not {python}")
    text = json.dumps(_specification(python, words), indent=1) + "\n"
    try:
        folders.make(folder, below=prefix)
        outputs.write(path, text, outputs.KERNEL, mode=0o644)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from None
    print(f"written  {path}")


def _remove(folder: str, prefix: str) -> None:
    path = os.path.join(folder, SPECIFICATION)
    if not os.path.lexists(folder):
        raise BadInputError(f"there is no kernel in {folder}; add the --prefix of its install")
    if not _is_ours(path):
        raise BadInputError(f"{folder} was not written by pump; remove it yourself")
    try:
        folders.remove(path, prefix)
        print(f"removed  {path}")
        os.rmdir(folder)
    except OSError as error:
        raise BadInputError(f"{folder}: {error.strerror}") from None


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


def _kernels(prefix: str) -> str:
    """Returns Jupyter's folder of kernels: the user's (Jupyter, "Common Directories and File
    Locations"), or the one below a prefix. Raises BadInputError."""
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
