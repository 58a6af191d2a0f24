"""Blocks that are duplicated on trial: evictions without a copy, and the cost of wrong guesses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from study.sim_duplicates import Writer

from pump.model.bounds import BLOCK_BYTES
from pump.policy.base import Policy
from pump.policy.scheduled import Planned, Window
from pump_lab import profiles
from pump_lab.abi import lib
from pump_lab.sim import program as form
from pump_lab.sim.program import Program
from pump_lab.sim.simulation import Machine, Outcome, run

PROFILE = profiles.load("a100-pcie4")
BLOCKS = 32
RANGES = 24


def swept(access: int, steps: int) -> Program:
    """Returns a program whose steps each go through all ranges."""
    writer = Writer(1300.0)
    ranges = [writer.range(BLOCKS) for _ in range(RANGES)]
    for number, index in enumerate(ranges):
        writer.launch(number + 1, [(index, access)], 1.0)
    writer.builder.sync(mark=True)
    return writer.program("sweep", steps, RANGES * BLOCKS)


def simulated(program: Program, policy: Policy, *, duplicates: bool) -> Outcome:
    machine = Machine(PROFILE, int(program.peak_bytes / 1.5), duplicates=duplicates)
    return run(program, machine, policy)


@pytest.mark.parametrize("policy", [Window, Planned])
def test_most_of_what_is_only_read_leaves_without_a_copy_once_it_has_left(
    policy: type[Policy],
) -> None:
    program = swept(form.READ, 10)
    without, duplicating = (
        simulated(program, policy(), duplicates=flag).stretches[5:] for flag in (False, True)
    )
    assert all(step.d2h_bytes > 0.9 * step.h2d_bytes for step in without)
    assert all(step.counters["collapsed_pages"] == 0 for step in duplicating)
    back = sum(step.d2h_bytes for step in duplicating)
    assert back < 0.25 * sum(step.h2d_bytes for step in duplicating)


@pytest.mark.parametrize("policy", [Window, Planned])
def test_what_is_duplicated_comes_in_slices_of_16_mib(policy: type[Policy]) -> None:
    """Each slice costs advice, and all migrations wait for advice."""

    program = swept(form.READ, 10)
    budget_bytes = int(program.peak_bytes / 1.5)
    lengths = []
    for duplicates in (False, True):
        machine = Machine(PROFILE, budget_bytes, duplicates=duplicates, transfers_most=10_000)
        moved = run(program, machine, policy()).transfers
        lengths.append(np.median(moved["blocks"][moved["direction"] == lib.PUMP_TO_GPU][-60:]))
    assert lengths[0] < lengths[1] == (16 << 20) // BLOCK_BYTES


def test_two_wrong_guesses_end_it_for_a_block() -> None:
    outcome = simulated(swept(form.WRITE, 8), Window(), duplicates=True)
    trials, wrong = outcome.trials
    assert trials == wrong
    assert 0 < wrong <= 2 * RANGES * BLOCKS
    assert outcome.whole.counters["collapsed_pages"] <= 512 * 2 * RANGES * BLOCKS
    last = outcome.steady.counters
    assert (last["collapsed_pages"], last["clean_bytes"]) == (0, 0)
    without = simulated(swept(form.WRITE, 8), Window(), duplicates=False)
    assert outcome.steady.seconds == pytest.approx(without.steady.seconds, rel=0.02)


def test_of_a_slice_that_is_written_in_part_only_that_part_is_copied() -> None:
    """Each range has a block that is written and a block that is read."""
    writer = Writer(1300.0)
    ranges = [writer.range(2) for _ in range(400)]
    for number, index in enumerate(ranges):
        uses = [(index, 0, BLOCK_BYTES, form.WRITE), (index, BLOCK_BYTES, BLOCK_BYTES, form.READ)]
        writer.builder.operation(
            form.KERNEL, uses, duration_ns=500_000, host_ns=8000, signature=number + 1
        )
    writer.builder.sync(mark=True)
    program = writer.program("halves", 8, 800)
    step = simulated(program, Window(), duplicates=True).steady
    assert step.counters["clean_bytes"] == pytest.approx(step.d2h_bytes, rel=0.1)


def test_what_was_discarded_is_not_expected_to_be_as_it_was() -> None:
    """The next owner writes the block: no duplicated page may collapse at that write."""
    writer = Writer(1300.0)
    frozen = [writer.range(BLOCKS) for _ in range(RANGES)]
    scratch = writer.range(4 * BLOCKS)
    for number, index in enumerate(frozen):
        writer.launch(number + 1, [(index, form.READ)], 2.0)
    for turn in range(3):
        writer.launch(200 + turn, [(scratch, form.OVERWRITE)], 1.0)
    writer.launch(300, [(scratch, form.READ)], 1.0)
    writer.discard(scratch)
    writer.builder.sync(mark=True)
    program = writer.program("scratch", 8, RANGES * BLOCKS + 4 * BLOCKS)
    outcome = simulated(program, Planned(), duplicates=True)
    assert outcome.steady.counters["collapsed_pages"] == 0
    assert outcome.steady.counters["errors"] == 0


def test_without_duplicates_no_advice_is_given() -> None:
    outcome = simulated(swept(form.READ, 4), Window(), duplicates=False)
    assert (outcome.advice_calls, outcome.trials) == (0, (0, 0))
    assert outcome.whole.counters["clean_bytes"] == 0


def test_the_same_input_gives_the_same_output() -> None:
    first, second = (simulated(swept(form.READ, 4), Window(), duplicates=True) for _ in range(2))
    assert replace(first, transfers=second.transfers) == second
