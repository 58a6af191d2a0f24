"""TOML files, either pump's named ones or a user's: their size and content are untrusted.

Standard library only, because pump-run imports it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pump.base import inputs
from pump.base.names import printable
from pump.config.values import nearest

FILE_BYTES_MOST = 256 << 10
FAULT_CHARACTERS = 200


def names(folder: Path) -> list[str]:
    """Returns the names of the files in the folder."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(folder: Path, what: str, name: str, error: type[ValueError]) -> dict[str, Any]:
    """Parses the folder's file of that name, or the file `name` if it ends in .toml.

    `what`: the kind of file, for messages. Raises `error` with one line, also if the file is
    missing.
    """
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    known = names(folder)
    if not name.endswith(".toml") and name not in known:
        raise error(
            f"no {what} '{name}'{nearest(name, known)}; known: {', '.join(known)}, "
            "or the path of a .toml file"
        )
    try:
        text = inputs.read(str(path), FILE_BYTES_MOST)
    except OSError as fault:
        raise error(f"cannot read '{printable(name)}': {fault.strerror}") from None
    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise error(f"'{name}' is nested too deeply") from None
    except ValueError as fault:  # not TOML, not UTF-8, or a number with thousands of digits
        reason = " ".join(str(fault)[:FAULT_CHARACTERS].split())
        raise error(f"'{name}' is not valid TOML: {reason}") from None
