"""Policies that studies compare with pump's: papers' methods, true futures, fixed orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from study.baselines import Correlation, Perfect, Unbounded
from study.dispatch import FixedOrder, Iterations, order_of
from study.greedy import LINE, Carried, Flash, Greedy, Iteration, Period, iteration_of
from study.papers import autoswap

from pump.model.bounds import without_reserve
from pump.policy.base import Policy
from pump.policy.scheduled import Planned
from pump_lab.profiles import Profile
from pump_lab.sim import named_policies
from pump_lab.sim.named_policies import NamedPolicy, iteration_steps
from pump_lab.sim.program import Program
from pump_lab.sim.simulation import Foresight, Machine, Outcome

TRANSFERS_MOST = 1 << 20
"""Most transfers of a rehearsal."""


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
    rates = link_rates(machine.profile)
    return Greedy(program, _budget_bytes(machine), *rates, flash_of(machine))


def flash_of(machine: Machine) -> Flash | None:
    """Returns the data of a host with flash for G10's schedule, or None without flash."""
    host = machine.host
    if host is None or host.flash_gbps is None:
        return None
    return Flash(host.memory_bytes, *host.flash_gbps, *host.flash_us)


def _budget_bytes(machine: Machine) -> int:
    return without_reserve(machine.memory_bytes, machine.reserve_percent)


def link_rates(profile: Profile) -> tuple[float, float]:
    """Returns the rates to the GPU and to the host in 10^9 bytes a second."""
    values = profile.values
    return float(values["link.prefetch_h2d_gbps"]), float(values["link.copy_d2h_gbps"])


def _swapped(score: str) -> Callable[[Program, Machine], Policy]:
    """Returns a function that makes AutoSwap's transfers by one score, or by the search."""

    def make(program: Program, machine: Machine) -> Policy:
        iteration = iteration_of(program)
        periods = swapped(
            iteration, score, _budget_bytes(machine) * LINE, *link_rates(machine.profile)
        )
        return Carried(program, iteration, periods)

    return make


def swapped(
    iteration: Iteration, score: str, limit: float, in_gbps: float, out_gbps: float
) -> list[Period]:
    """Returns the periods that AutoSwap evicts in, with the kernels at which transfers back begin.
    If no choice suffices for the limit, these are all of its candidates."""
    every = autoswap.job_of(iteration, in_gbps, out_gbps)
    places = every.straddling_places()
    job = every.only(places)
    chosen = autoswap.chosen(job, limit, score)
    found = []
    for one, comes in zip(chosen, autoswap.arrivals(job, chosen), strict=True):
        period = iteration.periods[int(places[one])]
        found.append(replace(period, leaves=period.begin + 1, comes=comes))
    return found


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
        *(
            NamedPolicy(f"autoswap-{score}", f"AutoSwap by {score}", _swapped(score), discard=True)
            for score in (*autoswap.SCORES, autoswap.SEARCH)
        ),
    )
}


def by_name(name: str) -> NamedPolicy:
    """Returns a policy of STUDIED or of pump. Raises the errors of
    pump_lab.sim.named_policies.by_name."""
    return named_policies.by_name(name, {**named_policies.NAMED_POLICIES, **STUDIED})


def simulate(
    candidate: NamedPolicy, program: Program, machine: Machine, *, dispatch: str = "event"
) -> Outcome:
    """Runs the candidate. If it uses discards, `program` has to contain them.

    `dispatch`: "event", "fixed", "fixed-each-way" or "fixed-as-issued". Except for "event",
    transfers go in the order of a rehearsal without jitter (dispatch.py). Raises ProgramError if
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
