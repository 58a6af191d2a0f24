"""The simulator's clock, for programs whose time can be computed by hand."""

from __future__ import annotations

import json

import pytest
from sim_programs import MS, cyclic, machine, made, whole
from study.studied_policies import by_name, simulate

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel
from pump.policy.scheduled import Demand, Window
from pump_lab.sim import program as form
from pump_lab.sim.deciding import NOTHING, Decision, View
from pump_lab.sim.program import Builder, ProgramError
from pump_lab.sim.report import Case, compared, floor, unlimited
from pump_lab.sim.simulation import run

LAUNCH_NS = 4000  # the profile's kernels.launch_us, before an operation may begin


def test_a_first_touch_costs_the_models_fault_and_nothing_else() -> None:
    builder = Builder()
    builder.operation(form.KERNEL, [whole(0, 1)], duration_ns=MS)
    outcome = run(made(builder, [1]), machine(8))
    # six batches: base 43, block 5, replay 10 us; 32 pages at 0.5 us, zeroing at 1,000 GB/s
    fault_ns = 6 * 58_000 + 16_000 + 2_097
    assert outcome.whole.seconds * 1e9 == pytest.approx(LAUNCH_NS + fault_ns + MS, abs=6)
    assert outcome.whole.counters["fault_blocks"] == 1


def test_the_host_waits_at_a_synchronisation_and_the_gpu_for_the_host() -> None:
    builder = Builder()
    builder.operation(form.KERNEL, [], duration_ns=MS, host_ns=1000)
    builder.sync()
    builder.operation(form.KERNEL, [], duration_ns=2 * MS, host_ns=5 * MS)
    outcome = run(made(builder, [1]), machine(8))
    assert outcome.whole.seconds * 1e9 == pytest.approx(1000 + 8 * MS + 2 * LAUNCH_NS, abs=2)
    assert outcome.sync_wait_seconds * 1e9 == pytest.approx(3 * MS + 2 * LAUNCH_NS, abs=2)


def test_launches_wait_when_the_queue_is_full() -> None:
    builder = Builder()
    for _ in range(10):
        builder.operation(form.KERNEL, [], duration_ns=MS)
    program = made(builder, [1])
    deep, short = run(program, machine(8)), run(program, machine(8, queue_operations=2))
    assert deep.queue_wait_seconds == 0
    # The tenth launch is issued when the eighth kernel has ended: only the last two need no wait.
    assert short.queue_wait_seconds * 1e9 == pytest.approx(8 * MS + LAUNCH_NS, rel=0.01)
    assert short.whole.seconds == pytest.approx(deep.whole.seconds, rel=0.01)


def test_streams_run_beside_each_other_as_far_as_their_engines_allow() -> None:
    builder = Builder()
    length = 25_000_000  # 1 ms at 25 GB/s
    builder.operation(form.KERNEL, [], duration_ns=MS, stream=0)
    builder.operation(form.COPY_H2D, [], length_bytes=length, stream=1)
    program = made(builder, [1])
    both = form.Program(**{**vars(program), "streams": 2})
    assert run(both, machine(8)).whole.seconds * 1e9 == pytest.approx(MS, rel=0.02)


def test_a_freed_range_leaves_its_memory_to_others() -> None:
    builder = Builder()
    for _ in range(3):
        builder.alloc(1)
        builder.operation(form.KERNEL, [whole(1, 4)], duration_ns=MS)
        builder.free(1)
    builder.sync()
    program = made(builder, [4, 4])
    steps = program.steps[program.steps["kind"] != form.ALLOC]
    rest = program.steps[(program.steps["kind"] == form.ALLOC) & (program.steps["range"] == 1)]
    assert len(rest) == 4  # one in the preamble for all ranges, three of its own
    steps = form.np.delete(program.steps, 1)
    outcome = run(form.Program(**{**vars(program), "steps": steps}), machine(6))
    assert outcome.whole.counters["freed_bytes"] == 3 * 4 * BLOCK_BYTES
    assert outcome.whole.d2h_bytes == 0


