"""Checks whether a library that the user preloads hooks CUDA calls, by its symbol table (elf(5)).

Such a library must come before pump. pump replaces the driver for the program and calls the driver
itself directly, so no CUDA call would reach a library after pump. A library that also hooks dlsym
must come after pump: programs find most functions by dlsym, and its dlsym would bypass pump.
"""

from __future__ import annotations

import os
import re
import struct

from pump.base import inputs

_HEADER = struct.Struct("<4sBB34xQ10xHH2x")  # magic, class, order, sections: offset, size, count
_SECTION = struct.Struct("<4xI16xQQI20x")  # type, offset, bytes, its string table
_SYMBOL = struct.Struct("<IBBH16x")  # name, bind and type, visibility, section
_DYNAMIC_SYMBOLS = 11
_TABLE_BYTES_MAX = 64 << 20
_DRIVER_FUNCTION = re.compile(rb"cu[A-Z]")


def hooks_driver(path: str) -> bool:
    """Returns whether the library defines functions of the driver, but not dlsym. Returns False if
    the file is unreadable or not 64-bit ELF: the loader will report that."""
    try:
        names = _defined(path)
    except (OSError, struct.error, IndexError, ValueError, OverflowError):
        return False
    return b"dlsym" not in names and any(map(_DRIVER_FUNCTION.match, names))


def _defined(path: str) -> set[bytes]:
    """Returns the names that the library exports."""
    with inputs.opened(path) as file:
        descriptor = file.fileno()
        mark, width, order, offset, size, count = _HEADER.unpack(
            os.pread(descriptor, _HEADER.size, 0)
        )
        if (mark, width, order, size) != (b"\x7fELF", 2, 1, _SECTION.size):
            return set()
        sections = list(_SECTION.iter_unpack(os.pread(descriptor, count * size, offset)))
        found: set[bytes] = set()
        for kind, at, length, names in sections:
            if kind == _DYNAMIC_SYMBOLS:
                text = _table(descriptor, *sections[names][1:3])
                found |= _names(_table(descriptor, at, length), text)
        return found


def _table(descriptor: int, offset: int, length: int) -> bytes:
    if length > _TABLE_BYTES_MAX:
        raise ValueError("its table of symbols is too large")
    return os.pread(descriptor, length, offset)


def _names(symbols: bytes, names: bytes) -> set[bytes]:
    whole = len(symbols) // _SYMBOL.size * _SYMBOL.size
    return {
        names[name : names.index(b"\0", name)]
        for name, info, other, section in _SYMBOL.iter_unpack(symbols[:whole])
        if section != 0 and info >> 4 in (1, 2) and other & 3 in (0, 3)  # global or weak; visible
    }
