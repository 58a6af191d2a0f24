"""How executors' streams and calls delay the program: hardware queues and the driver's locks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import MS, cyclic, machine
from study.studied_policies import by_name, simulate

from pump_lab.sim.simulation import Locks, Outcome, Queues

BUFFERS, BLOCKS = 24, 16
OLD_LANES = Queues(connections=8, to_gpu=32, to_host=32, priority=0)


def seconds(queues: Queues) -> float:
    program = cyclic(BUFFERS, BLOCKS, rounds=8, duration_ns=4 * MS)
    gpu = replace(machine(BUFFERS * BLOCKS * 2 // 3), queues=queues)
    return simulate(by_name("window"), program, gpu).whole.seconds


def test_kernels_are_stuck_behind_slices_in_many_lanes_of_their_own_priority() -> None:
    assert seconds(OLD_LANES) > 1.3 * seconds(Queues())


@pytest.mark.parametrize("connections", [1, 8, 32])
def test_lanes_of_another_priority_hold_no_kernel_up(connections: int) -> None:
    apart = seconds(Queues(connections=connections))
    assert apart < 1.03 * seconds(Queues(to_gpu=32, to_host=32))


def test_few_lanes_of_the_only_priority_stay_out_of_the_programs_queue() -> None:
    shared = seconds(Queues(to_gpu=4, priority=0))
    assert shared < 1.1 * seconds(Queues())


def test_where_priorities_share_queues_as_many_as_a_job_gets_keep_lanes_out_of_the_way() -> None:
    """pump-run asks for 32 queues; with 8 the same lanes take half as long again."""
    assert seconds(Queues(connections=32, priority=0)) < 1.03 * seconds(Queues())


def locked(locks: Locks) -> Outcome:
    program = cyclic(BUFFERS, BLOCKS, rounds=4, duration_ns=2 * MS)
    gpu = replace(machine(BUFFERS * BLOCKS * 2 // 3, queue_operations=4), locks=locks)
    return simulate(by_name("window"), program, gpu)


def test_launches_wait_for_evictions_under_the_contexts_lock_alone() -> None:
    free, held = locked(Locks()), locked(Locks(context=True))
    assert free.lock_wait_seconds == 0 < held.lock_wait_seconds
    assert free.whole.seconds < held.whole.seconds


def test_a_thread_that_maps_memory_waits_for_migrations_under_the_lock_of_addresses() -> None:
    free, held = (locked(Locks(space=space, map_every_us=500)) for space in (False, True))
    assert free.map_wait_seconds == 0 < held.map_wait_seconds
    assert held.lock_wait_seconds == 0


@pytest.mark.parametrize("space", [False, True])
def test_evictions_that_hold_launches_up_cost_little_once_they_have_contexts_of_their_own(
    space: bool,
) -> None:
    """In the program's own contexts the evictions would make the run a fifth slower."""
    program = cyclic(BUFFERS, BLOCKS, rounds=12, duration_ns=2 * MS)
    gpu = machine(BUFFERS * BLOCKS // 2)
    locks = Locks(context=True, space=space, map_every_us=500 * space)
    free, held = (
        simulate(by_name("window"), program, replace(gpu, locks=each)) for each in (Locks(), locks)
    )
    assert held.whole.seconds < (1.2 if space else 1.1) * free.whole.seconds
