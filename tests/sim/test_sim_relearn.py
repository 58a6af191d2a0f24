"""A training whose batch size changes, under the planned policy in the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import DATA

from pump import profiles
from pump.policy.base import Policy
from pump.policy.planned import Planned
from pump.policy.window import Window
from pump.sim import tensors
from pump.sim.program import Program, in_turn
from pump.sim.simulation import Machine, run
from pump.sim.tensors import Kernel, Tensor, TensorTrace

STEPS = 5
OF_OTHER_BATCH = 1 << 40
"""In the signatures of launches on half the data."""


def halved(trace: TensorTrace) -> TensorTrace:
    """As of half the batch: the same weights, half of all else, in half the time."""

    def half(tensor: Tensor) -> Tensor:
        share = 1 if tensor.persistent else 2
        return replace(tensor, length_bytes=tensor.length_bytes // share)

    def quicker(kernel: Kernel) -> Kernel:
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
def batches() -> dict[str, Program]:
    """Five steps of each, with discards."""
    file = DATA / "vit_b256_marginal.json.xz"
    whole = tensors.parse(file.read_bytes(), file.name)
    traces = {"half": halved(whole), "whole": whole}
    return {
        name: tensors.program(trace, "caching", STEPS, discard=True)
        for name, trace in traces.items()
    }


def seconds(program: Program, policy: Policy | None, machine: Machine) -> list[float]:
    return [one.seconds for one in run(program, machine, policy).stretches]


@pytest.mark.parametrize("ratio", [1.5, 3.0])
@pytest.mark.parametrize("order", ["half whole half", "whole half whole"])
def test_another_batch_size_is_learned_within_three_steps_and_none_is_slow(
    batches: dict[str, Program], order: str, ratio: float
) -> None:
    program = in_turn([batches[name] for name in order.split()])
    small = Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio), 200)
    planned, window, demand = (
        seconds(program, policy, small) for policy in (Planned(), Window(), None)
    )
    steady = {name: seconds(alone, Planned(), small)[3] for name, alone in batches.items()}
    for turn, name in enumerate(order.split()):
        learned = planned[turn * STEPS + 3 : (turn + 1) * STEPS]
        # Open: at 3x the whole horizon is not always back in the fourth step. With 5, 7, 8 and
        # 9 steps of each, the worst of all cases lies between 1.03 and 1.055.
        assert max(learned) <= 1.06 * steady[name], (turn, planned, steady)
    for step, mine in enumerate(planned):
        assert mine <= 1.05 * demand[step], (step, planned, demand)
        assert mine <= 1.12 * window[step], (step, planned, window)
