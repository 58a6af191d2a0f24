"""The time that a run lost to memory, from times of some of its operations.

Runs are made up: operations have known own times, and some wait for their blocks. The model gets
the reports that the shim would send.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from model_batch import BLOCK, Script

from pump.model.client import HOST
from pump.wire.abi import lib

MS = 1_000_000
FIRST_NS = 10**12
POLLED_NS = 60_000
"""The approximate delay until the end of an operation is seen."""


class Step(NamedTuple):
    """An operation of a made-up run. `after_ms`: The program's own work since the previous one."""

    own_ms: float
    stall_ms: float = 0.0
    after_ms: float = 0.01
    timed: bool = False
    wait: bool = False
    """The program waits for the operation."""
    delayed_ms: float = 0.0
    """The program waits this long for a CPU core before it issues the operation."""
    slowed_ms: float = 0.0
    """The program's own work takes longer, because caches are cold."""
    spun_ms: float = 0.0
    """The program waits this long for a CPU core while it waits for the GPU anyway."""
    others_ms: float = 0.0
    """The operation waits this long for kernels of other processes, even with enough memory."""


class Run:
    """A made-up run, and a model that gets its reports."""

    def __init__(self) -> None:
        self.script = Script(budget=1 << 20)
        self.script.model.start_timing()
        self.script.seq = 1 << 20
        self._slots: dict[float, int] = {}
        self._thread_ns = self._free_ns = FIRST_NS
        self._room = [FIRST_NS, FIRST_NS]
        self.count = 0
        self._delayed_ns = self._steps = 0
        self.share = 1.0
        """The job's share of the CPU time."""

    def skip(self, own_ms: float) -> None:
        """Runs an operation that is not reported."""
        self.script.seq += 1
        for at in range(2):
            self._room[at] += int(own_ms * MS)
        self._thread_ns += int(own_ms * MS)
        self._free_ns = max(self._free_ns, self._thread_ns)

    def neighbours(self, count: int) -> None:
        """Lets up to `count` other processes compute on the GPU."""
        self.count = count
        self.script.model.lost(count)

    def step(self, step: Step) -> None:
        """Issues an operation; if it has a stall, its blocks are on the host."""
        script = self.script
        slot = self._slots.setdefault(step.own_ms, len(self._slots))
        blocks = script.model.blocks_of(slot)
        if blocks is None:
            blocks = script.alloc(slot, 1 + 4 * slot)
            # The first use of a block does not count.
            script.execute(script.copy([(slot, 0, len(blocks))], time_ns=FIRST_NS))
        if step.stall_ms:
            script.set_state(blocks, HOST)
        self._thread_ns += int((step.after_ms + step.delayed_ms + step.slowed_ms) * MS)
        self._delayed_ns += int((step.delayed_ms + step.spun_ms) * MS)
        self._room[0] += int(step.after_ms * MS)
        seq = script.copy([(slot, 0, len(blocks))], time_ns=self._thread_ns)
        room_ns = int((step.own_ms + step.others_ms) * MS)
        took_ns = room_ns + int(step.stall_ms * MS)
        self._free_ns = max(self._free_ns, self._thread_ns) + took_ns
        self._room[1] = max(self._room[1], self._room[0]) + room_ns
        script.execute(seq)
        if step.timed:
            seen_ns = self._free_ns + POLLED_NS
            script.send(lib.PUMP_EVENT_TIMED, seq=seq, time_ns=seen_ns, signature=took_ns)
        if step.wait:
            began_ns, self._thread_ns = self._thread_ns, max(self._thread_ns, self._free_ns)
            self._room[0] = max(self._room)
            script.send(lib.PUMP_EVENT_SYNC, seq=seq, time_ns=self._thread_ns, signature=began_ns)
        self._steps += 1
        if self._steps % 8 == 0:
            script.model.delayed(self._thread_ns, self._delayed_ns, self.share)

    @property
    def truth_ms(self) -> float:
        """Returns how much longer the run took than without stalls."""
        real, room = max(self._thread_ns, self._free_ns), max(self._room)
        return (real - room) / MS

    @property
    def lost(self) -> Any:
        return self.script.model.lost(self.count)


def made(steps: list[Step]) -> Run:
    run = Run()
    for step in steps:
        run.step(step)
    return run


