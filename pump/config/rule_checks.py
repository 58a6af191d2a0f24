"""Checks the patterns of rules (`pump enable`), and compares them as the shim does. No I/O."""

from __future__ import annotations

from pump.config.values import BadValueError, shown

PATTERN_BYTES_MAX = 1000


def pattern(text: str) -> str:
    """Checks a pattern with "*" and "?": one line of 1 to 1,000 bytes. Raises BadValueError."""
    if not text.strip() or len(text.encode()) > PATTERN_BYTES_MAX or not text.isprintable():
        raise BadValueError(
            f"must be a pattern of 1 to {PATTERN_BYTES_MAX} printable characters (* matches "
            f"any characters, ? one), not '{shown(text)}'"
        )
    return text


def matches(glob: str, text: str) -> bool:
    """Returns whether the whole text matches the pattern, byte by byte, like
    shim/life/job_rules.c."""
    pattern, data = glob.encode(), text.encode(errors="surrogateescape")
    at = place = resume = 0
    star = -1
    while place < len(data):
        one = pattern[at : at + 1]
        if one == b"*":
            at += 1
            star, resume = at, place
        elif one == b"?" or one == data[place : place + 1]:
            at, place = at + 1, place + 1
        elif star >= 0:
            resume += 1
            at, place = star, resume
        else:
            return False
    return not pattern[at:].strip(b"*")
