"""Converts sizes, shares and names from users to the form that the shim reads.

Every error is a BadValueError whose text names the value and the remedy in one line.
"""

from __future__ import annotations

BLOCK_BYTES = 2 << 20
BYTES_MAX = 1 << 62

# K, M, G, T without B mean powers of 1024, as in most tools for jobs.
UNIT_BYTES: dict[str, int] = {
    "": 1,
    "b": 1,
    **{unit: 1024**power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}ib": 1024**power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmgt", 1)},
}

NEAR = 0.65
"""Minimum similarity of a typing error to a name: difflib's ratio, 0 to 1."""
SHOWN_CHARACTERS = 60
"""Most characters of a value or a name in a message."""

SIZE_HELP = "write bytes (4294967296) or a size (4GiB, 512MiB, 1.5G)"


class BadValueError(ValueError):
    """One line: what is wrong with a value, and what to write instead."""


def parse_size(text: str) -> int:
    """Returns the bytes of "4294967296", "4GiB", "1.5G", "800MB". Raises BadValueError."""
    stripped = text.strip()
    number = stripped.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ").rstrip()
    unit = stripped[len(number) :].strip().lower()
    whole, dot, fraction = number.partition(".")
    if not _digits(whole) or (dot and not _digits(fraction)):
        raise BadValueError(f"'{shown(text)}' is not a size; {SIZE_HELP}")
    if unit not in UNIT_BYTES:
        raise BadValueError(
            f"'{shown(text)}' has an unknown unit; use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
        )
    if len(number) > 40:
        raise BadValueError(f"'{text[:12]}...' has too many digits; {SIZE_HELP}")
    # Use only integers: a float would round a large byte count.
    scale: int = 10 ** len(fraction)
    size_bytes = int(whole + fraction) * UNIT_BYTES[unit] // scale
    if size_bytes >= BYTES_MAX:
        raise BadValueError(f"'{shown(text)}' exceeds the memory of any machine")
    return size_bytes


def parse_amount(text: str) -> str:
    """Converts a size, a percentage or a multiple to the form that the shim reads
    (shim/base/amount.h): decimal bytes, "80%" or "1.5x".

    Raises BadValueError for anything else, for less than one block, for percentages
    outside 1 to 100 and for multiples outside 0.001 to 1000.
    """
    stripped = text.strip()
    if stripped.endswith("%"):
        return _percentage(text, stripped[:-1].strip())
    if stripped.endswith(("x", "X")) and not stripped[:-1].strip(" .0123456789"):
        return _multiple(text, stripped[:-1].strip())
    try:
        size_bytes = parse_size(text)
    except BadValueError as error:
        if SIZE_HELP in str(error):
            raise BadValueError(f"{error}, a percentage (80%) or a multiple (1.5x)") from None
        raise
    if size_bytes < BLOCK_BYTES:
        raise BadValueError(f"'{shown(text)}' is less than one block; write at least 2MiB")
    return str(size_bytes)


def _percentage(text: str, number: str) -> str:
    if not _digits(number):
        raise BadValueError(f"must be a percentage such as 80%, not '{shown(text)}'")
    percent = int(number[:9])
    if not 1 <= percent <= 100:
        raise BadValueError(f"must be a percentage from 1% to 100%, not '{shown(text)}'")
    return f"{percent}%"


def _multiple(text: str, number: str) -> str:
    whole, dot, fraction = number.partition(".")
    if not _digits(whole) or (dot and not _digits(fraction)) or len(fraction) > 3:
        raise BadValueError(
            f"must be a multiple such as 1.5x, with up to three decimals, not '{shown(text)}'"
        )
    thousandths = int(whole[:9]) * 1000 + int(f"{fraction:0<3}")
    if not 1 <= thousandths <= 1_000_000:
        raise BadValueError(f"must be a multiple from 0.001x to 1000x, not '{shown(text)}'")
    decimals = f"{thousandths % 1000:03}".rstrip("0")
    return f"{thousandths // 1000}{'.' if decimals else ''}{decimals}x"


def whole_number(value: str | int, least: int, most: int) -> int:
    """Returns `value` as an integer from `least` to `most`. Raises BadValueError."""
    if isinstance(value, int) and abs(value) >= BYTES_MAX:
        raise BadValueError(f"must be an integer from {least} to {most}")
    text = str(value).strip()
    number = int(text) if _digits(text.removeprefix("-")) and len(text) <= 20 else None
    if number is None or not least <= number <= most:
        raise BadValueError(f"must be an integer from {least} to {most}, not '{text[:24]}'")
    return number


def seconds(text: str, least_s: float, most_s: float) -> float:
    """Returns `text` as seconds from least_s to most_s. Raises BadValueError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least_s <= value <= most_s:
        raise BadValueError(
            f"must be a time from {least_s:g} to {most_s:g} seconds, not '{shown(text)}'"
        )
    return value


def amount_bytes(amount: str, whole_bytes: int) -> int:
    """Returns the bytes of an amount in the form of `parse_amount`. Percentages and multiples refer
    to whole_bytes. Raises ValueError, OverflowError."""
    if amount.endswith("%"):
        return whole_bytes * int(amount[:-1]) // 100
    if amount.endswith("x"):
        return int(float(amount[:-1]) * whole_bytes)
    return int(amount)


def choose(text: str, names: list[str], what: str) -> str:
    """Returns `text` if it is one of `names`, else raises BadValueError with the nearest name."""
    if text in names:
        return text
    raise BadValueError(
        f"unknown {what} '{shown(text)}'{nearest(shown(text), names)}; known: {', '.join(names)}"
    )


def shown(text: str) -> str:
    """Returns the first SHOWN_CHARACTERS of a value, for a message."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def nearest(text: str, names: list[str]) -> str:
    """Returns " (did you mean 'x'?)", or "" if no name is near."""
    found = closest(text, names)
    return f" (did you mean '{found}'?)" if found else ""


def closest(text: str, names: list[str]) -> str:
    """Returns the name that `text`, in lower case, probably misspells, or "". Both must begin with
    the same letter: 'stop' does not mean 'top'."""
    import difflib  # slow to import, and only needed for errors

    word = text.lower()
    first = word.lstrip("-")[:1]
    alike = [name for name in names if name.lstrip("-").startswith(first)]
    return next(iter(difflib.get_close_matches(word, alike, n=1, cutoff=NEAR)), "")


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