def close(run: Run) -> bool:
    lost = run.lost
    allowed_ms = max(0.1 * run.truth_ms, 0.01 * lost.of_ns / MS)
    near = abs(lost.likely_ns / MS - run.truth_ms) <= allowed_ms
    return bool(near) and lost.least_ns <= lost.likely_ns <= lost.most_ns


def training(stall_ms: float, *, wait: bool = False) -> list[Step]:
    """Returns iterations of ten operations. In most iterations two operations wait for blocks."""
    return [
        Step(
            own_ms=1.0 if place % 2 else 3.0,
            stall_ms=stall_ms if place in (4, 7) and iteration % 4 else 0.0,
            timed=(iteration * 10 + place) % 7 == 0,
            wait=place == 9 and (wait or iteration == 39),
        )
        for iteration in range(40)
        for place in range(10)
    ]


@pytest.mark.parametrize("wait", [False, True], ids=["no_wait", "a_wait_each_iteration"])
@pytest.mark.parametrize("stall_ms", [0.5, 2.0, 20.0])
def test_what_operations_waited_for_their_blocks_is_lost(stall_ms: float, wait: bool) -> None:
    run = made(training(stall_ms, wait=wait))
    assert run.truth_ms == pytest.approx(60 * stall_ms, rel=0.02)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_the_program_waited_for_a_processor_is_lost(share: float) -> None:
    """The lower bound is the part of the wait that the job itself may have caused."""
    run = Run()
    run.share = share
    for n in range(400):
        run.step(Step(0.2, 0.4 * (n == 3), after_ms=0.3, delayed_ms=0.7, timed=n % 5 == 0))
    run.step(Step(0.2, timed=True, wait=True))
    assert run.truth_ms == pytest.approx(400 * 0.7, rel=0.02)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)
    assert run.lost.least_ns / MS == pytest.approx(share * run.truth_ms, rel=0.1)
    assert run.lost.delayed_ns / MS == pytest.approx(run.truth_ms, rel=0.05)


def test_a_thread_that_waits_for_a_processor_is_slower_afterwards_and_that_is_lost_too() -> None:
    """Issues usually follow each other at 0.03 ms; each tenth waits, each fifth takes longer."""
    steps = [
        Step(0.01, 0.4 * (n == 3), after_ms=0.03, delayed_ms=0.3 * (n % 10 == 4),
             slowed_ms=0.1 * (n % 5 == 2), timed=n % 16 == 0)
        for n in range(4000)
    ]  # fmt: skip
    run = made([*steps, Step(0.01, timed=True, wait=True)])
    assert run.truth_ms == pytest.approx(4000 * 0.05, rel=0.02)
    assert run.lost.likely_ns / MS == pytest.approx(run.truth_ms, rel=0.1)
    assert run.lost.least_ns <= run.truth_ms * MS <= run.lost.most_ns


def test_short_gaps_that_all_contain_a_wait_for_a_processor_are_lost() -> None:
    steps = [
        Step(0.01, 0.4 * (n == 3), after_ms=0.03, delayed_ms=0.07, timed=n % 16 == 0)
        for n in range(4000)
    ]
    run = made([*steps, Step(0.01, timed=True, wait=True)])
    assert run.lost.likely_ns / MS == pytest.approx(run.truth_ms, rel=0.15)


def test_a_program_whose_work_varies_without_waits_for_a_processor_lost_nothing() -> None:
    steps = [
        Step(0.01, 0.4 * (n == 3), after_ms=0.03 + 0.1 * (n % 5 == 2), timed=n % 16 == 0)
        for n in range(4000)
    ]
    run = made([*steps, Step(0.01, timed=True, wait=True)])
    # Only of the 256 issues after the stall, the longer gaps count.
    assert run.lost.likely_ns <= 0.03 * run.lost.of_ns
    assert run.lost.least_ns <= 0.01 * run.lost.of_ns


