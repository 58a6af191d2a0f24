"""The model of a GPU for tests: compiled from its sources, used through cffi.

Gpu is a GPU with its own clock and the calls that a host thread would make. It makes no checks of
facts.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import builds
import cffi
from places import ROOT

from pump_lab import profiles

CORE = ROOT / "lab" / "gpu"
BLOCK_INFO = Path(__file__).parent / "gpu_block.c"
HEADERS = (CORE / "uvm_profile.h", CORE / "gpu_engine.h", BLOCK_INFO)
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
SANITIZE = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
BLOCK = 2 << 20
EVERYTHING = 0  # pages_per_block of a sweep


def sources() -> list[Path]:
    return [*sorted(CORE.glob("*.c")), BLOCK_INFO]


@functools.cache
def build() -> Path:
    """Builds the model as a shared library, once per test run with the system's C compiler."""
    name = "gpu_model.so"

    def make(folder: Path) -> None:
        command = ["cc", *FLAGS, *SANITIZE, f"-I{ROOT}", "-o", folder / name, *sources()]
        subprocess.run(command, check=True, timeout=120)

    return builds.once("gpu-model", make) / name


@functools.cache
def library() -> tuple[cffi.FFI, Any]:
    """Returns (ffi, library) of the model's public interface."""
    ffi = cffi.FFI()
    for header in HEADERS:
        text = header.read_text()
        public = re.search(r"/\* cffi: begin \*/(.*)/\* cffi: end \*/", text, re.DOTALL)
        assert public, f"{header.name} lacks its cffi marks"
        ffi.cdef(public[1])
    return ffi, ffi.dlopen(str(build()))


def parse(text: str) -> Any:
    """Parses a profile. Raises ValueError with the message of the C parser."""
    ffi, lib = library()
    profile, error = ffi.new("struct uvm_profile *"), ffi.new("char[200]")
    if lib.uvm_profile_parse(text.encode(), profile, error, len(error)) != 0:
        raise ValueError(ffi.string(error).decode())
    return profile


