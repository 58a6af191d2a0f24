"""The policies that can be simulated by name: pump's, and the driver without pump.

lab/bench/study has the policies of papers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pump.config.values import nearest, shown
from pump.policy import POLICIES
from pump.policy.base import Policy
from pump_lab.sim.program import Program, ProgramError
from pump_lab.sim.simulation import Foresight, Machine, Outcome, run


@dataclass(frozen=True)
class NamedPolicy:
    """One way to manage memory.

    `text`: For users. `policy`: None: only the driver's paging. `discard`: It knows dead memory and
    discards it. `foresight(program)`: Its knowledge of operations that are not issued yet.
    """

    name: str
    text: str
    policy: Callable[[Program, Machine], Policy] | None
    discard: bool = False
    foresight: Callable[[Program], Foresight] | None = None
    takes_all: bool = False
    """Uses the GPU's whole memory, without pump's reserve."""


def iteration_steps(program: Program) -> int:
    """Returns the steps of one iteration of a replay, or of a recording after its start."""
    facts = program.facts
    return int(facts.get("steps_per_iteration", facts.get("steady_steps", len(program.steps))))


def _plain(kind: Callable[[], Policy]) -> Callable[[Program, Machine], Policy]:
    return lambda _program, _machine: kind()


_BASELINES = (
    NamedPolicy("naive", "Unified Memory without pump", None),
    NamedPolicy("naive+discard", "and freed memory discarded at once", None, discard=True),
)

NAMED_POLICIES: dict[str, NamedPolicy] = {
    candidate.name: candidate
    for candidate in (
        *_BASELINES,
        *(NamedPolicy(name, "as in pump-run", _plain(kind)) for name, kind in POLICIES.items()),
    )
}
"""The policies by their names in `pump simulate --policy`."""


def by_name(name: str, candidates: Mapping[str, NamedPolicy] = NAMED_POLICIES) -> NamedPolicy:
    """Returns a candidate by its name; NAME+discard is NAME with dead memory discarded.

    Raises ProgramError that lists the known names.
    """
    found = candidates.get(name) or candidates.get(name.removesuffix("+discard"))
    twice = found is not None and found.name != name and "+discard" in found.name
    if found is None or twice:
        names = ", ".join(known for known in candidates if "+discard" not in known)
        hint = nearest(name, list(candidates))
        raise ProgramError(
            f"unknown policy '{shown(name)}'{hint}; known: {names}, each also with +discard"
        )
    return found if found.name == name else replace(found, name=name, discard=True)


def simulate(candidate: NamedPolicy, program: Program, machine: Machine) -> Outcome:
    """Runs the candidate. `program`: with discards if candidate.discard (Case.of).

    Raises ProgramError and SimulationError as simulation.run does.
    """
    if candidate.takes_all:
        machine = replace(machine, reserve_percent=0)
    foresight = candidate.foresight(program) if candidate.foresight else None
    policy = None if candidate.policy is None else candidate.policy(program, machine)
    outcome = run(program, machine, policy, foresight=foresight)
    return replace(outcome, policy=candidate.name)
