"""Paths and other names that users choose, made safe for messages and log lines.

A log file may be any file, a shell's start-up file included. So a name in a line contains no
line end and no control character, and what a shell would not read as one word is quoted.
Imports nothing, because pump-run imports it.
"""

from __future__ import annotations

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_")


def quoted(name: str) -> str:
    """`name`, in single quotes unless it is one plain word; as pump_quoted of shim/base/log.c."""
    if name and all(c in _PLAIN or (c > "\x7f" and c.isprintable()) for c in name):
        return name
    return f"'{escaped(name)}'"


def escaped(name: str) -> str:
    """`name` for use between single quotes: backslashes doubled, quotes and what cannot be
    printed as the \\xNN of their bytes."""
    return "".join(_escape(c) for c in name)


def one_line(text: str) -> str:
    """`text` without line ends, and with \\xNN for what else cannot be printed."""
    return "".join(c if c.isprintable() else _bytes(c) for c in " ".join(text.split()))


def printable(text: str) -> str:
    """`text` with "?" for what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() and character != "'" else _bytes(character)


def _bytes(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8 (os.fsdecode)
        return f"\\x{ord(character) - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
