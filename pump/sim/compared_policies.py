"""What can be simulated by name: pump's policies and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pump.model.bounds import without_reserve
from pump.policy import POLICIES
from pump.policy.base import Policy
from pump.policy.planned import Planned
from pump.sim.baselines import Correlation, Perfect, Unbounded
from pump.sim.dispatch import FixedOrder, Rehearsal
from pump.sim.greedy import Greedy
from pump.sim.program import Program, ProgramError
from pump.sim.simulation import Foresight, Machine, Outcome, run


@dataclass(frozen=True)
class ComparedPolicy:
    """One way of managing memory.

    text: for people. policy: None: the driver alone. discard: it knows what is dead and
    throws it away. ahead: launches that may wait; None: the program's. foresight(program):
    what it knows beyond that.
    """

    name: str
    text: str
    policy: Callable[[Program, Machine], Policy] | None
    discard: bool = False
    ahead: int | None = None
    foresight: Callable[[Program], Foresight] | None = None
    takes_all: bool = False
    """It keeps to the GPU's whole memory, without pump's reserve."""


def iteration_steps(program: Program) -> int:
    """Steps of one iteration of a replay; of a recording those behind its start."""
    facts = program.facts
    return int(facts.get("steps_per_iteration", facts.get("steady_steps", len(program.steps))))


def _second_iteration(program: Program) -> int:
    count = int(program.facts.get("iterations", 1))
    return len(program.steps) - iteration_steps(program) * max(1, count - 1)


def _chain(program: Program) -> Foresight:
    return Foresight(Correlation.CHAIN, _second_iteration(program), run=True)


def _everything(program: Program) -> Foresight:
    return Foresight(2 * iteration_steps(program))


def _expected(program: Program) -> Foresight:
    return Foresight(2 * iteration_steps(program), expects=True)


def _plain(kind: Callable[[], Policy]) -> Callable[[Program, Machine], Policy]:
    return lambda _program, _machine: kind()


def _greedy(program: Program, machine: Machine) -> Policy:
    values = machine.profile.values
    rates = values["link.prefetch_h2d_gbps"], values["link.copy_d2h_gbps"]
    budget_bytes = without_reserve(machine.memory_bytes, machine.reserve_percent)
    return Greedy(program, budget_bytes, *(float(rate) for rate in rates))


_BASELINES = (
    ComparedPolicy("naive", "Unified Memory, the driver alone", None),
    ComparedPolicy("naive+discard", "and freed memory discarded at once", None, discard=True),
    ComparedPolicy(
        "unbounded",
        "prefetch all when it is issued, evict nothing",
        lambda program, _machine: Unbounded(program),
        takes_all=True,
    ),
    ComparedPolicy(
        "correlation",
        "DeepUM-like: learned chain of kernels, unpredicted blocks evicted first",
        _plain(Correlation),
        foresight=_chain,
    ),
    ComparedPolicy(
        "perfect", "the window with two iterations known", _plain(Perfect), foresight=_everything
    ),
    ComparedPolicy("oracle", "planned with the true future", _plain(Planned), foresight=_expected),
    ComparedPolicy("g10", "G10's greedy schedule of one iteration", _greedy, discard=True),
)

COMPARED_POLICIES: dict[str, ComparedPolicy] = {
    candidate.name: candidate
    for candidate in (
        *_BASELINES,
        *(ComparedPolicy(name, "as in pump-run", _plain(kind)) for name, kind in POLICIES.items()),
    )
}
"""By the names of `pump simulate --policy`."""


def by_name(name: str) -> ComparedPolicy:
    """A candidate; a name with +discard is the same with dead memory discarded.

    Raises ProgramError that lists the known names.
    """
    found = COMPARED_POLICIES.get(name) or COMPARED_POLICIES.get(name.removesuffix("+discard"))
    twice = found is not None and found.name != name and "+discard" in found.name
    if found is None or twice:
        names = ", ".join(known for known in COMPARED_POLICIES if "+discard" not in known)
        raise ProgramError(f"unknown policy '{name}'; known: {names}, each also with +discard")
    return found if found.name == name else replace(found, name=name, discard=True)


def simulate(
    candidate: ComparedPolicy, program: Program, machine: Machine, *, dispatch: str = "event"
) -> Outcome:
    """Runs the candidate. `program` has to be the one with discards where it wants them.

    dispatch: "event", "fixed", "fixed-each-way", "fixed-as-issued". Other than "event": its
    transfers go in the order of a rehearsal without jitter (pump/sim/dispatch.py); ProgramError
    where there is no iteration to order.
    """
    if candidate.ahead is not None:
        machine = replace(machine, queue_operations=candidate.ahead)
    if candidate.takes_all:
        machine = replace(machine, reserve_percent=0)

    def outcome(policy: Policy | None, on: Machine) -> Outcome:
        foresight = candidate.foresight(program) if candidate.foresight else None
        return run(program, on, policy, foresight=foresight)

    def fresh() -> Policy | None:
        return None if candidate.policy is None else candidate.policy(program, machine)

    policy, name = fresh(), candidate.name
    if dispatch != "event" and policy is not None:
        rehearsal = Rehearsal(policy, program)
        outcome(rehearsal, replace(machine, jitter=None))
        again = fresh()
        assert again is not None
        policy, name = FixedOrder(again, program, rehearsal.order, dispatch), f"{name} {dispatch}"
    return replace(outcome(policy, machine), policy=name)