class Gpu:
    """One modelled GPU. `now` is in nanoseconds; `blocks` is the size of its memory."""

    def __init__(
        self,
        blocks: int,
        profile: str = "a100-pcie4",
        arena_blocks: int = 4096,
        owners: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.ffi, self.lib = library()
        self.profile = parse(profiles.load(profile).changed(settings or {}).flatten())
        capacity = self.ffi.new(
            "struct gpu_capacity *",
            {
                "blocks": arena_blocks,
                "streams": 64,
                "events": 256,
                "operations": 8192,
                "uses": 65536,
                "owners": owners,
                "notes": 1024 if owners else 0,
            },
        )
        size = self.lib.gpu_engine_bytes(capacity)
        self.memory = self.ffi.new("uint64_t[]", size // 8 + 1)
        self.engine = self.lib.gpu_engine_create(
            self.memory, size, capacity, self.profile, blocks * BLOCK, 0
        )
        assert self.engine != self.ffi.NULL
        self.now = 0
        self.started: list[tuple[int, int]] = []  # (cookie, time)
        self.finished: dict[int, tuple[int, int]] = {}  # cookie -> (start, end)
        self.dropped: list[int] = []
        self.left: list[tuple[int, int]] = []  # (block, pages)
        self.came: list[tuple[int, int, int]] = []  # (how, block, pages)
        self.stalled_ns = 0
        self.tickets: dict[int, int] = {}
        self._callbacks = [
            self.ffi.callback("void(void *, uint64_t, uint64_t, uint64_t)", self._start),
            self.ffi.callback("void(void *, uint64_t, uint64_t, uint64_t, uint64_t)", self._finish),
            self.ffi.callback("void(void *, uint32_t)", self._drop),
            self.ffi.callback("void(void *, struct gpu_move *)", self._move),
            self.ffi.callback("void(void *, uint64_t, bool, uint64_t, uint64_t)", self._stall),
        ]
        self.hooks = self.ffi.new("struct gpu_hooks *", [self.ffi.NULL, *self._callbacks])
        self._cookie = 0

    def _start(self, _context: Any, cookie: int, _ticket: int, time_ns: int) -> None:
        self.started.append((cookie, time_ns))

    def _finish(self, _context: Any, cookie: int, _ticket: int, start: int, end: int) -> None:
        self.finished[cookie] = (start, end)

    def _drop(self, _context: Any, block: int) -> None:
        self.dropped.append(block)

    def _move(self, _context: Any, move: Any) -> None:
        lib = self.lib
        if move.how in (lib.GPU_MOVE_OUT, lib.GPU_MOVE_AHEAD, lib.GPU_MOVE_EVICT):
            self.left.append((move.block, move.pages))
        else:
            self.came.append((move.how, move.block, move.pages))

    def _stall(self, _context: Any, _ticket: int, _fault: bool, start: int, end: int) -> None:
        self.stalled_ns += end - start

    # ---- time

    def advance(self, now: int) -> None:
        self.now = max(self.now, now)
        self.lib.gpu_advance(self.engine, self.now, self.hooks)

    def next_event(self) -> int:
        return int(self.lib.gpu_next_event_ns(self.engine))

    def run(self) -> int:
        """Lets time pass until no event is left; returns the time of the last event."""
        while (time := self.next_event()) != self.lib.GPU_NEVER:
            self.advance(time)
        return self.now

    # ---- operations

    def submit(
        self,
        kind: int,
        uses: Iterable[Sequence[int]] = (),
        stream: int = 0,
        expect: int = 0,
        **fields: int,
    ) -> int:
        """Submits an operation; returns its cookie. Uses are (first, count[, pages[, access]])."""
        rows = [(*use, *(EVERYTHING, self.lib.GPU_READ)[len(use) - 2 :]) for use in uses]
        array = self.ffi.new("struct gpu_use[]", [tuple(row) for row in rows])
        self._cookie += 1
        operation = self.ffi.new(
            "struct gpu_operation *",
            {
                "kind": kind,
                "use_count": len(rows),
                "uses": array,
                "cookie": self._cookie,
                **fields,
            },
        )
        out = self.ffi.new("struct gpu_submitted *")
        status = self.lib.gpu_submit(self.engine, self.now, self.hooks, stream, operation, out)
        assert status == expect, f"submit: {status}"
        self.retry_ns = out.retry_ns
        self.tickets[self._cookie] = out.ticket
        return self._cookie

    def kernel(self, uses: Iterable[Sequence[int]] = (), us: float = 100, stream: int = 0) -> int:
        return self.submit(self.lib.GPU_KERNEL, uses, stream, duration_ns=round(us * 1000))

    def time_of(self, cookie: int) -> int:
        """Runs all events; returns the nanoseconds from start to end of an operation."""
        self.run()
        start, end = self.finished[cookie]
        return end - start

    def run_kernel(self, uses: Iterable[Sequence[int]] = (), us: float = 100) -> int:
        return self.time_of(self.kernel(uses, us))

    # ---- calls of a host thread, which takes their time

    def prefetch(
        self, first: int, count: int, to_host: bool = False, stream: int = 1, discard_kind: int = 0
    ) -> int:
        """Makes a prefetch or discard call and advances `now`. Returns the call's completion."""
        call = self.ffi.new(
            "struct gpu_prefetch_call *",
            {
                "stream": stream,
                "first_block": first,
                "block_count": count,
                "to_host": to_host,
                "discard_kind": discard_kind,
                "cookie": 1 << 40,
            },
        )
        status = self.lib.GPU_MORE
        while status == self.lib.GPU_MORE:
            status = self.lib.gpu_prefetch_step(self.engine, self.now, self.hooks, call)
            assert status in (self.lib.GPU_OK, self.lib.GPU_MORE), status
            self.advance(call.cost.caller_free_ns)
        return int(call.cost.complete_ns)

    def evict(self, first: int, count: int, stream: int = 2) -> int:
        return self.prefetch(first, count, to_host=True, stream=stream)

    def discard(self, first: int, count: int, kind: int) -> None:
        self.prefetch(first, count, discard_kind=kind)

    def advise(self, first: int, count: int, advice: int, expect: int = 0) -> int:
        """Calls cuMemAdvise and advances `now`. Returns the end of the call's waits."""
        cost = self.ffi.new("struct gpu_cost *")
        status = self.lib.gpu_advise(self.engine, self.now, self.hooks, first, count, advice, cost)
        assert status == expect, f"advise: {status}"
        self.advance(cost.caller_free_ns)
        return int(cost.waits_until_ns)

    def read_mostly(self, first: int, count: int) -> None:
        self.advise(first, count, self.lib.GPU_ADVICE_READ_MOSTLY)

    def keep_one(self, first: int, count: int) -> None:
        """Removes READ_MOSTLY."""
        self.advise(first, count, self.lib.GPU_ADVICE_READ_MOSTLY_ENDS)

    def create(self, first: int, count: int) -> None:
        assert self.lib.gpu_range_create(self.engine, self.now, self.hooks, first, count) == 0

    def on_host(self, first: int, count: int) -> None:
        """Creates a range with its contents in host memory."""
        self.create(first, count)
        self.prefetch(first, count, to_host=True, stream=0)

    def stream(self, blocking: bool = False, priority: int = 0) -> int:
        flags = self.lib.GPU_STREAM_BLOCKING if blocking else self.lib.GPU_STREAM_NONBLOCKING
        return int(self.lib.gpu_stream_create(self.engine, flags, priority))

    # ---- state

    def counters(self) -> Any:
        out = self.ffi.new("struct gpu_counters *")
        self.lib.gpu_counters_get(self.engine, out)
        return out

    def memory_state(self) -> Any:
        out = self.ffi.new("struct gpu_memory *")
        self.lib.gpu_memory_get(self.engine, out)
        return out

    def block(self, number: int) -> Any:
        out = self.ffi.new("struct block_info *")
        self.lib.block_info_get(self.engine, number, out)
        return out

    def resident(self, first: int, count: int) -> list[int]:
        return [i for i in range(first, first + count) if self.block(i).gpu_pages]

    def check(self) -> None:
        assert self.lib.gpu_check(self.engine) == 0


def gpu_with(blocks: int) -> Gpu:
    """Returns a GPU with an inward stream (1) and an outward stream (2) for prefetches."""
    gpu = Gpu(blocks)
    assert [gpu.stream(), gpu.stream()] == [1, 2]
    return gpu