def test_the_same_run_twice_says_the_same_to_the_last_digit() -> None:
    program = cyclic(8, 8, 6, 2 * MS)
    case = Case(program, machine(40))
    names = ("naive", "window", "unbounded", "correlation", "perfect")
    found = [json.dumps(compared(case, [by_name(n) for n in names])) for _ in range(2)]
    assert found[0] == found[1]


def test_the_window_brings_in_what_a_cyclic_sweep_needs_and_naive_does_not() -> None:
    program = cyclic(12, 16, 8, 3 * MS)
    gpu = machine(128)
    naive, window = run(program, gpu), run(program, gpu, Window())
    assert window.whole.seconds < 0.6 * naive.whole.seconds
    assert window.whole.counters["fault_pages"] < naive.whole.counters["fault_pages"] / 5
    assert window.tally["hit"] > 0.7 * window.tally["blocks"]


def test_what_runs_side_by_side_counts_once_in_the_floor() -> None:
    """Copies run in one stream, kernels in another: no policy beats the busier stream."""
    builder = Builder()
    for _ in range(20):
        builder.operation(form.COPY_LOCAL, [whole(0, 4)], duration_ns=MS, stream=0)
        builder.operation(form.KERNEL, [whole(1, 4)], duration_ns=2 * MS, stream=1)
    beside = form.Program(**{**vars(made(builder, [4, 4])), "streams": 2})
    least, naive = floor(Case(beside, machine(16))), run(beside, machine(16))
    assert least.compute == pytest.approx(0.040)
    assert least.seconds < naive.steady.seconds < 1.1 * least.seconds
    in_turn = form.Program(**{**vars(beside), "steps": beside.steps.copy()})
    in_turn.steps["stream"][in_turn.steps["seq"] > 0] = 0
    assert floor(Case(in_turn, machine(16))).compute == pytest.approx(0.060)


def test_with_memory_for_everything_not_even_first_touches_take_time() -> None:
    builder = Builder()
    for index in range(4):
        builder.operation(form.KERNEL, [whole(index, 8)], duration_ns=MS)
    program = made(builder, [8] * 4)
    alone, naive = unlimited(Case(program, machine(64))), run(program, machine(64))
    assert alone.steady.seconds * 1e9 == pytest.approx(4 * MS + LAUNCH_NS, abs=4)
    assert naive.steady.seconds > 1.2 * alone.steady.seconds


def test_pump_sleeps_while_everything_fits_and_populates_beforehand() -> None:
    program = cyclic(4, 8, 4, MS)
    outcome = run(program, machine(64), Window())
    assert outcome.ticks == 0
    assert outcome.whole.h2d_bytes == outcome.whole.d2h_bytes == 0
    assert outcome.whole.counters["prefetch_in_blocks"] > 0


def test_prefetching_all_that_was_issued_is_worse_than_no_prefetch_at_all() -> None:
    """The issued operations use eight times the memory."""
    program = cyclic(12, 16, 8, 3 * MS)
    everything, naive = (
        simulate(by_name(name), program, machine(128)).whole for name in ("unbounded", "naive")
    )
    assert everything.h2d_bytes > naive.h2d_bytes
    assert everything.seconds > naive.seconds


def test_a_program_that_makes_no_sense_is_refused_with_a_reason() -> None:
    builder = Builder()
    builder.operation(form.KERNEL, [whole(0, 4)], duration_ns=MS)
    with pytest.raises(ProgramError, match="cannot hold"):
        run(made(builder, [2]), machine(8))
    builder = Builder()
    builder.alloc(0)
    with pytest.raises(ProgramError, match="step 2 is invalid"):
        run(made(builder, [2]), machine(8))
    with pytest.raises(ProgramError, match="one block of 2 MiB at least"):
        run(made(Builder(), [2]), machine(0))


