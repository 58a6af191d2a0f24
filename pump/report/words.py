"""How a report writes figures, for text and page alike."""

from __future__ import annotations


def size(count: float, decimals: int = 1) -> str:
    """Bytes with a unit: "1.5 GiB". decimals: from GiB on; less has one."""
    if abs(count) < 1024:
        return f"{count:,.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:.{decimals if unit == 'GiB' else 1}f} {unit}"
    return f"{count / 1024:,.{decimals}f} TiB"


def seconds(value: float) -> str:
    """A time: "12.3 ms", "4.56 s"."""
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:,.2f} s"


def plain(text: object, most: int = 80) -> str:
    """Text of a file or of a program, on one line and without control characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def share(part: float, whole: float) -> str:
    """A percentage, "-" of nothing."""
    return f"{part / whole:.1%}" if whole else "-"


def command(words: object) -> str:
    """A command line, or that it is not known."""
    return plain(" ".join(map(str, words)), 200) if isinstance(words, list) and words else "?"
