"""One schedule as all that is sent, beside decisions, allowances and plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_programs import DATA
from study import sim_unseen

from pump import profiles
from pump.model.view import View
from pump.policy.base import Policy
from pump.policy.planned import Planned
from pump.policy.window import Window
from pump.sim import tensors
from pump.sim.program import Program
from pump.sim.simulation import Daemon, Machine, Outcome, run

PROFILE = profiles.load("a100-pcie4")
ALONE = Daemon(schedule=True)


def trained(name: str) -> Program:
    """Four iterations, with discards, of a trace of the repository or a made-up network."""
    if name.endswith("_marginal"):
        file = DATA / f"{name}.json.xz"
        trace = tensors.parse(file.read_bytes(), file.name)
    else:
        trace = sim_unseen.traces(name, 1)[0]
    return tensors.program(trace, "caching", 4, discard=True)


def both(program: Program, policy: type[Policy], daemon: Daemon = ALONE) -> tuple[Outcome, Outcome]:
    """With decisions, and with the schedule alone; half the memory, 50 launches ahead."""
    machine = Machine(PROFILE, program.peak_bytes // 2, queue_operations=50)
    decided = replace(machine, daemon=replace(daemon, schedule=False))
    return run(program, decided, policy()), run(program, replace(machine, daemon=daemon), policy())


@pytest.mark.parametrize("policy", [Window, Planned])
@pytest.mark.parametrize(
    "name", ["bert_base_b128_marginal", "vit_b256_marginal", "layers", "ladder", "experts", "giant"]
)
def test_one_schedule_is_as_fast_as_decisions_and_plans(name: str, policy: type[Policy]) -> None:
    decided, alone = both(trained(name), policy)
    assert alone.stretches[2].seconds < decided.stretches[2].seconds / 0.985


@pytest.mark.parametrize("policy", [Window, Planned])
def test_a_stopped_worker_costs_less_with_a_schedule(policy: type[Policy]) -> None:
    stopped = replace(ALONE, stop_every_ms=200, stop_ms=50)
    decided, alone = both(trained("bert_base_b128_marginal"), policy, stopped)
    assert alone.stretches[2].seconds < decided.stretches[2].seconds


def test_no_policy_is_asked_while_the_schedule_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_policy: Window, _view: View) -> None:
        raise AssertionError("a policy was asked")

    monkeypatch.setattr(Window, "decide", refuse)
    program = trained("vit_b256_marginal")
    machine = Machine(PROFILE, program.peak_bytes // 2, daemon=ALONE)
    assert run(program, machine, Window()).planned_bytes > 0
