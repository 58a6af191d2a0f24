"""Multiplied files: sound files in which single numbers are replaced and rows are repeated.

An input lists positions and values, not bytes. So every checksum is right, and each mutation
reaches the code after the parser. Each change takes CHANGE bytes: kind, position and value.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from pump.trace import format as form

CHANGE = struct.Struct("<BBB")
CHANGES_MOST = 40
INTEGERS = (
    *(0, 1, 2, 3, 1000, 65535, 65536, 1 << 20, 1 << 21, 1 << 30, (1 << 31) - 1, 1 << 31),
    *((1 << 32) - 1, 1 << 32, 1 << 36, 1 << 40, 1 << 42, 3600 * 10**9, 1 << 48, 1 << 53),
    *((1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
)
VALUES: tuple[Any, ...] = (
    *INTEGERS,
    *(-1, -(1 << 63), 10**400, 0.0, -0.5, 1e-300, 1e308, -1e308),
    *(float("nan"), float("inf"), -float("inf"), True, None, "", "x\n\x1b[2J", [], {}, "9" * 5000),
)
COPIES = (1, 2, 7, 100, 3000, 60_000)


def decode_changes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields the changes of an input: kind, position, value."""
    whole = len(data) // CHANGE.size * CHANGE.size
    for number, change in enumerate(CHANGE.iter_unpack(data[:whole])):
        if number < CHANGES_MOST:
            yield change


# ---- recordings --------------------------------------------------------------------------------

NAMES = [name for name in form.FIELDS if name != "kind"]
SUFFIXES = ("_ns", "_us", "_bytes", "_seq", "")
"""Columns that are set together: all times, lengths, numbers of operations, or all columns."""
HEADER = {"pump": "0.1", "policy": "window", "command": ["a"], "job": {"virtual": {"mode": "x"}}}
END = {"lost_ns": 1, "lost_least_ns": 1, "lost_most_ns": 2, "lost_of_ns": 9, "rows": 5}
END |= {"lost_delayed_ns": 1}


def sound() -> dict[str, list[int]]:
    """Returns a small recording's columns: a row of every kind, and three kernels that wait."""
    ranges = {"time_ns": [1000] * 3, "slot": [0, 1, 2], "generation": [1] * 3}
    ranges |= {"base": [n << 32 for n in (1, 2, 3)], "length_bytes": [64 << 20] * 3}
    op = {"seq": [1, 2, 3], "time_ns": [2000, 3000, 9_000_000], "stream": [0] * 3}
    extents = {"slot": [0, 1, 2], "generation": [1] * 3, "length_bytes": [8 << 20] * 3}
    columns = {f"range_{name}": values for name, values in ranges.items()}
    columns |= {f"op_{name}": values for name, values in op.items()}
    columns |= {f"extent_{name}": values for name, values in extents.items()}
    columns |= {"op_extents": [1] * 3, "extent_access": [1, 3, 0], "kernel_function": [7] * 3}
    columns |= {"progress_seq": [1, 3], "progress_time_ns": [50_000, 9_900_000]}
    columns |= {"sample_time_ns": [2000, 9_000_000], "sample_blocks_late": [1, 8]}
    columns |= {"sync_seq": [3], "sync_begin_ns": [9_100_000], "sync_end_ns": [9_900_000]}
    columns |= {"device_total_bytes": [1 << 30], "device_budget_bytes": [64 << 20]}
    columns |= {"name_function": [7], "name_bytes": [4], "name_text": list(b"name")}
    columns |= {"policy_bytes": [4], "policy_text": list(b"bold"), "device_uuid": [5] * 16}
    columns["kind"] = [form.DEVICE, form.POLICY, form.NAME, *[form.ALLOC] * 3, *[form.KERNEL] * 2]
    columns["kind"] += [form.SAMPLE, form.PROGRESS, form.KERNEL, form.SYNC, form.SAMPLE]
    columns["kind"] += [form.PROGRESS, form.LOST, form.GRAPH, form.TRANSFER, form.READ]
    columns["kind"] += [form.THREADS, form.RESYNC, form.PARAMS]
    return columns


