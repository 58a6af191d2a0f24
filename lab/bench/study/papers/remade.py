"""Swap or compute again, only swaps, and the bound (recompute.py): rows of suites/papers.py.

`planned` carries out both. Values are time with only swaps / time. The drops are chosen by trial on
the trace scaled down to TRIED_BYTES, because a trial's time depends on its blocks. The whole trace
then decides between these drops and none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from study import sim_planned
from study.papers import recompute
from study.papers.experiments import NO_NUMBER, PLANNED, Bench, Cell, Experiment, mean

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.tensors import TensorTrace

RATIOS: Final = 2.0, 4.0
TRIED_BYTES: Final = 4 << 30
"""Peak of the trace for trials of drops."""
QUICK_TRIALS: Final = 6


class Times(NamedTuple):
    """Seconds of an iteration: with only swaps, with drops as well, and the bound."""

    swaps: float
    both: float
    bound: float


def experiments(bench: Bench, *, quick: bool = False) -> Iterator[Experiment]:
    """Yields a row for each ratio. `quick`: few trials."""
    trials_most = QUICK_TRIALS if quick else recompute.TRIALS_MOST
    for ratio in RATIOS:
        found = {one.name: times(one, bench.profile, ratio, trials_most) for one in bench.traces}
        yield Experiment(
            f"tensile.recompute_{round(ratio * 10)}",
            "TENSILE",
            f"one job, footprint / memory {ratio:g}: time with only swaps / with recomputation",
            "x",
            NO_NUMBER,
            mean({name: one.swaps / one.both for name, one in found.items()}),
            Cell(1.0, "only swaps:"),
            mean({name: one.swaps / one.bound for name, one in found.items()}),
        )


def times(trace: TensorTrace, profile: Profile, ratio: float, trials_most: int) -> Times:
    """Returns the times of one trace on a GPU with 1 / `ratio` of its peak."""
    from study import studied_policies

    from pump_lab.floor import Rates
    from pump_lab.sim import report

    def seconds(one: TensorTrace, memory_bytes: int) -> float:
        case = sim_planned.case_of(one, profile).with_memory(memory_bytes)
        return sim_planned.steady(case, PLANNED).seconds

    come, leave = studied_policies.link_rates(profile)
    peak_bytes = trace.peak_bytes()
    tried = recompute.smaller(trace, min(1.0, TRIED_BYTES / peak_bytes))
    tried_bytes = int(tried.peak_bytes() / ratio)
    choice = recompute.choose(
        recompute.History(tried),
        lambda one: seconds(one, tried_bytes),
        1 / (1 / come + 1 / leave),
        tried_bytes,
        trials_most=trials_most,
    )
    history, memory_bytes = recompute.History(trace), int(peak_bytes / ratio)
    alone = seconds(trace, memory_bytes)
    both = seconds(recompute.remade(history, choice.drops)[0], memory_bytes)
    rates = Rates.of(profile.values, report.MIGRATION_THREADS)
    return Times(alone, min(alone, both), recompute.bound(history, memory_bytes, rates))