@pytest.mark.parametrize("processes", [0, 1])
def test_issues_that_take_longer_while_memory_moves_are_lost(processes: int) -> None:
    steps = [
        Step(0.01, 0.02 * (n % 20 == 3), after_ms=0.03, slowed_ms=0.02 * (n % 3 != 0),
             timed=n % 16 == 0)
        for n in range(4000)
    ]  # fmt: skip
    run = Run()
    run.neighbours(processes)
    for step in [*steps, Step(0.01, timed=True, wait=True)]:
        run.step(step)
    told_ms = run.lost.likely_ns / MS
    if processes:  # their work may be the cause
        assert told_ms < 0.2 * run.truth_ms
    else:
        assert told_ms == pytest.approx(run.truth_ms, rel=0.35)
        assert run.lost.delayed_ns == 0, "no core was missing"
    assert run.lost.least_ns <= run.truth_ms * MS


def test_what_it_waited_while_the_gpu_was_busy_costs_nothing() -> None:
    steps = [
        Step(3.0, 1.0 * (n == 3), delayed_ms=1.0, timed=n % 5 == 0, wait=n % 50 == 49)
        for n in range(200)
    ]
    run = made(steps)
    assert run.truth_ms < 10
    assert run.lost.delayed_ns <= run.lost.likely_ns <= 0.02 * run.lost.of_ns


def test_stalls_are_told_from_waits_for_a_processor() -> None:
    """The GPU is busy, and stalls. The program's waits during that time are not lost time."""
    steps = [
        Step(3.0, 4.0 * (n % 2), after_ms=0.1, delayed_ms=2.0, timed=n % 5 == 0, wait=n == 199)
        for n in range(200)
    ]
    run = made(steps)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)
    assert run.lost.delayed_ns <= 0.1 * run.lost.likely_ns


def test_what_it_waited_while_it_waited_for_the_gpu_costs_nothing() -> None:
    steps = [
        Step(5.0, 1.0 * (n == 3), spun_ms=3.0, timed=n % 5 == 0, wait=True) for n in range(200)
    ]
    run = made(steps)
    assert run.truth_ms < 2
    assert run.lost.likely_ns <= 0.01 * run.lost.of_ns


def test_what_it_waited_before_memory_was_short_is_not_lost_to_it() -> None:
    early = [Step(0.2, after_ms=0.3, delayed_ms=0.7, timed=n % 5 == 0) for n in range(200)]
    late = [Step(0.2, 5.0 * (n == 3), after_ms=0.3, timed=n % 5 == 0) for n in range(200)]
    run = made([*early, *late, Step(0.2, timed=True, wait=True)])
    assert run.lost.of_ns > 250 * MS
    assert run.lost.likely_ns <= 0.03 * run.lost.of_ns


def test_a_run_whose_blocks_never_left_lost_nothing_whatever_it_measured() -> None:
    run = made([Step(own_ms=1.0, timed=True, wait=True) for _ in range(50)])
    lost = run.lost
    assert (lost.likely_ns, lost.least_ns, lost.most_ns) == (0, 0, 0)
    assert lost.of_ns > 40 * MS


def test_stalls_while_the_gpu_would_be_idle_cost_nothing() -> None:
    steps = [
        Step(own_ms=1.0, stall_ms=3.0 if n % 2 else 0.0, after_ms=10.0, timed=n % 3 == 0)
        for n in range(99)
    ]
    run = made([*steps, Step(own_ms=1.0, after_ms=10.0, timed=True, wait=True)])
    assert run.truth_ms == 0
    assert run.lost.likely_ns <= 0.01 * run.lost.of_ns


def test_operations_that_waited_each_time_give_a_range_that_holds_the_truth() -> None:
    steps = [
        Step(own_ms=2.0, stall_ms=5.0 + n % 3, timed=n % 4 == 0, wait=n == 99) for n in range(100)
    ]
    run = made(steps)
    lost = run.lost
    assert lost.least_ns <= run.truth_ms * MS <= lost.most_ns
    assert lost.most_ns - lost.least_ns > 0.2 * lost.of_ns, "it must not look certain"


@pytest.mark.parametrize("cost_ms", [0.2, 1.0])
def test_what_faults_cost_is_subtracted_where_operations_waited_each_time(cost_ms: float) -> None:
    """There are two kinds, with 1 and 5 blocks; the blocks of the second are never resident."""
    steps = [
        Step(
            own_ms=1.0 if n % 2 else 3.0,
            stall_ms=cost_ms * (1 if n % 2 else 5) if n % 2 == 0 or n % 3 == 0 else 0.0,
            timed=n % 5 in (0, 3),
            wait=n == 199,
        )
        for n in range(1, 200)
    ]
    run = made(steps)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)


