"""JSON as pump's processes say it to each other: strict, bounded, one line per fault. No I/O.

Whole numbers, ASCII, no key twice; whatever else arrives raises FrameError, whose text is
one line. control.py and service.py build their frames from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

ERROR_CHARACTERS = 500


class FrameError(ValueError):
    """One line: what is wrong with a frame."""


def pack(value: object) -> bytes:
    """Return the frame that says `value`."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def unpack(data: bytes, most_bytes: int) -> object:
    """Return what a frame of at most `most_bytes` says. Raises FrameError."""
    if len(data) > most_bytes:
        raise FrameError(f"a frame of more than {most_bytes} bytes")
    try:
        value: object = json.loads(
            data.decode("ascii"),
            object_pairs_hook=_pairs,
            parse_int=_digits,
            parse_float=_refuse,
            parse_constant=_refuse,
        )
    except FrameError:
        raise
    except (ValueError, RecursionError):
        raise FrameError("a frame that is no JSON") from None
    return value


def as_object(value: object, what: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object. Raises FrameError."""
    if not isinstance(value, dict):
        raise FrameError(f"{what} that is no JSON object")
    return value


def text_of(words: Mapping[str, Any], key: str, characters: int) -> str:
    """Return the text under `key`, of 1 to `characters`, all of them printable: terminals
    will show it. Raises FrameError."""
    value = words.get(key)
    if not isinstance(value, str) or not 1 <= len(value) <= characters or not value.isprintable():
        raise FrameError(f"{key} is not a text of 1 to {characters} printable characters")
    return value


def short(text: str) -> str:
    """Return a text as an error may show it."""
    return repr(text[:40])


def printable(text: str) -> str:
    """Return a text as a terminal may show it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def one_line(text: str) -> str:
    """Return a reason as a frame may carry it: what `text_of` takes."""
    return printable(" ".join(text.split()))[:ERROR_CHARACTERS] or "unknown"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    words = dict(pairs)
    if len(words) != len(pairs):
        raise FrameError("a key that stands twice in one object")
    for key, value in pairs:
        if not key.isprintable() or (isinstance(value, str) and not value.isprintable()):
            raise FrameError(f"{short(key)} is not of printable characters")
    return words


def _digits(text: str) -> int:
    if len(text) > 20:
        raise FrameError("a number of too many digits")
    return int(text)


def _refuse(text: str) -> NoReturn:
    raise FrameError(f"{short(text)} is no whole number")
