"""Files made to hurt their reader: bounded time and memory, and one line.

The files are small; their claims, or their unpacked contents, are not. The checksums of their
chunks are right.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pump.trace import format as form

PUMP = Path(sys.executable).parent / "pump"
MEMORY_BYTES = 3 << 30
"""Address space, taken mostly by the numeric libraries."""
TIMEOUT_S = 60
CPU_S = 10
"""CPU seconds, imports included."""
ALL = (1 << 64) - 1
ROWS = form.MAX_ROWS


def chunk(rows: int, **columns: Any) -> bytes:
    packed = {name: np.asarray(values, np.uint64) for name, values in columns.items()}
    return form.pack_chunk(form.CHUNK_EVENTS, rows, form.pack_columns(packed), 9)


def allocation(base: int, length_bytes: int) -> bytes:
    names = ("time_ns", "slot", "generation", "device", "kind", "alloc_seq")
    rest = {f"range_{name}": [0] for name in names}
    whole = {**rest, "range_base": [base], "range_length_bytes": [length_bytes]}
    return chunk(1, kind=[form.ALLOC], **whole)


def kernels(count: int, reach_bytes: int = 0, time_ns: int = 0) -> bytes:
    names = ("op_stream", "op_device", "kernel_function", "kernel_signature")
    columns: dict[str, Any] = {name: [0] * count for name in names}
    columns |= {"kind": [form.KERNEL] * count, "op_seq": range(count)}
    columns |= {"op_time_ns": [time_ns] * count, "op_extents": [int(reach_bytes > 0)] * count}
    if reach_bytes:
        zero = ("slot", "generation", "offset_bytes", "access", "argument")
        columns |= {f"extent_{name}": [0] * count for name in zero}
        columns["extent_length_bytes"] = [reach_bytes] * count
    return chunk(count, **columns)


def progress(time_ns: int, seq: int) -> bytes:
    columns = {"progress_stream": [0, 0], "progress_before_ns": [0, 0]}
    columns |= {"progress_seq": [seq, seq], "progress_time_ns": [time_ns, time_ns]}
    return chunk(2, kind=[form.PROGRESS] * 2, **columns)


def recording(*chunks: bytes, header: bytes = b"{}") -> bytes:
    start = form.file_start() + form.pack_chunk(form.CHUNK_HEADER, 0, header, 0)
    return start + b"".join(chunks) + form.pack_chunk(form.CHUNK_END, 0, b"{}", 0)


RECORDINGS: dict[str, Callable[[], bytes]] = {
    "a hundred million rows in half a megabyte": lambda: recording(kernels(ROWS) * 2000),
    "times and memory at the end of the numbers": lambda: recording(
        allocation(ALL - 4096, ALL), kernels(2, ALL, ALL), kernels(2, ALL, 5)
    ),
    "a range of 20 TiB that each operation uses": lambda: recording(
        allocation(1 << 30, 20 << 40), kernels(1000, 20 << 40)
    ),
    "464 bytes of which each operation uses all of 64 GiB": lambda: recording(
        allocation(1 << 48, 64 << 30), kernels(4000, 64 << 30)
    ),
    "a whole chunk of operations in a hundred bytes": lambda: recording(
        allocation(1 << 30, 8 << 21), kernels(ROWS - 1, 8 << 21)
    ),
    "operations that take no time": lambda: recording(allocation(1 << 30, 2 << 20), kernels(2)),
    "all times behind the largest signed number": lambda: recording(
        kernels(2, 0, ALL), progress(1 << 63, ALL)
    ),
    "half of a surrogate where text is expected": lambda: recording(
        kernels(1), header=b'{"policy": "\\ud800", "command": ["\\udfff\\u001b"], "job": 5}'
    ),
    "a header of brackets": lambda: recording(header=b'{"a":' + b"[" * 200_000),
}
COMMANDS = [
    pytest.param(("trace", "info"), id="info"),
    pytest.param(("report", "--output=/dev/null"), id="report"),
    pytest.param(("simulate",), id="simulate", marks=pytest.mark.lab),
]


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def told(*words: str | Path) -> str:
    """Returns pump's standard error: pump ended by itself, with at most a line and no traceback."""
    done = subprocess.run(
        [PUMP, *words],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert len(done.stderr.splitlines()) == (done.returncode != 0) and len(done.stderr) < 1000
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_hostile_recording_costs_little_and_gets_one_line(
    name: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "recording"
    file.write_bytes(RECORDINGS[name]())
    told(*command, file)


@pytest.mark.lab
def test_what_a_file_of_its_length_may_not_need_is_simulated_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    from pump_lab.sim.program import TOUCHES_FREE

    file = tmp_path / "recording"
    most = TOUCHES_FREE // 256
    file.write_bytes(recording(allocation(1 << 30, 512 << 20), kernels(most + 500, 512 << 20)))
    assert "add --most-uses" in told("simulate", "--gpu-memory=1GiB", file)
    told("simulate", "--gpu-memory=1GiB", "--most-uses=10000000", file)
    assert "--most-uses is 0" in told("simulate", "--most-uses=0", file)


def trace(length_bytes: int, duration_us: float, kernels: int) -> bytes:
    tensor = {"id": 0, "bytes": length_bytes, "persistent": True}
    kernel = {"name": "k", "duration_us": duration_us, "reads": [0], "writes": [0]}
    whole = {"model": "m", "batch": 1, "tensors": [tensor], "kernels": [kernel] * kernels}
    return json.dumps(whole).encode()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: gzip.compress(bytes(129 << 20), 1), "exceeds"),
        (lambda: trace(1 << 48, 1.0, 1), "out of range"),
        (lambda: trace(1 << 40, 1.0, 1000), "uses of blocks"),
        (lambda: trace(1 << 22, 3.6e9, 300), "more seconds"),
        (lambda: b'{"tensors": [{"id": ' + b"9" * 5000 + b"}]}", "not a trace"),
    ],
)
def test_a_hostile_trace_costs_little_and_gets_one_line(
    data: Callable[[], bytes], words: str, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(data())
    assert words in told("simulate", file)


@pytest.mark.lab
def test_few_iterations_may_use_no_more_blocks_in_each(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(trace(1 << 40, 1.0, 1))
    for count in ("1", "2", "3"):
        assert "add --most-uses" in told("simulate", "--iterations", count, file)
    file.write_bytes(trace(256 << 30, 1.0, 1))
    for count in ("1", "3"):
        command = [PUMP, "simulate", "--iterations", count, file]
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.mark.lab
def test_a_file_without_an_end_is_not_read_for_ever(tmp_path: Path) -> None:
    assert "not a regular file" in told("simulate", "/dev/zero")
    profile = tmp_path / "profile.toml"
    profile.symlink_to("/dev/zero")
    assert "not a regular file" in told("simulate", "--profile", profile, "none.json")
    huge = tmp_path / "huge"
    for name in (huge, huge.with_suffix(".toml")):
        name.touch()
        os.truncate(name, 1 << 40)
    assert "longer than" in told("simulate", huge)
    assert "longer than" in told("simulate", "--profile", huge.with_suffix(".toml"), "none.json")
    deep = tmp_path / "deep.toml"
    deep.write_text(f"a = {'[' * 50_000}")
    assert "nested too deeply" in told("simulate", "--profile", deep, "none.json")