def test_a_wait_that_the_model_did_not_see_is_no_own_time() -> None:
    """The model believes the second kind's blocks resident only once, and it waits then, too."""
    steps = [
        Step(
            own_ms=1.0 if n % 2 else 3.0,
            stall_ms=0.0 if n == 20 else 5.0 if n % 2 == 0 else 1.0 if n % 3 == 0 else 0.0,
            others_ms=20.0 if n == 20 else 0.0,
            timed=n % 5 in (0, 3),
            wait=n == 199,
        )
        for n in range(1, 200)
    ]
    run = made(steps)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)


def test_the_shortest_time_of_several_is_their_own_though_none_found_its_blocks() -> None:
    """The model believes a few blocks on the host that the driver had kept, without any effect."""
    stalls = (0.0, 1.3, 0.0, 2.9, 0.7, 0.0, 4.1)
    run = made([Step(own_ms=1.0), Step(own_ms=3.0)])
    blocks = run.script.model.blocks_of(1)
    assert blocks is not None
    for n in range(1, 140):
        run.script.set_state(blocks[: 1 + n % 4], HOST)
        run.step(Step(own_ms=3.0, others_ms=stalls[n % 7], timed=n % 2 == 0, wait=n == 139))
    lost_ms = sum(stalls[n % 7] for n in range(1, 140))
    assert run.lost.likely_ns / MS == pytest.approx(lost_ms, rel=0.1)


def test_stalls_of_nearly_as_many_faults_are_no_own_time() -> None:
    """Operations fault on 60 to 64 blocks each time, which takes nearly all of their time."""
    run = made([Step(own_ms=own, timed=True) for own in (1.0, 0.02) for _ in range(16)])
    blocks = run.script.alloc(2, 64)
    run.script.execute(run.script.copy([(2, 0, 64)], time_ns=FIRST_NS))
    run._slots[0.2] = 2
    stalls = [16.0 + 0.25 * (n % 5) / 64 for n in range(100)]
    for n, stall_ms in enumerate(stalls):
        run.script.set_state(blocks[: 60 + n % 5], HOST)
        run.step(Step(own_ms=0.2, others_ms=stall_ms, timed=n % 3 == 0, wait=n == 99))
    assert run.lost.likely_ns / MS == pytest.approx(sum(stalls), rel=0.1)


def test_the_shortest_time_of_several_is_certain_though_most_waited_unseen() -> None:
    """The model believes all blocks resident, except one block, once."""
    stalls = (0.0, 1.3, 2.9, 0.0, 2.1, 0.7, 4.1)
    run = made([Step(own_ms=3.0), Step(own_ms=3.0, stall_ms=1.0)])
    for n in range(140):
        run.step(Step(own_ms=3.0, others_ms=stalls[n % 7], timed=n % 4 == 0, wait=n == 139))
    lost, lost_ms = run.lost, 1.0 + sum(stalls[n % 7] for n in range(140))
    assert 0.85 * lost_ms <= lost.least_ns / MS <= lost_ms <= lost.most_ns / MS <= 1.15 * lost_ms


def test_a_kind_that_always_waits_is_as_fast_by_the_byte_as_the_fastest_known() -> None:
    """An operation that takes long for its bytes leaves the link time; an update of weights does
    not."""
    known = [Step(own_ms=own, timed=n % 3 == 0) for n in range(60) for own in (4.0, 0.02)]
    never = [Step(own_ms=0.03, stall_ms=2.0 + n * 17 % 11 / 4, timed=True) for n in range(60)]
    steps = [step for pair in zip(known[::2], known[1::2], never, strict=True) for step in pair]
    run = made([*steps, Step(own_ms=4.0, timed=True, wait=True)])
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)
    assert run.lost.least_ns < 0.6 * run.lost.likely_ns, "it must not look certain"


