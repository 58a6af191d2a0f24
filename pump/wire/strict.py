"""The JSON of frames between pump's processes: strict and bounded. No I/O.

Numbers are integers, all text is ASCII, and no key appears twice. Anything else raises FrameError
with a text of one line. control.py and service.py build their frames from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pump.base.names import printable

ERROR_CHARACTERS = 500


class FrameError(ValueError):
    """A frame is invalid; the text is one line with the reason."""


def pack(value: object) -> bytes:
    """Returns `value` as a frame."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def unpack(data: bytes, most_bytes: int) -> object:
    """Returns the value in a frame of at most `most_bytes`. Raises FrameError."""
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
        raise FrameError("a frame must be JSON") from None
    return value


def as_object(value: object, what: str) -> dict[str, Any]:
    """Returns `value` if it is a JSON object. Raises FrameError."""
    if not isinstance(value, dict):
        raise FrameError(f"{what} must be a JSON object")
    return value


def text_of(words: Mapping[str, Any], key: str, characters: int) -> str:
    """Returns the text under `key`, of 1 to `characters` printable characters, because terminals
    show it. Raises FrameError."""
    value = words.get(key)
    if not isinstance(value, str) or not 1 <= len(value) <= characters or not value.isprintable():
        raise FrameError(f"{key} must be a text of 1 to {characters} printable characters")
    return value


def short(text: str) -> str:
    """Returns the start of a text, quoted, for an error."""
    return repr(text[:40])


def one_line(text: str) -> str:
    """Returns a reason in a form that `text_of` accepts."""
    return printable(" ".join(text.split()))[:ERROR_CHARACTERS] or "unknown"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    words = dict(pairs)
    if len(words) != len(pairs):
        raise FrameError("a key appears twice in one object")
    for key, value in pairs:
        if not key.isprintable() or (isinstance(value, str) and not value.isprintable()):
            raise FrameError(f"{short(key)} must have only printable characters")
    return words


def _digits(text: str) -> int:
    if len(text) > 20:
        raise FrameError("a number has too many digits")
    return int(text)


def _refuse(text: str) -> NoReturn:
    raise FrameError(f"{short(text)} must be an integer")
