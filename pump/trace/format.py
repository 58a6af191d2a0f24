"""Defines the file format of recordings: numbers, chunk frames, columns. Opens no file.

docs/trace-format.md describes it byte by byte; a test compares its worked example with this code.

DESIGN
  A file is a magic number, a version, and chunks. A chunk is a frame with two checksums (CRC-32 of
  the frame and of its body) and a body that is usually compressed (zlib). With two sums, a reader
  distinguishes a damaged file from one that ends early because its writer was killed. It uses a
  frame's lengths only after it has checked the frame's sum. In a file that ends early, all earlier
  chunks are valid; in a damaged one, nothing after the damage is.

  Rows are stored as columns. A training loop repeats itself, so the columns of a chunk repeat
  themselves; byte planes (all lowest bytes, then all second bytes, ...) let a simple compressor use
  that. Each chunk is decoded independently.

  The constants below bound everything, so that a hostile file costs a reader little.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pump.base.outputs import TRACE_MAGIC

MAGIC: Final = TRACE_MAGIC
VERSION: Final = 1
"""Increased only if an older reader would misread a file."""

FILE_START: Final = struct.Struct("<8sII")  # magic, version, zero
FRAME: Final = struct.Struct("<HHIIII")  # kind, flags, rows, raw bytes, stored bytes, body's sum
FRAME_SUM: Final = struct.Struct("<I")  # CRC-32 of the frame before it
FRAME_BYTES: Final = FRAME.size + FRAME_SUM.size

CHUNK_HEADER: Final = 1
CHUNK_EVENTS: Final = 2
CHUNK_END: Final = 3

FLAG_COMPRESSED: Final = 1

# Row kinds below 32 are the PUMP_EVENT_* of the shared memory contract.
KERNEL: Final = 1
COPY: Final = 2
MEMSET: Final = 3
SYNC: Final = 5
ALLOC: Final = 6
FREE: Final = 7
HINT: Final = 8
PARAMS: Final = 9
NAME: Final = 10
PROGRESS: Final = 11
GRAPH: Final = 12
TIMED: Final = 17
RANGE: Final = 32
DEVICE: Final = 33
LOST: Final = 34
RESYNC: Final = 35
POLICY: Final = 36
SAMPLE: Final = 37
TRANSFER: Final = 38
READ: Final = 39
THREADS: Final = 40

# Reasons of a LOST row.
LOST_RING_FULL: Final = 1
LOST_SKIPPED: Final = 2
LOST_MALFORMED: Final = 3
LOST_RECORDER: Final = 4

LOST_TIMES: Final = ("lost_ns", "lost_least_ns", "lost_most_ns", "lost_of_ns")
"""Keys of the END chunk: the time lost to memory, its least and most, and the total time."""
DELAYED_TIME: Final = "lost_delayed_ns"
"""Key of the END chunk: the part of the time lost in which the program waited for a CPU core."""
HELD_TIME: Final = "held_ns"
"""Key of the END chunk: the time that the client's threads waited for turns on a GPU."""
IN_PLACE_PEAK: Final = "in_place_bytes_peak"
"""Key of the END chunk: the most bytes of allocations that kernels read in place on the host."""

# Groups of threads in a THREADS row. In the client: executors, which move memory to the GPU and to
# the host; the marker thread, which polls progress; the link thread, which connects to pumpd; the
# program's threads. In pumpd: the worker.
THREADS_TO_GPU: Final = 1
THREADS_TO_HOST: Final = 2
THREADS_MARKERS: Final = 3
THREADS_LINK: Final = 4
THREADS_PROGRAM: Final = 5
THREADS_WORKER: Final = 6

# Bounds. The first group is from the shared memory contract.
MAX_SLOTS: Final = 131072
MAX_STREAMS: Final = 1024
MAX_DEVICES: Final = 16
MAX_ROWS: Final = 65536
"""Most rows of one chunk."""
MAX_EXTENTS: Final = 262144
"""Most extents of one chunk."""
MAX_BLOB_BYTES: Final = 1 << 22
"""Most bytes of names, or of parameters, in one chunk."""
MAX_BODY_BYTES: Final = 1 << 25
"""Most bytes of a chunk's body, before and after compression."""
MAX_JSON_BYTES: Final = 1 << 20
FREE_ROWS: Final = MAX_ROWS
FREE_EXTENTS: Final = MAX_EXTENTS
ROWS_PER_BYTE: Final = 4
EXTENTS_PER_BYTE: Final = 16
"""A whole file has at most FREE_* rows and extents, and *_PER_BYTE more for each of its bytes. Real
recordings take a byte a row for times. Without these bounds, a file of pure repetitions would take
readers hours."""

