"""load_generator.c for Python: a client with its own mapping, and the worker that serves it.

It cannot judge a worker's schedules: every transfer succeeds, and nothing is ever stale.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness import ROOT, MeasurementError, Tools, compile_c

PER_MARKER = 16
EXTENTS = 4
RECORDS = 2
TO_GPU, TO_HOST = 0, 1
_U64, _U32, _POINTER = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "load_generator_new": (_POINTER, [_POINTER, _U64, _U64, _U64, _U32, _U32]),
    "load_generator_free": (None, [_POINTER]),
    "load_generator_issue": (_U64, [_POINTER, _U64]),
    "load_generator_report": (_U64, [_POINTER]),
    "load_generator_clock": (None, [_POINTER, _U64, _U64]),
    "load_generator_next": (ctypes.c_int, [_POINTER]),
    "load_generator_moved": (_U64, [_POINTER, _U32]),
    "load_generator_transfers": (_U64, [_POINTER, _U32]),
    "load_generator_start": (_POINTER, [_POINTER, _U32, _U64, _U64, _U32, _POINTER]),
    "load_generator_join": (_U32, [_POINTER, ctypes.POINTER(_U64), ctypes.POINTER(_U64)]),
}


def library(tools: Tools) -> ctypes.CDLL:
    """Builds load_generator.c against the headers of this tree and loads it."""
    source = ROOT / "lab" / "bench" / "load_generators" / "load_generator.c"
    path = compile_c(tools, "load_generator.so", [source], "-shared", "-fPIC", "-pthread")
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


class LoadGenerator:
    """A client over its own mapping. `worker` serves it, in this thread."""

    def __init__(self, lib: ctypes.CDLL, raw: int, worker: Any) -> None:
        self._lib = lib
        self._raw = raw
        self.worker = worker

    def issue(self, count: int) -> None:
        """Issues operations. Raises MeasurementError if the ring is full."""
        if self._lib.load_generator_issue(self._raw, count) != count:
            raise MeasurementError(f"the event ring has no room for {count} operations")

    def tell(self) -> None:
        """Sends the parameters of each signature, once."""
        self._lib.load_generator_report(self._raw)

    def clock(self, operation_ns: int, block_ns: int) -> None:
        """Sets the times for next(): of an operation, and of a block in each link direction."""
        self._lib.load_generator_clock(self._raw, operation_ns, block_ns)

    def next(self) -> bool:
        """Advances to the next completion (False) or marker (True): 16 executed, 16 issued.

        Raises MeasurementError if the worker does not read the issued operations.
        """
        found = int(self._lib.load_generator_next(self._raw))
        if found < 0:
            raise MeasurementError("the event ring is full: the worker does not read it")
        return found == 1

    def moved(self, direction: int) -> int:
        """Returns the number of blocks that transfers have moved."""
        return int(self._lib.load_generator_moved(self._raw, direction))

    def transfers(self, direction: int) -> int:
        """Returns the number of started transfers."""
        return int(self._lib.load_generator_transfers(self._raw, direction))

    def start(self, operations: int, window: int, throttle: bool, cpus: Sequence[int]) -> int:
        """Starts a thread on each of `cpus` (-1: on any CPU); returns a handle for join()."""
        places = (ctypes.c_int32 * len(cpus))(*cpus)
        crowd = self._lib.load_generator_start(
            self._raw, len(cpus), operations, window, throttle, ctypes.addressof(places)
        )
        if not crowd:
            raise MeasurementError(f"cannot start {len(cpus)} producers of {operations} operations")
        return int(crowd)

    def join(self, crowd: int, threads: int) -> tuple[int, int]:
        """Waits for the threads; returns (dropped operations, retries)."""
        dropped, retries = _U64(), _U64()
        if (
            self._lib.load_generator_join(crowd, ctypes.byref(dropped), ctypes.byref(retries))
            != threads
        ):
            raise MeasurementError("not every producer could be started")
        return dropped.value, retries.value


@contextmanager
def serving(
    lib: ctypes.CDLL,
    policy: str,
    *,
    budget_blocks: int,
    ranges: int,
    range_blocks: int,
    active: bool,
    arguments: bool,
) -> Iterator[LoadGenerator]:
    """Yields a load generator and its worker over a fresh mapping.

    `active`: the worker moves blocks. `arguments`: kernels report pointers without lengths, as in
    the shim, so the worker has to learn the lengths.
    """
    from pump.policy import by_name
    from pump.wire.abi import SHM_BYTES, ffi
    from pump.wire.mapping import Mapping
    from pumpd.worker.worker import Worker

    fd = os.memfd_create("load_generator")
    try:
        os.ftruncate(fd, SHM_BYTES)
        mapping = Mapping(fd)
    finally:
        os.close(fd)
    address = int(ffi.cast("uintptr_t", mapping.shm))
    raw = lib.load_generator_new(address, budget_blocks, ranges, range_blocks, active, arguments)
    if not raw:
        raise MeasurementError(f"no load generator of {ranges} ranges")
    worker = Worker(mapping, by_name(policy))
    try:
        yield LoadGenerator(lib, raw, worker)
    finally:
        lib.load_generator_free(raw)
        del worker
        mapping.close()
