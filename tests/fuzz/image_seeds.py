"""Small sound module images: the seeds for fuzzing the parsers."""

from __future__ import annotations

import struct

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.global .align 8 .b8 words[16] = {1, 2, 0xff};
.global .attribute(.managed) .align 4 .u32 count;
.visible .entry mix(.param .u64 a, .param .align 8 .b8 b[24]) .maxntid 256, 1, 1
{ .shared .align 4 .b8 s[64]; .local .b8 l[8]; // nothing
  ret; }
"""

SECTION = struct.Struct("<IIQQQQIIQQ")
NULL, BITS, SYMBOLS, STRINGS = 0, 1, 2, 3


def fatbin() -> bytes:
    """Returns a fat binary with one entry of PTX."""
    text = PTX + b"\0"
    entry = struct.pack("<HHIQIIHHIIIQQQ", 1, 0, 72, len(text), 0, 0, 0, 7, 80, 0, 0, 0, 0, 0)
    body = entry.ljust(72, b"\0") + text
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def cubin(common: tuple[int, int] | None = None) -> bytes:
    """Returns kernel k with one parameter, and global g. common: type, place of .nv.info."""
    names = b"\0.shstrtab\0.strtab\0.symtab\0.nv.info.k\0.text.k\0.nv.info\0.nv.global\0"
    own = b"\4\x17\x0c\0" + struct.pack("<IHHI", 0, 0, 0, 8 << 18)
    own += b"\4\x05\x0c\0" + struct.pack("<III", 256, 1, 1)
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 5, 0, 64)
    symbols += struct.pack("<IBBHQQ", 3, 0x11, 4, 7, 0, 16)
    registers = b"\4\x2f\x08\0" + struct.pack("<II", 1, 32)
    sections = [
        ("", NULL, b""),
        (".shstrtab", STRINGS, names),
        (".strtab", STRINGS, b"\0k\0g\0"),
        (".symtab", SYMBOLS, symbols),
        (".nv.info.k", BITS, own),
        (".text.k", BITS, bytes(64)),
        (".nv.info", BITS, registers),
        (".nv.global", BITS, b"\1" * 16),
    ]
    return _elf(
        [
            (n, *common, c) if common and n == ".nv.info" else (n, k, None, c)
            for n, k, c in sections
        ],
        names,
    )


def crowded(count: int) -> bytes:
    """Returns an image of `count` kernels, each with its own sections and registers."""
    kernels = [f"k{number}" for number in range(count)]
    infos = [f".nv.info.{name}" for name in kernels]
    common = [".shstrtab", ".strtab", ".symtab", ".nv.info"]
    names = "\0".join(["", *common, *infos, ""]).encode()
    strings, symbols, registers = b"\0", bytes(24), b""
    for number, name in enumerate(kernels):
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0x10, 5, 0, 64)
        registers += b"\4\x2f\x08\0" + struct.pack("<II", 1 + number, 32)
        strings += name.encode() + b"\0"
    contents = [names, strings, symbols, registers]
    kinds = [STRINGS, STRINGS, SYMBOLS, BITS]
    sections = [("", NULL, None, b"")]
    sections += [(n, k, None, c) for n, k, c in zip(common, kinds, contents, strict=True)]
    return _elf([*sections, *((name, BITS, None, b"") for name in infos)], names)


def _elf(sections: list[tuple[str, int, int | None, bytes]], names: bytes) -> bytes:
    """Returns an ELF file. Sections: name, type, offset (None: after the previous), content."""
    places, at = {}, 1
    for name in names[1:].split(b"\0"):
        places.setdefault(name.decode(), at)
        at += len(name) + 1
    table, data = b"", b""
    for name, kind, place, content in sections:
        link = 2 if kind == SYMBOLS else 0
        begin = 64 + len(data) if place is None else place
        ends = (begin, len(content), link, 0, 8, 24 if link else 0)
        table += SECTION.pack(places[name] if name else 0, kind, 0, 0, *ends)
        data += content
    start = b"\x7fELF\2\1\1\x33\7" + bytes(7)
    counts = (64, 0, 0, 64, len(sections), 1)
    return (
        start
        + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(data), 80, *counts)
        + data
        + table
    )


SEEDS = {"ptx": PTX, "fatbin": fatbin(), "cubin": cubin()}