Column = NDArray[Any]
Columns = dict[str, Column]


class TraceError(Exception):
    """A file cannot be read as a recording; the text is one line with the reason."""


class DamagedError(TraceError):
    """A recording holds bytes that no writer writes, or that contradict their checksum."""


class Field(NamedTuple):
    """A column: its number in the file, its type in memory, whether differences are stored.

    limit: this value and greater ones are damage; 0 for no limit.
    """

    number: int
    dtype: type[np.unsignedinteger[Any]]
    delta: bool = False
    limit: int = 0


FIELDS: Final[Mapping[str, Field]] = {
    "kind": Field(0x01, np.uint8),
    # KERNEL, COPY, MEMSET, HINT
    "op_seq": Field(0x10, np.uint64, delta=True),
    "op_time_ns": Field(0x11, np.uint64, delta=True),
    "op_stream": Field(0x12, np.uint32, limit=MAX_STREAMS),
    "op_device": Field(0x13, np.uint8, limit=MAX_DEVICES),
    "op_extents": Field(0x14, np.uint32, limit=MAX_EXTENTS),
    "op_dropped": Field(0x15, np.uint16),
    # extents of these
    "extent_slot": Field(0x18, np.uint32, limit=MAX_SLOTS),
    "extent_generation": Field(0x19, np.uint32),
    "extent_offset_bytes": Field(0x1A, np.uint64),
    "extent_length_bytes": Field(0x1B, np.uint64),
    "extent_access": Field(0x1C, np.uint8, limit=4),
    "extent_argument": Field(0x1D, np.uint32),
    # KERNEL
    "kernel_function": Field(0x20, np.uint64),
    "kernel_signature": Field(0x21, np.uint64),
    # ALLOC, FREE, RANGE
    "range_time_ns": Field(0x30, np.uint64, delta=True),
    "range_slot": Field(0x31, np.uint32, delta=True, limit=MAX_SLOTS),
    "range_generation": Field(0x32, np.uint32),
    "range_base": Field(0x33, np.uint64, delta=True),
    "range_length_bytes": Field(0x34, np.uint64),
    "range_device": Field(0x35, np.uint8, limit=MAX_DEVICES),
    "range_kind": Field(0x36, np.uint8, limit=3),
    "range_alloc_seq": Field(0x37, np.uint64, delta=True),
    # SYNC
    "sync_seq": Field(0x40, np.uint64, delta=True),
    "sync_stream": Field(0x41, np.uint32, limit=MAX_STREAMS),
    "sync_begin_ns": Field(0x42, np.uint64, delta=True),
    "sync_end_ns": Field(0x43, np.uint64, delta=True),
    # PROGRESS
    "progress_seq": Field(0x50, np.uint64, delta=True),
    "progress_stream": Field(0x51, np.uint32, limit=MAX_STREAMS),
    "progress_time_ns": Field(0x52, np.uint64, delta=True),
    "progress_before_ns": Field(0x53, np.uint64, delta=True),
    # TIMED
    "timed_seq": Field(0x58, np.uint64, delta=True),
    "timed_stream": Field(0x59, np.uint32, limit=MAX_STREAMS),
    "timed_time_ns": Field(0x5A, np.uint64, delta=True),
    "timed_elapsed_ns": Field(0x5B, np.uint64),
    # NAME
    "name_function": Field(0x60, np.uint64),
    "name_bytes": Field(0x61, np.uint32, limit=MAX_BLOB_BYTES),
    "name_text": Field(0x62, np.uint8),
    # PARAMS
    "params_function": Field(0x70, np.uint64),
    "params_signature": Field(0x71, np.uint64),
    "params_grid_x": Field(0x72, np.uint32),
    "params_grid_y": Field(0x73, np.uint32),
    "params_grid_z": Field(0x74, np.uint32),
    "params_block_x": Field(0x75, np.uint32),
    "params_block_y": Field(0x76, np.uint32),
    "params_block_z": Field(0x77, np.uint32),
    "params_parameter_bytes": Field(0x78, np.uint32),
    "params_bytes": Field(0x79, np.uint32, limit=MAX_BLOB_BYTES),
    "params_data": Field(0x7A, np.uint8),
    # DEVICE
    "device_time_ns": Field(0x80, np.uint64),
    "device_index": Field(0x81, np.uint8, limit=MAX_DEVICES),
    "device_uuid": Field(0x82, np.uint8),
    "device_total_bytes": Field(0x83, np.uint64),
    "device_free_at_start_bytes": Field(0x84, np.uint64),
    "device_budget_bytes": Field(0x85, np.uint64),
    "device_plain_bytes": Field(0x86, np.uint64),
    "device_state": Field(0x87, np.uint8),
    "device_emulated": Field(0x88, np.uint8, limit=2),
    # LOST
    "lost_time_ns": Field(0x90, np.uint64),
    "lost_reason": Field(0x91, np.uint8),
    "lost_count": Field(0x92, np.uint64),
    # RESYNC
    "resync_time_ns": Field(0xA0, np.uint64),
    "resync_seq": Field(0xA1, np.uint64),
    "resync_ranges": Field(0xA2, np.uint32, limit=MAX_SLOTS + 1),
    # POLICY
    "policy_time_ns": Field(0xB0, np.uint64),
    "policy_bytes": Field(0xB1, np.uint32, limit=MAX_BLOB_BYTES),
    "policy_text": Field(0xB2, np.uint8),
    # GRAPH
    "graph_seq": Field(0xC0, np.uint64, delta=True),
    "graph_executable": Field(0xC1, np.uint64),
    "graph_operations": Field(0xC2, np.uint64),
    # SAMPLE; numbers of a device, except the last three, which are the whole client's
    "sample_time_ns": Field(0xD0, np.uint64, delta=True),
    "sample_device": Field(0xD1, np.uint8, limit=MAX_DEVICES),
    "sample_allocated_bytes": Field(0xD2, np.uint64, delta=True),
    "sample_resident_bytes": Field(0xD3, np.uint64, delta=True),
    "sample_maybe_evicted_bytes": Field(0xD4, np.uint64, delta=True),
    "sample_arriving_bytes": Field(0xD5, np.uint64, delta=True),
    "sample_leaving_bytes": Field(0xD6, np.uint64, delta=True),
    "sample_host_bytes": Field(0xD7, np.uint64, delta=True),
    "sample_blocks_used": Field(0xD8, np.uint64, delta=True),
    "sample_blocks_hit": Field(0xD9, np.uint64, delta=True),
    "sample_blocks_late": Field(0xDA, np.uint64, delta=True),
    "sample_blocks_unseen": Field(0xDB, np.uint64, delta=True),
    "sample_blocks_no_room": Field(0xDC, np.uint64, delta=True),
    "sample_moved_to_gpu_bytes": Field(0xDD, np.uint64, delta=True),
    "sample_moved_to_host_bytes": Field(0xDE, np.uint64, delta=True),
    "sample_window_depth": Field(0xDF, np.uint64, delta=True),
    # TRANSFER
    "transfer_time_ns": Field(0xE0, np.uint64, delta=True),
    "transfer_device": Field(0xE1, np.uint8, limit=MAX_DEVICES),
    "transfer_direction": Field(0xE2, np.uint8, limit=2),
    "transfer_result": Field(0xE3, np.uint8),
    "transfer_slot": Field(0xE4, np.uint32, limit=MAX_SLOTS),
    "transfer_generation": Field(0xE5, np.uint32),
    "transfer_offset_bytes": Field(0xE6, np.uint64),
    "transfer_bytes": Field(0xE7, np.uint64),
    "transfer_waited_us": Field(0xE8, np.uint32),
    "transfer_called_us": Field(0xE9, np.uint32),
    "transfer_driver_us": Field(0xEA, np.uint32),
    "transfer_link_us": Field(0xEB, np.uint32),
    "transfer_seen_us": Field(0xEC, np.uint32),
    "transfer_kept": Field(0xED, np.uint32),
    # READ
    "read_time_ns": Field(0xF0, np.uint64, delta=True),
    "read_waited_us": Field(0xF1, np.uint32),
    # THREADS
    "threads_time_ns": Field(0xF8, np.uint64, delta=True),
    "threads_group": Field(0xF9, np.uint8),
    "threads_ran_ns": Field(0xFA, np.uint64, delta=True),
    "threads_delay_ns": Field(0xFB, np.uint64, delta=True),
}
LATER: Final = ("op_dropped", "progress_before_ns", "transfer_kept")
"""Columns that a chunk may lack, and old recordings do: the reader fills in zeros."""
BY_NUMBER: Final = {field.number: name for name, field in FIELDS.items()}

