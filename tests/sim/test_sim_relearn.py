"""A training whose batch size changes, under the planned policy in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sim_programs import DATA

from pump.policy.base import Policy
from pump.policy.scheduled import Planned, Window
from pump_lab import profiles
from pump_lab.sim import tensors
from pump_lab.sim.program import Program
from pump_lab.sim.simulation import Machine, run
from pump_lab.sim.tensors import Kernel, Tensor, TensorTrace

STEPS = 5
OF_OTHER_BATCH = 1 << 40
"""Distinguishes the signatures of launches on half of the data."""


def in_turn(programs: Sequence[Program]) -> Program:
    """Joins programs into one process, as when a training changes its batch size.

    All use the ranges of the program with the most blocks; their own must not be longer. Each
    program must begin with the allocation of its ranges and a wait, like the programs of
    pump_lab.sim.tensors.
    """
    largest = max(programs, key=lambda program: program.blocks)
    steps, uses = [largest.steps[: len(largest.ranges) + 1]], []
    used = seq = 0
    for program in programs:
        part = program.steps[len(program.ranges) + 1 :].copy()
        part["first_use"] += used
        issued = part["seq"] > 0
        count = int(np.count_nonzero(issued))
        part["seq"][issued] = seq + np.arange(1, count + 1)
        steps.append(part)
        uses.append(program.uses)
        used, seq = used + len(program.uses), seq + count
    tables = np.concatenate(steps), np.concatenate(uses)
    most = largest.blocks, max(program.streams for program in programs), largest.peak_bytes
    return Program(largest.name, *tables, largest.ranges, *most)


def halve_batch(trace: TensorTrace) -> TensorTrace:
    """Returns the trace for half of the batch: the same weights, half of all else, half the time.
    Kernels that use only weights, such as the optimiser's, keep their duration."""

    def half(tensor: Tensor) -> Tensor:
        share = 1 if tensor.persistent else 2
        return replace(tensor, length_bytes=tensor.length_bytes // share)

    def quicker(kernel: Kernel) -> Kernel:
        if all(trace.tensors[tensor].persistent for tensor, _ in kernel.uses):
            return kernel
        return replace(
            kernel,
            duration_ns=kernel.duration_ns // 2,
            signature=kernel.signature ^ OF_OTHER_BATCH,
        )

    return replace(
        trace,
        tensors={name: half(tensor) for name, tensor in trace.tensors.items()},
        kernels=[quicker(kernel) for kernel in trace.kernels],
    )


@pytest.fixture(scope="module")
def traces() -> dict[str, TensorTrace]:
    file = DATA / "vit_b256_marginal.json.xz"
    whole = tensors.parse(file.read_bytes(), file.name)
    return {"half": halve_batch(whole), "whole": whole}


def batches(traces: dict[str, TensorTrace], steps: int) -> dict[str, Program]:
    """Returns `steps` steps of each trace, with discards."""
    return {
        name: tensors.program(trace, "caching", steps, discard=True)
        for name, trace in traces.items()
    }


def seconds(program: Program, policy: Policy | None, machine: Machine) -> list[float]:
    return [one.seconds for one in run(program, machine, policy).stretches]


def steady_seconds(traces: dict[str, TensorTrace], small: Machine) -> dict[str, float]:
    """Returns the time of each trace's fourth step when nothing changes."""
    alone = batches(traces, 4)
    return {name: seconds(program, Planned(), small)[3] for name, program in alone.items()}


def card(program: Program, ratio: float) -> Machine:
    return Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio), 200)


@pytest.mark.parametrize("ratio", [1.5, 3.0])
@pytest.mark.parametrize("order", ["half whole half", "whole half whole"])
def test_another_batch_size_is_learned_within_three_steps_and_none_is_slow(
    traces: dict[str, TensorTrace], order: str, ratio: float
) -> None:
    parts = batches(traces, STEPS)
    program = in_turn([parts[name] for name in order.split()])
    small = card(program, ratio)
    planned, window, demand = (
        seconds(program, policy, small) for policy in (Planned(), Window(), None)
    )
    steady = steady_seconds(traces, small)
    for turn, name in enumerate(order.split()):
        # The executors' controller tries numbers of threads: even steady steps differ by 1.3 %.
        learned = planned[turn * STEPS + 2 : (turn + 1) * STEPS]
        assert max(learned) <= 1.05 * steady[name], (turn, planned, steady)
    for step, mine in enumerate(planned):
        assert mine <= 1.05 * demand[step], (step, planned, demand)
        assert mine <= 1.12 * window[step], (step, planned, window)


@pytest.mark.parametrize(("steps", "ratio"), [(2, 4.0), (3, 2.0)])
def test_sizes_that_alternate_are_known_once_both_have_been_seen(
    traces: dict[str, TensorTrace], steps: int, ratio: float
) -> None:
    order = ["half", "whole"] * 3
    parts = batches(traces, steps)
    program = in_turn([parts[name] for name in order])
    small = card(program, ratio)
    planned, demand = (seconds(program, policy, small) for policy in (Planned(), None))
    steady = steady_seconds(traces, small)
    slower = [mine / steady[order[step // steps]] for step, mine in enumerate(planned)]
    assert max(slower[2 * steps :]) <= 1.06, slower
    assert all(mine <= 1.05 * theirs for mine, theirs in zip(planned, demand, strict=True))
