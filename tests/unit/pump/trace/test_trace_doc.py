"""docs/trace-format.md against the code: its example, its tables, its keys."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from places import DOCS, INCLUDE

from pump.trace import format as form
from pump.trace import info
from pump.trace import records as rec
from pump.trace.reader import Reader

DOC = (DOCS / "trace-format.md").read_text()


def example() -> bytes:
    block = DOC.partition("## Example")[2].split("```")[1]
    return bytes.fromhex("".join(line[:48].strip() for line in block.splitlines()))


RECORDS = [
    rec.Operation(form.KERNEL, 1, 1000, 1, 0, 0x5000, 0xAB, ()),
    rec.Operation(form.KERNEL, 2, 1700, 1, 0, 0x5000, 0xCD, ()),
    rec.Progress(1, 2, 2500, 2440),
]


def test_the_example_is_read_as_the_page_says() -> None:
    reader = Reader(io.BytesIO(example()))
    assert list(reader.records()) == RECORDS
    assert reader.header == {"pump": "0.1.0"}
    assert reader.end == {}


def test_the_example_is_what_the_code_writes_uncompressed() -> None:
    columns = next(Reader(io.BytesIO(example())).chunks())
    chunks = [
        form.pack_chunk(form.CHUNK_HEADER, 0, b'{"pump":"0.1.0"}', level=0),
        form.pack_chunk(form.CHUNK_EVENTS, 3, form.pack_columns(columns), level=0),
        form.pack_chunk(form.CHUNK_END, 0, b"{}", level=0),
    ]
    assert form.file_start() + b"".join(chunks) == example()


def test_the_table_of_columns_is_the_codes() -> None:
    rows = re.findall(r"^\| 0x(\w\w) `(\w+)` u(\d+)( delta)? \|", DOC, re.MULTILINE)
    types = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}
    assert {
        name: (int(number, 16), types[bits], bool(delta)) for number, name, bits, delta in rows
    } == {name: field[:3] for name, field in form.FIELDS.items()}


@pytest.mark.parametrize(
    "row", ["KERNEL", "COPY", "MEMSET", "SYNC", "ALLOC", "FREE", "HINT", "GRAPH"]
)
def test_the_first_kinds_are_those_of_the_shared_memory_contract(row: str) -> None:
    abi = (INCLUDE / "pump_abi.h").read_text()
    assert re.search(rf"#define PUMP_EVENT_{row} {getattr(form, row)}\b", abi)


def test_every_key_of_the_summary_is_on_the_page() -> None:
    keys = set(info.Summary({}).result("complete", 0))
    assert keys <= set(re.findall(r"`(\w+)`", DOC.partition("info --json")[2]))