OPERATIONS: Final = (KERNEL, COPY, MEMSET)
ROWS_OF: Final[Mapping[str, tuple[int, ...]]] = {
    "op": (*OPERATIONS, HINT),
    "kernel": (KERNEL,),
    "range": (ALLOC, FREE, RANGE),
    "sync": (SYNC,),
    "progress": (PROGRESS,),
    "timed": (TIMED,),
    "name": (NAME,),
    "params": (PARAMS,),
    "device": (DEVICE,),
    "lost": (LOST,),
    "resync": (RESYNC,),
    "policy": (POLICY,),
    "graph": (GRAPH,),
    "sample": (SAMPLE,),
    "transfer": (TRANSFER,),
    "read": (READ,),
    "threads": (THREADS,),
}
"""The kinds of rows that a column has values for, by the first word of the column's name."""

# The length of each column here is the sum of another. `device_uuid` has UUID_BYTES a row.
SUM_OF: Final[Mapping[str, str]] = {
    **{name: "op_extents" for name in FIELDS if name.startswith("extent_")},
    "name_text": "name_bytes",
    "params_data": "params_bytes",
    "policy_text": "policy_bytes",
}
UUID_BYTES: Final = 16


def signed(values: Column) -> NDArray[np.int64]:
    """Returns times and numbers as int64, shape [n]. Values above 2^62 become 2^62, so that
    nonsense in a file causes no error."""
    return np.minimum(values, np.uint64(1 << 62)).astype(np.int64)


