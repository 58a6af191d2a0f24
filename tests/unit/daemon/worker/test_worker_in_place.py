"""When the worker has kernels read a range on the host, and when it ends that."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fake_client import BLOCK, FakeClient, lib

from pump.policy import by_name
from pumpd.worker.worker import Worker

BUDGET, TABLE = 64, 128  # blocks
TRIALS_PART, READS = 50, 8
"""Constants of model_in_place.c."""
BLOCK_S = 100e-6 / 16
"""Time per block of FakeClient's slices of 16 blocks, in seconds."""
FAST_S, SLOW_S = 1e-5, 2e-3
"""Faster and slower than the arrival of half of the table."""
GATHER, DENSE = 1, 2
"""Functions; the name of the first one tells that it gathers."""


class Program:
    """A table of twice the budget, read by one launch after another. `refuses`: executors cannot
    set the advice."""

    def __init__(self, placement: str, *, refuses: bool = False, policy: str = "window") -> None:
        self.client = FakeClient(BUDGET)
        self.worker = Worker(self.client.mapping, by_name(policy), placement=placement)
        self.refuses = refuses
        self.advice: list[tuple[int, int]] = []
        """Advice and number of blocks, in order."""
        self.moved = 0
        self.worker.tick()  # later ranges are new, not of unknown age
        self.client.name(GATHER, b"embedding_bag")
        self.table = self.client.alloc(TABLE)
        self.worker.tick()

    def close(self) -> None:
        self.client.close()

    def carry_out(self) -> None:
        for direction in (lib.PUMP_TO_HOST, lib.PUMP_TO_GPU):
            for command in self.client.commands(direction):
                blocks = command.length_bytes // BLOCK
                result = lib.PUMP_RESULT_MOVED
                if command.advice:
                    self.advice.append((int(command.advice), int(blocks)))
                    result = lib.PUMP_RESULT_FAILED if self.refuses else result
                else:
                    self.moved += blocks
                self.client.finish(command, result)

    def run(self, seq: int) -> None:
        for _ in range(6):
            self.worker.tick()
            self.carry_out()
        self.client.execute(seq)
        self.worker.tick()

    def launch(self, function: int = GATHER, elapsed_s: float = SLOW_S) -> None:
        """Launches a kernel on the table, executes it and reports its time."""
        time.sleep(0.005)  # operations that began before the advice prove nothing
        self.finish(self.client.launch([self.table], function=function), elapsed_s)

    def finish(self, seq: int, elapsed_s: float) -> None:
        """Executes an operation and reports its time."""
        self.run(seq)
        self.client.push(
            lib.PUMP_EVENT_TIMED,
            seq,
            [],
            signature=round(elapsed_s * 1e9),
            time_ns=time.monotonic_ns(),
        )
        for _ in range(12):
            self.worker.tick()
            self.carry_out()

    def advised(self, advice: int) -> int:
        return sum(blocks for found, blocks in self.advice if found == advice)

    @property
    def in_place_bytes(self) -> int:
        return int(self.worker.model.totals().in_place_bytes)


def after(seconds: float, program: Program) -> Any:
    """Waits until a trial may cost this many seconds, launching kernels until then."""
    end = time.monotonic() + seconds * TRIALS_PART
    while time.monotonic() < end:
        program.launch()


@pytest.fixture
def programs() -> Any:
    made: list[Program] = []

    def make(placement: str, **more: Any) -> Program:
        made.append(Program(placement, **more))
        return made[-1]

    yield make
    for program in made:
        program.close()


def test_by_default_all_memory_migrates(programs: Any) -> None:
    program = programs("migrate")
    after(TABLE * BLOCK_S, program)
    assert not program.advice
    assert program.moved


def test_remote_reads_in_place_whatever_operations_lack_much_of(programs: Any) -> None:
    program = programs("remote")
    for _ in range(6):
        program.launch(DENSE)
    assert program.advised(lib.PUMP_ADVICE_IN_PLACE) == TABLE
    assert program.in_place_bytes == TABLE * BLOCK
    program.moved = 0
    for _ in range(6):
        program.launch(DENSE, elapsed_s=SLOW_S)
    assert not program.moved, "its blocks are not needed"
    assert program.in_place_bytes == TABLE * BLOCK, "no time ends it"
    program.worker.publish()
    assert program.worker.counters.in_place_bytes_peak == TABLE * BLOCK


def test_a_faster_trial_is_kept_and_a_slower_one_is_not(programs: Any) -> None:
    for elapsed_s, kept in ((FAST_S, True), (SLOW_S, False)):
        program = programs("auto")
        while not program.advice:
            program.launch()
        for _ in range(4):
            program.launch(elapsed_s=elapsed_s)
        assert program.advised(lib.PUMP_ADVICE_IN_PLACE) == TABLE
        assert (program.in_place_bytes == TABLE * BLOCK) is kept
        assert program.advised(lib.PUMP_ADVICE_MIGRATE) == (0 if kept else TABLE)