@pytest.mark.parametrize("others_ms", [0.0, 1.0])
def test_waits_for_other_processes_are_not_lost_to_memory(others_ms: float) -> None:
    """Kernels of others take turns with the job's own, and sometimes wait for memory, too."""
    run = Run()
    run.neighbours(1)
    for n in range(400):
        stalled = 12.0 if n % 8 == 3 and n > 20 else 0.0
        theirs = 9.0 if n % 16 == 5 and n > 20 and others_ms else 0.0
        run.step(
            Step(
                own_ms=1.0,
                stall_ms=stalled + theirs,
                others_ms=others_ms,
                timed=n % 3 == 0,
                wait=n == 399,
            )
        )
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)


def test_a_neighbour_that_came_late_counts_from_then_on() -> None:
    steps = [
        Step(
            own_ms=1.0,
            stall_ms=8.0 if n % 8 == 3 else 0.0,
            others_ms=1.0 if n > 400 else 0.0,
            timed=n % 3 == 0,
            wait=n == 799,
        )
        for n in range(800)
    ]
    run = Run()
    run.neighbours(1)
    for step in steps:
        run.step(step)
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)


def test_no_time_at_the_least_is_more_than_the_whole() -> None:
    """The first operation waits longer than the program has run."""
    run = made([Step(own_ms=1.0, stall_ms=50.0, timed=True), Step(own_ms=1.0)])
    lost = run.lost
    assert lost.least_ns <= lost.likely_ns <= lost.most_ns <= lost.of_ns


def test_a_sample_whose_block_came_while_it_ran_tells_no_own_time() -> None:
    """The model counts such a block as a hit, because it arrived before the end was seen."""
    run = Run()
    script = run.script
    blocks = script.alloc(0, 4)
    script.execute(script.copy([(0, 0, 4)], time_ns=FIRST_NS))
    for n in range(1, 30):
        at_ns = FIRST_NS + 20 * n * MS
        script.set_state(blocks, HOST)
        (command,) = script.start(lib.PUMP_TO_GPU, list(blocks)) or [None]
        seq = script.copy([(0, 0, 4)], time_ns=at_ns)
        lib.pump_model_now(script.model.raw, at_ns + 8 * MS)
        if command is not None:
            script.finish(command.ticket)
        script.execute(seq)
        done_ns = at_ns + 10 * MS
        script.send(lib.PUMP_EVENT_TIMED, seq=seq, time_ns=done_ns + POLLED_NS, signature=10 * MS)
        script.send(lib.PUMP_EVENT_SYNC, seq=seq, time_ns=done_ns, signature=at_ns)
    lost = run.lost
    assert lost.most_ns - lost.least_ns > 0.2 * lost.of_ns, "the own time is not known"


def test_operations_that_were_not_reported_are_not_taken_for_lost_time() -> None:
    run = Run()
    for number, step in enumerate(training(5.0, wait=True)):
        if 150 <= number < 350:
            run.skip(20.0)
        else:
            run.step(step)
    assert run.lost.likely_ns <= 1.2 * run.truth_ms * MS < 0.2 * 200 * 20 * MS


def test_no_report_of_a_client_breaks_the_estimate() -> None:
    run = Run()
    script = run.script
    script.alloc(0, 2)
    most = 2**64 - 1
    for value in (0, 1, 2**31, 2**60, 2**62, 2**63, most):
        for kind in (lib.PUMP_EVENT_TIMED, lib.PUMP_EVENT_SYNC, lib.PUMP_EVENT_GRAPH):
            for other in (0, 1, 2**40 - 1, most):
                script.send(kind, seq=value, time_ns=other, signature=value, stream=3)
        uses = [(0, 1, 0, BLOCK, lib.PUMP_ACCESS_READ)]
        for time_ns in (0, 2**59, most):
            script.send(lib.PUMP_EVENT_COPY, seq=value, time_ns=time_ns, uses=uses)
        script.execute(0)
        lost = run.lost
        assert lost.least_ns <= lost.likely_ns <= lost.most_ns <= lost.of_ns or lost.of_ns == 0


def test_a_long_run_is_followed_with_tables_of_one_size() -> None:
    steps = [
        Step(own_ms=0.1, stall_ms=0.2 if n % 10 == 9 else 0.0, after_ms=0.05, timed=n % 33 == 0)
        for n in range(60_000)
    ]
    run = made([*steps, Step(own_ms=0.1, wait=True, timed=True)])
    assert close(run), (run.lost.likely_ns / MS, run.truth_ms)