# ---- chunks -----------------------------------------------------------------


class Frame(NamedTuple):
    """The frame before a chunk's body."""

    kind: int
    flags: int
    rows: int
    raw_bytes: int
    stored_bytes: int
    body_sum: int


def file_start() -> bytes:
    """Returns the first 16 bytes of a file."""
    return FILE_START.pack(MAGIC, VERSION, 0)


def pack_chunk(kind: int, rows: int, body: bytes, level: int = 3) -> bytes:
    """Returns a whole chunk; compresses the body if that makes it smaller."""
    stored, flags = body, 0
    packed = zlib.compress(body, level)
    if len(packed) < len(body):
        stored, flags = packed, FLAG_COMPRESSED
    frame = FRAME.pack(kind, flags, rows, len(body), len(stored), zlib.crc32(stored))
    return frame + FRAME_SUM.pack(zlib.crc32(frame)) + stored


def unpack_frame(data: bytes) -> Frame:
    """Parses a frame of FRAME_BYTES. Raises DamagedError for a wrong sum, sizes or flags."""
    (found,) = FRAME_SUM.unpack_from(data, FRAME.size)
    if zlib.crc32(data[: FRAME.size]) != found:
        raise DamagedError("a chunk's frame has a wrong check sum")
    frame = Frame(*FRAME.unpack_from(data))
    if max(frame.raw_bytes, frame.stored_bytes) > MAX_BODY_BYTES or frame.rows > MAX_ROWS:
        raise DamagedError("a chunk is larger than the format allows")
    if frame.flags & ~FLAG_COMPRESSED:
        raise DamagedError(f"a chunk has unknown flags {frame.flags:#x}")
    return frame


