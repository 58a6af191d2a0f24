"""Random programs on the modelled GPU: invariants, and queries without effects."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from gpu_model import BLOCK, Gpu

ARENA = 300
RANGE = 20
STREAMS = 5


class Program:
    """A random but valid host program; the same seed submits the same at the same times.

    `looks` draws additional times for calls of the engine in between.
    """

    def __init__(self, seed: int, looks: random.Random | None = None) -> None:
        self.random = random.Random(seed)
        self.looks = looks
        self.gpu = Gpu(100, arena_blocks=ARENA)
        self.live: list[int] = []
        self.plain = 0
        self.outcomes: list[object] = []
        for number in range(1, STREAMS):
            self.gpu.stream(blocking=number % 2 == 0)
        self.events = [self.gpu.lib.gpu_event_create(self.gpu.engine) for _ in range(4)]

    def pass_time(self, until: int) -> None:
        while self.looks and self.gpu.now < until and self.looks.random() < 0.7:
            self.gpu.advance(self.looks.randint(self.gpu.now, until))
        self.gpu.advance(until)

    def uses(self) -> list[tuple[int, int, int, int]]:
        draw, rows = self.random, []
        for _ in range(draw.randint(1, 6)):
            first = draw.choice(self.live) + draw.randint(0, RANGE // 2)
            rows.append(
                (
                    first,
                    draw.randint(1, RANGE // 2),
                    draw.choice([0, 0, 1, 9]),
                    draw.choice([0, 1, 2]),
                )
            )
        return rows

    def step(self) -> None:
        gpu, lib, draw = self.gpu, self.gpu.lib, self.random
        stream = draw.randrange(STREAMS)
        free = [at for at in range(0, ARENA, RANGE) if at not in self.live]
        kind = draw.choices(
            ["range", "free", "kernel", "copy", "memset", "in", "out", "discard",
             "event", "plain"],
            [2, 1, 8, 2, 1, 5, 4, 2, 2, 1],
        )[0]  # fmt: skip
        if kind == "range" or not self.live:
            if free:
                self.live.append(draw.choice(free))
                gpu.create(self.live[-1], RANGE)
        elif kind == "free":
            self.free(self.live.pop(draw.randrange(len(self.live))))
        elif kind == "kernel":
            gpu.kernel(self.uses(), us=draw.randint(1, 3000), stream=stream)
        elif kind == "copy":
            which = draw.choice([lib.GPU_COPY_H2D, lib.GPU_COPY_D2H])
            gpu.submit(which, self.uses()[:1], stream, length_bytes=draw.randint(0, 1 << 27))
        elif kind == "memset":
            gpu.submit(lib.GPU_MEMSET, self.uses()[:1], stream, duration_ns=draw.randint(0, 9999))
        elif kind in ("in", "out"):
            self.prefetch(stream, kind == "out")
        elif kind == "discard":
            rows = [(draw.choice(self.live), draw.randint(1, RANGE))]
            gpu.submit(lib.GPU_DISCARD, rows, stream, discard_kind=draw.choice([1, 2]))
        elif kind == "event":
            which = draw.choice([lib.GPU_EVENT_RECORD, lib.GPU_EVENT_WAIT])
            gpu.submit(which, (), stream, event=draw.choice(self.events))
        else:
            self.reserve()

    def prefetch(self, stream: int, to_host: bool) -> None:
        first, count = self.random.choice(self.live), self.random.randint(1, RANGE)
        self.outcomes.append(self.gpu.prefetch(first, count, to_host, stream))

    def free(self, first: int) -> None:
        # Like a driver: earlier operations end before the range is freed.
        self.pass_time(self.gpu.run())
        cost = self.gpu.ffi.new("struct gpu_cost *")
        gpu = self.gpu
        assert gpu.lib.gpu_range_destroy(gpu.engine, gpu.now, gpu.hooks, first, RANGE, cost) == 0
        self.pass_time(max(gpu.now, cost.complete_ns))

    def reserve(self) -> None:
        """Reserves plain memory, or releases the reserved memory."""
        gpu, lib = self.gpu, self.gpu.lib
        cost = gpu.ffi.new("struct gpu_cost *")
        if self.plain:
            assert lib.gpu_plain_release(gpu.engine, gpu.now, gpu.hooks, self.plain) == 0
            self.plain = 0
        else:
            wanted = self.random.randint(1, 25 * BLOCK)
            if lib.gpu_plain_reserve(gpu.engine, gpu.now, gpu.hooks, wanted, cost) == lib.GPU_OK:
                self.plain = wanted

    def run(self, steps: int, check: bool) -> None:
        for _ in range(steps):
            self.step()
            self.pass_time(self.gpu.now + self.random.choice([0, 0, 1000, 100_000, 2_000_000]))
            if check:
                self.check()
        self.pass_time(self.gpu.run())
        self.check()

    def check(self) -> None:
        self.gpu.check()  # lists, chunks, pages, conservation of bytes, queues
        state = self.gpu.memory_state()
        held = state.resident_bytes + state.unused_bytes + state.plain_bytes
        assert held <= state.total_bytes
        assert held + state.free_bytes <= state.total_bytes
        assert self.gpu.counters().errors == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_keep_every_invariant_and_finish(seed: int) -> None:
    program = Program(seed)
    program.run(400, check=True)
    started = len(program.gpu.started)
    assert started > 250
    assert program.gpu.next_event() == program.gpu.lib.GPU_NEVER


@pytest.mark.parametrize("seed", range(8))
def test_completion_times_do_not_depend_on_when_they_are_queried(seed: int) -> None:
    plain, watched = Program(seed), Program(seed, looks=random.Random(seed + 1000))
    for program in (plain, watched):
        program.run(300, check=False)
    assert watched.gpu.finished == plain.gpu.finished
    assert watched.gpu.started == plain.gpu.started
    assert watched.gpu.dropped == plain.gpu.dropped
    assert watched.outcomes == plain.outcomes
    one, other = (bytes(p.gpu.ffi.buffer(p.gpu.counters())) for p in (plain, watched))
    assert one == other


@pytest.mark.parametrize("seed", range(4))
def test_the_data_of_a_live_block_is_lost_only_by_discard(seed: int) -> None:
    program = Program(seed)
    discards = program.gpu.lib.GPU_DISCARD
    submit = program.gpu.submit
    program.gpu.submit = lambda kind, *rest, **fields: (  # type: ignore[method-assign]
        0 if kind == discards else submit(kind, *rest, **fields)
    )
    program.run(300, check=False)
    assert program.gpu.dropped == []
    assert program.gpu.counters().dropped_bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_pages_told_to_leave_are_all_that_is_copied_to_the_host(seed: int) -> None:
    program = Program(seed)
    program.run(400, check=False)
    counted = program.gpu.counters()
    told_bytes = sum(pages.bit_count() << 16 for _, pages in program.gpu.left)
    copied = counted.d2h_evict_bytes + counted.d2h_prefetch_bytes
    assert told_bytes == copied > 0


@pytest.mark.parametrize("seed", range(4))
def test_reported_arrivals_and_stalls_add_up_to_the_counters(seed: int) -> None:
    program = Program(seed)
    program.run(400, check=False)
    gpu, counted = program.gpu, program.gpu.counters()
    came = sum(pages.bit_count() << 16 for _, _, pages in gpu.came)
    populated = counted.populated_bytes
    assert came == counted.h2d_demand_bytes + counted.h2d_prefetch_bytes + populated > 0
    none = [block for how, block, _ in gpu.came if how == gpu.lib.GPU_MOVE_NONE]
    assert len(none) == counted.prefetch_resident_blocks
    stalls = counted.stall_fault_ns + counted.stall_arrival_ns + counted.copy_stall_ns
    assert gpu.stalled_ns == stalls > 0


@pytest.mark.parametrize("seed", range(4))
def test_time_never_runs_backwards_in_the_hooks(seed: int) -> None:
    program = Program(seed)
    program.run(300, check=False)
    assert all(a <= b for (_, a), (_, b) in pairwise(program.gpu.started))
    assert all(start <= end for start, end in program.gpu.finished.values())