def test_pump_hears_of_discards_and_copies_nothing_that_is_dead() -> None:
    """Scratch is written, read and discarded; the next round writes it again."""

    quarter = MS // 4

    def sweeps(discard: bool) -> form.Program:
        builder = Builder()
        for _ in range(6):
            for index in range(12):
                builder.operation(
                    form.KERNEL, [whole(index, 16, form.OVERWRITE)], duration_ns=quarter
                )
                builder.operation(form.KERNEL, [whole(index, 16, form.READ)], duration_ns=quarter)
                if discard:
                    builder.discard([whole(index, 16, form.OVERWRITE)])
        return made(builder, [16] * 12)

    keeping, discarding = (run(sweeps(d), machine(128), Window()).whole for d in (False, True))
    assert keeping.h2d_bytes > 4 * 64 * BLOCK_BYTES  # the part that does not fit, in each round
    assert discarding.h2d_bytes + discarding.d2h_bytes < 0.02 * keeping.h2d_bytes
    assert discarding.seconds < keeping.seconds


def test_a_discard_costs_its_time_beside_the_kernels() -> None:
    """Only the next user of the memory waits: for a call of 8 us and 12 us a block. Its faults come
    late enough to find the handler asleep, which takes 75 us."""

    def seconds(uses_again: bool, behind_us: int = 0) -> float:
        builder = Builder()
        builder.operation(form.KERNEL, [whole(0, 50)], duration_ns=MS)
        builder.discard([whole(0, 50, form.OVERWRITE)])
        if behind_us:
            builder.operation(form.KERNEL, [whole(1, 1)], duration_ns=behind_us * 1000)
        index, blocks = (0, 50) if uses_again else (2, 50)
        builder.operation(form.KERNEL, [whole(index, blocks, form.OVERWRITE)], duration_ns=MS)
        builder.sync()
        return run(made(builder, [50, 1, 50]), machine(128)).whole.seconds

    price = (8 + 50 * 12 + 75) * 1e-6
    assert seconds(uses_again=True) - seconds(uses_again=False) == pytest.approx(price, rel=0.05)
    late = seconds(uses_again=True, behind_us=2000) - seconds(uses_again=False, behind_us=2000)
    assert abs(late) < 0.01 * price


def test_the_discards_of_several_streams_go_on_in_their_order_when_queues_are_full() -> None:
    builder = Builder()
    for _ in range(400):
        for stream in range(2):
            builder.operation(form.KERNEL, [whole(stream, 4)], duration_ns=MS // 8, stream=stream)
            builder.discard([whole(stream, 4, form.OVERWRITE)], stream)
    program = form.Program(**{**vars(made(builder, [4, 4])), "streams": 2})
    found = run(program, machine(16)).whole
    assert found.counters["discarded_blocks"] == 400 * 2 * 4
    assert found.counters["fault_blocks"] == 400 * 2 * 4, "each use finds its memory discarded"


class Ahead(Demand):
    """Notes at each step how many steps the program is ahead of the GPU."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def at(self, now: int, ran: int, _model: ClientModel) -> None:
        self.steps.append((now, now - ran))

    def decide(self, view: View) -> Decision:
        return NOTHING


def test_a_program_stays_ahead_whose_operations_wait_for_discards() -> None:
    """A launch that finds its stream's queue full waits there once, however often it tries."""
    builder = Builder()
    for _ in range(400):
        builder.operation(form.KERNEL, [whole(1, 14)], duration_ns=MS // 8)
    builder.operation(form.KERNEL, [whole(0, 4)], duration_ns=MS // 8)
    builder.discard([whole(0, 4, form.OVERWRITE)])
    for _ in range(600):
        builder.operation(form.KERNEL, [whole(0, 4)], duration_ns=MS // 8)
    policy = Ahead()
    run(made(builder, [4, 14]), machine(16), policy)
    # The queue has 1,024 entries. Each operation after the discard takes two: itself and its wait.
    assert min(ahead for now, ahead in policy.steps if 100 < now - ahead < 400) > 500