def test_a_trial_waits_until_its_cost_is_a_small_part_of_the_run(programs: Any) -> None:
    program = programs("auto")
    begun = time.monotonic()
    while not program.advice:
        program.launch()
    least = (TABLE - BUDGET) * BLOCK_S * TRIALS_PART
    assert time.monotonic() - begun >= least
    dense = programs("auto")
    begun = time.monotonic()
    while not dense.advice:
        dense.launch(DENSE)
    assert time.monotonic() - begun >= READS * least


def test_what_a_wrong_trial_has_cost_delays_the_next_one(programs: Any) -> None:
    program, costly_s = programs("auto"), 0.03
    begun = time.monotonic()
    while not program.advice:
        program.launch()
    while not program.advised(lib.PUMP_ADVICE_MIGRATE):
        program.launch(elapsed_s=costly_s)
    program.advice.clear()
    program.table = program.client.alloc(TABLE)
    while not program.advice:
        program.launch()
    lost_s = costly_s - TABLE * BLOCK_S
    assert time.monotonic() - begun >= lost_s * TRIALS_PART


def test_what_became_slower_twice_migrates_again_for_good(programs: Any) -> None:
    program = programs("auto")
    while not program.in_place_bytes:
        program.launch(elapsed_s=FAST_S)
    program.launch(elapsed_s=FAST_S)
    program.launch(elapsed_s=SLOW_S)
    program.launch(elapsed_s=FAST_S)
    program.launch(elapsed_s=SLOW_S)
    assert program.in_place_bytes, "one slow operation ends nothing"
    program.launch(elapsed_s=SLOW_S)
    assert not program.in_place_bytes
    assert program.advised(lib.PUMP_ADVICE_MIGRATE) == TABLE
    program.advice.clear()
    after(2 * TABLE * BLOCK_S, program)
    assert not program.advice


def test_a_range_that_cannot_be_advised_migrates(programs: Any) -> None:
    program = programs("remote", refuses=True)
    for _ in range(10):
        program.launch()
    assert {advice for advice, _ in program.advice} == {
        lib.PUMP_ADVICE_IN_PLACE,
        lib.PUMP_ADVICE_MIGRATE,
    }
    assert not program.in_place_bytes
    program.advice.clear()
    program.moved = 0
    for _ in range(10):
        program.launch()
    assert not program.advice
    assert program.moved


def test_a_freed_range_is_forgotten_and_its_slot_begins_again(programs: Any) -> None:
    program = programs("remote")
    for _ in range(6):
        program.launch()
    assert program.in_place_bytes
    program.client.free(program.table)
    program.worker.tick()
    assert not program.in_place_bytes
    program.table = program.client.alloc(TABLE)
    program.worker.tick()
    program.moved = 0
    program.launch()
    assert program.moved


def test_what_the_programs_allocator_frees_in_a_range_ends_it(programs: Any) -> None:
    program = programs("remote")
    for _ in range(6):
        program.launch()
    assert program.in_place_bytes
    program.client.push(lib.PUMP_EVENT_DEAD, 0, [(program.table, 0, BLOCK)])
    for _ in range(6):
        program.worker.tick()
        program.carry_out()
    assert not program.in_place_bytes
    assert program.advised(lib.PUMP_ADVICE_MIGRATE) == TABLE


def test_ranges_with_memory_that_was_never_touched_are_not_advised(programs: Any) -> None:
    program = programs("remote")
    client = program.client
    others = [client.alloc(30), client.alloc(30)]  # too small to be advised
    half = [(program.table, 0, TABLE // 2 * BLOCK)]
    for _ in range(6):
        for extents in ([(slot, 0, 30 * BLOCK) for slot in others], half):
            seq = int(client.shm.header.next_seq)
            client.shm.header.next_seq = seq + 1
            client.push(lib.PUMP_EVENT_KERNEL, seq, extents, function=DENSE)
            program.run(seq)
    assert program.moved > 2 * TABLE
    assert not program.advice
    for _ in range(6):
        program.launch()
    assert program.advice, "now it is touched"


def test_without_a_measured_arrival_nothing_is_tried(programs: Any) -> None:
    program = programs("auto", policy="demand")
    after(TABLE * BLOCK_S, program)
    assert not program.advice


def test_an_operation_whose_memory_had_arrived_proves_nothing(programs: Any) -> None:
    """It lacked memory when it was issued, and found it on the GPU."""
    program = programs("auto")
    client, bytes_ = program.client, (BUDGET - 4) * BLOCK
    table, other = (client.alloc(BUDGET - 4) for _ in range(2))
    while not program.in_place_bytes:
        program.run(client.launch([other], function=DENSE))
        first, second = (client.launch([table], function=GATHER) for _ in range(2))
        program.finish(first, SLOW_S)
        time.sleep(0.005)  # it begins after the advice
        program.finish(second, FAST_S)
    assert program.in_place_bytes == bytes_
    program.run(client.launch([other], function=DENSE))
    time.sleep(0.005)
    program.finish(client.launch([table], function=GATHER), SLOW_S)
    assert not program.in_place_bytes, "one slow operation ends a trial"