def unpack_body(frame: Frame, stored: bytes) -> bytes:
    """Returns the uncompressed body, whose length must match the frame. Raises DamagedError."""
    if zlib.crc32(stored) != frame.body_sum:
        raise DamagedError("a chunk has a wrong check sum")
    if not frame.flags & FLAG_COMPRESSED:
        body = stored
    else:
        unpacker = zlib.decompressobj()
        try:
            body = unpacker.decompress(stored, frame.raw_bytes + 1)
        except zlib.error:
            raise DamagedError("a chunk cannot be decompressed") from None
        if not unpacker.eof or unpacker.unused_data:
            raise DamagedError("a chunk's compressed data have the wrong length")
    if len(body) != frame.raw_bytes:
        raise DamagedError("a chunk's contents do not match its frame")
    return body


# ---- columns ----------------------------------------------------------------

COLUMN: Final = struct.Struct("<HBBIQ")  # number, encoding, width, count, base
PLAIN: Final = 0
DELTA: Final = 1
WIDTHS: Final = (0, 1, 2, 4, 8)


def pack_columns(columns: Mapping[str, Column]) -> bytes:
    """Packs columns in the order of FIELDS, without empty ones and all-zero ones of LATER."""
    parts: list[bytes] = []
    for name, field in FIELDS.items():
        values = columns.get(name)
        if values is not None and (values.any() if name in LATER else len(values)):
            parts += _pack_column(field, values.astype(np.uint64))
    return b"".join(parts)


def _pack_column(field: Field, values: NDArray[np.uint64]) -> Iterable[bytes]:
    if field.delta:
        encoding, base = DELTA, int(values[0])
        steps = np.diff(values, prepend=values[:1]).astype(np.int64)
        offsets = ((steps << 1) ^ (steps >> 63)).astype(np.uint64)
    else:
        encoding, base = PLAIN, int(values.min())
        offsets = values - np.uint64(base)
    largest = int(offsets.max())
    width = next(w for w in WIDTHS if largest < 1 << 8 * w)
    planes = offsets.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    yield COLUMN.pack(field.number, encoding, width, len(values), base)
    yield planes.T.tobytes()


def unpack_columns(body: bytes) -> Columns:
    """Returns the columns of a body that this version knows; skips others. Raises DamagedError."""
    columns: Columns = {}
    at = 0
    while at < len(body):
        if len(body) - at < COLUMN.size:
            raise DamagedError("a chunk ends within a column")
        number, encoding, width, count, base = COLUMN.unpack_from(body, at)
        at += COLUMN.size
        if width not in WIDTHS or width * count > len(body) - at:
            raise DamagedError("a column is longer than its chunk")
        name = BY_NUMBER.get(number)
        if name is not None:
            if name in columns or encoding not in (PLAIN, DELTA) or count > _most(name):
                raise DamagedError(f"column {name} is repeated, too long or of an unknown encoding")
            data = np.frombuffer(body, np.uint8, width * count, at).reshape(width, count)
            columns[name] = _unpack_column(name, encoding, base, data)
        at += width * count
    return columns


def _most(name: str) -> int:
    """Returns the most values of a column in one chunk, which bounds the memory for decoding."""
    if name in ("name_text", "params_data", "policy_text"):
        return MAX_BLOB_BYTES
    if name == "device_uuid":
        return MAX_ROWS * UUID_BYTES
    return MAX_EXTENTS if name in SUM_OF else MAX_ROWS


def _unpack_column(name: str, encoding: int, base: int, data: NDArray[np.uint8]) -> Column:
    field = FIELDS[name]
    width, count = data.shape
    planes = np.zeros((count, 8), np.uint8)
    planes[:, :width] = data.T
    values = planes.view("<u8").reshape(count).astype(np.uint64, copy=False)
    if encoding == DELTA:
        steps = (values >> np.uint64(1)) ^ (np.uint64(0) - (values & np.uint64(1)))
        values = np.cumsum(steps, dtype=np.uint64)
    values = values + np.uint64(base)
    top = int(values.max()) if count else 0
    if top > np.iinfo(field.dtype).max or (field.limit and top >= field.limit):
        raise DamagedError(f"column {name} has the impossible value {top}")
    return values.astype(field.dtype)
