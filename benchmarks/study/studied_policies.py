"""What studies compare pump's policies with: those of papers, true futures, fixed orders."""

from __future__ import annotations

from dataclasses import replace

from study.baselines import Correlation, Perfect, Unbounded
from study.dispatch import FixedOrder, Iterations, order_of
from study.greedy import Greedy

from pump.model.bounds import without_reserve
from pump.policy.base import Policy
from pump.policy.scheduled import Planned
from pump.sim import named_policies
from pump.sim.named_policies import NamedPolicy, iteration_steps
from pump.sim.program import Program
from pump.sim.simulation import Foresight, Machine, Outcome

TRANSFERS_MOST = 1 << 20
"""Of a rehearsal."""


def _second_iteration(program: Program) -> int:
    count = int(program.facts.get("iterations", 1))
    return len(program.steps) - iteration_steps(program) * max(1, count - 1)


def _chain(program: Program) -> Foresight:
    return Foresight(Correlation.CHAIN, _second_iteration(program), run=True)


def _everything(program: Program) -> Foresight:
    return Foresight(2 * iteration_steps(program))


def _expected(program: Program) -> Foresight:
    return Foresight(2 * iteration_steps(program), expects=True)


def _greedy(program: Program, machine: Machine) -> Policy:
    values = machine.profile.values
    rates = values["link.prefetch_h2d_gbps"], values["link.copy_d2h_gbps"]
    budget_bytes = without_reserve(machine.memory_bytes, machine.reserve_percent)
    return Greedy(program, budget_bytes, *(float(rate) for rate in rates))


STUDIED = {
    candidate.name: candidate
    for candidate in (
        NamedPolicy(
            "unbounded",
            "prefetch all when it is issued, evict nothing",
            lambda program, _machine: Unbounded(program),
            takes_all=True,
        ),
        NamedPolicy(
            "correlation",
            "DeepUM-like: learned chain of kernels, unpredicted blocks evicted first",
            lambda _program, _machine: Correlation(),
            foresight=_chain,
        ),
        NamedPolicy(
            "perfect",
            "the window with two iterations known",
            lambda _program, _machine: Perfect(),
            foresight=_everything,
        ),
        NamedPolicy(
            "oracle",
            "planned with the true future",
            lambda _program, _machine: Planned(),
            foresight=_expected,
        ),
        NamedPolicy("g10", "G10's greedy schedule of one iteration", _greedy, discard=True),
    )
}


def by_name(name: str) -> NamedPolicy:
    """One of STUDIED or of pump's (pump.sim.named_policies.by_name, whose errors it
    raises)."""
    return named_policies.by_name(name, {**named_policies.NAMED_POLICIES, **STUDIED})


def simulate(
    candidate: NamedPolicy, program: Program, machine: Machine, *, dispatch: str = "event"
) -> Outcome:
    """Runs the candidate. `program` has to be the one with discards where it wants them.

    dispatch: "event", "fixed", "fixed-each-way", "fixed-as-issued". Other than "event": its
    transfers go in the order of a rehearsal without jitter (dispatch.py); ProgramError where
    there is no iteration to order.
    """
    make = candidate.policy
    if dispatch == "event" or make is None:
        return named_policies.simulate(candidate, program, machine)
    Iterations.of(program)  # raises
    calm = replace(machine, jitter=None, transfers_most=TRANSFERS_MOST)
    transfers = named_policies.simulate(candidate, program, calm).transfers

    def ordered(program: Program, machine: Machine) -> Policy:
        predicts = make(program, machine).predicts
        order = order_of(program, transfers, predicts=predicts)
        return FixedOrder(program, order, predicts=predicts, dispatch=dispatch)

    again = replace(candidate, name=f"{candidate.name} {dispatch}", policy=ordered)
    return named_policies.simulate(again, program, machine)
