"""Unpacks an archive of results from another machine. Trusts nothing in it."""

from __future__ import annotations

import json
import math
import shutil
import tarfile
import zlib
from pathlib import Path

from acceptance.contract import MIB, Json

ARCHIVE_BYTES_MOST = 64 * MIB
MEMBERS_MOST = 2000
MEMBER_BYTES_MOST = 16 * MIB
UNPACKED_BYTES_MOST = 256 * MIB
JSON_BYTES_MOST = 16 * MIB
DEPTH_MOST = 32
NAMED_MOST = 3
"""Maximum number of members named in one line."""
DAMAGE = (EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError)


class ArchiveError(Exception):
    """Nothing can be taken from the archive; the text is one line with the reason."""


class OutsideError(ValueError):
    """A member's name leads out of the folder."""


def extract(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes a regular file of the archive below `folder`; absolute names are relative to `folder`.

    Python 3.11.2 (Debian 12) has no filters for TarFile.extract. Raises OutsideError, OSError.
    """
    place = folder / member.name.lstrip("/")
    if not place.resolve().is_relative_to(folder.resolve()):
        raise OutsideError(f"{one_line(member.name)} leads out of the folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    content = members.extractfile(member)
    assert content is not None, "a regular file"
    with content, place.open("wb") as file:
        shutil.copyfileobj(content, file)


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpacks regular files below `folder`; returns a line for each kind of skipped member.

    A damaged archive gives the files before the damage. Raises ArchiveError if there are none.
    """
    try:
        size_bytes = archive.stat().st_size
        if not archive.is_file():
            raise ArchiveError(f"{archive}: not a file")
    except OSError as error:
        raise ArchiveError(f"{archive}: {error.strerror}") from None
    if size_bytes > ARCHIVE_BYTES_MOST:
        raise ArchiveError(
            f"{archive}: {size_bytes >> 20} MiB, more than an archive of results has"
        )
    refused: list[str] = []
    trouble = ""
    taken = 0
    try:
        with tarfile.open(archive, "r:gz") as members:
            taken, trouble = _take(members, folder, refused)
    except (*DAMAGE, OSError) as error:
        trouble = f"damaged: {one_line(error)}"
    taken = taken or sum(file.is_file() for file in folder.rglob("*"))
    if not taken:
        raise ArchiveError(f"{archive}: no results in it ({trouble or 'no files'})")
    lines = [f"{archive.name}: {trouble}; using the files before that"] if trouble else []
    if refused:
        more = f" and {len(refused) - NAMED_MOST} more" if len(refused) > NAMED_MOST else ""
        lines.append(f"{archive.name}: left out {', '.join(refused[:NAMED_MOST])}{more}")
    return lines


def _take(members: tarfile.TarFile, folder: Path, refused: list[str]) -> tuple[int, str]:
    """Returns the number of unpacked files, and why reading stopped early ("": it did not)."""
    taken, left_bytes = 0, UNPACKED_BYTES_MOST
    for number, member in enumerate(members):
        # Reading past a skipped member decompresses it, so its size counts.
        left_bytes -= member.size
        if number >= MEMBERS_MOST or left_bytes < 0:
            most = f"{MEMBERS_MOST} files or {UNPACKED_BYTES_MOST >> 20} MiB"
            return taken, f"more than {most}"
        shown = one_line(member.name)
        if member.isdir():
            continue
        if not member.isfile():
            refused.append(f"{shown} (not a regular file)")
        elif member.size > MEMBER_BYTES_MOST:
            refused.append(f"{shown} ({member.size >> 20} MiB)")
        else:
            try:
                extract(members, member, folder)
                taken += 1
            except OutsideError:
                refused.append(f"{shown} (outside of the archive's folder)")
            except (FileExistsError, IsADirectoryError, NotADirectoryError):
                refused.append(f"{shown} (in place of another member)")
    return taken, ""


def one_line(what: object) -> str:
    """Returns a short printable line."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(what))
    return " ".join(text.split())[:120]


def load_json(file: Path) -> dict[str, Json]:
    """Returns the JSON object in a file. Raises ValueError if it is missing, too large or damaged.

    Numbers that no measurement gives (NaN, Infinity, 1e999) count as damage.
    """
    try:
        if file.stat().st_size > JSON_BYTES_MOST:
            raise ValueError(f"{file.name}: too large for a result")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file.name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file.name}: not text") from None
    return parse_json(text, file.name)


def parse_json(text: str, name: str) -> dict[str, Json]:
    """Returns the JSON object in `text`, the content of `name`. Raises ValueError with one line."""
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: damaged ({one_line(error)})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name}: not a JSON object")
    if _deep(found):
        raise ValueError(f"{name}: nested deeper than any result")
    return found


def _deep(found: Json) -> bool:
    """Returns whether recursion into the object might exceed the recursion limit."""
    level = [found]
    for _ in range(DEPTH_MOST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a measurement")


def _finite(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _refuse(word[:20])