def completed(columns: dict[str, list[int]]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns all columns, each with as many values as its rows need."""
    per_kind = np.bincount(columns["kind"], minlength=256)
    found = {"kind": np.array(columns["kind"], np.uint64)}
    for name in NAMES:
        of = form.SUM_OF.get(name)
        if of:
            count = int(found[of].sum()) if of in found else int(sum(columns.get(of, [])))
        else:
            count = int(per_kind[list(form.ROWS_OF[name.partition("_")[0]])].sum())
            count *= form.UUID_BYTES if name == "device_uuid" else 1
        values = (columns.get(name) or [0])[: max(1, count)]
        values = values + values[-1:] * (count - len(values))
        found[name] = np.array(values[:count], np.uint64)
    return found


def recording(data: bytes) -> bytes:
    """Returns an input's recording. The first byte selects the number of copies of all rows."""
    columns, header, end = completed(sound()), dict(HEADER), dict(END)
    copies = COPIES[data[0] % len(COPIES)] if data else 1
    for what, where, value in decode_changes(data[1:]):
        if what < len(NAMES):
            _change(columns[NAMES[what]], NAMES[what], where, INTEGERS[value % len(INTEGERS)])
        elif what < len(NAMES) + 2 * len(SUFFIXES):
            suffix = SUFFIXES[what % len(SUFFIXES)]
            for name in (name for name in NAMES if name.endswith(suffix)):
                _change(columns[name], name, where, INTEGERS[value % len(INTEGERS)])
        else:
            _set(end if what % 2 else header, where, VALUES[value % len(VALUES)])
    copies = min(copies, form.MAX_ROWS // len(columns["kind"]))
    columns = {name: np.tile(values, copies) for name, values in columns.items()}
    for name in ("op_seq", "op_time_ns"):
        step = np.repeat(np.arange(copies, dtype=np.uint64), len(columns[name]) // copies)
        columns[name] = columns[name] + step * np.uint64(10_000_000 if "time" in name else 3)
    body = form.pack_columns(columns)
    chunks = (
        (form.CHUNK_HEADER, 0, json.dumps(header).encode()),
        (form.CHUNK_EVENTS, len(columns["kind"]), body),
        (form.CHUNK_END, 0, json.dumps(end).encode()),
    )
    return form.file_start() + b"".join(form.pack_chunk(*one, 1) for one in chunks)


def _change(column: np.ndarray[Any, Any], name: str, where: int, value: int) -> None:
    """Sets one value of a column, or all if `where` is 255. Lengths of texts do not change."""
    field = form.FIELDS[name]
    if name in ("name_bytes", "params_bytes", "policy_bytes", "op_extents") or not len(column):
        return
    most = min(np.iinfo(field.dtype).max, (field.limit or 1 << 64) - 1)
    if where == 255:
        column[:] = min(value, most)
    else:
        column[where % len(column)] = min(value, most)


# ---- documents ---------------------------------------------------------------------------------


def document(sound: Any, data: bytes) -> Any:
    """Returns a JSON or TOML document with changed leaves."""
    changed = json.loads(json.dumps(sound))
    for what, where, value in decode_changes(data):
        _set(changed, what * 256 + where, VALUES[value % len(VALUES)])
    return changed


def _set(tree: Any, where: int, value: Any) -> None:
    leaves = list(_leaves(tree))
    if leaves:
        parent, key = leaves[where % len(leaves)]
        parent[key] = value


def _leaves(tree: Any) -> Iterator[tuple[Any, Any]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _leaves(value)


def toml(tree: dict[str, Any]) -> str:
    """Formats a document as TOML: its own values first, then its tables."""
    return "\n".join(_toml(tree, ""))


def _toml(tree: dict[str, Any], path: str) -> Iterator[str]:
    for key, value in tree.items():
        if not isinstance(value, dict):
            yield f"{json.dumps(key)} = {_value(value)}"
    for key, value in tree.items():
        if isinstance(value, dict):
            inner = f"{path}{json.dumps(key)}"
            yield f"[{inner}]"
            yield from _toml(value, f"{inner}.")


def _value(value: Any) -> str:
    if value is None:
        return "1979-05-27"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)
