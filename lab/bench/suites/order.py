"""Ways of sharing a GPU between jobs: whether the virtual GPU and the simulator rank them alike.

DESIGN
  Two or three jobs run on one virtual GPU, and the same jobs in the simulator of several jobs
  (study/jobs/sweeps.py), in each way of sharing that both know. Progress is a job's iterations a
  second / its iterations a second on its own GPU. It is measured from SETTLED_S after the last job
  begins until the first job ends, without a longer wait for budgets to settle. Jobs wait for the
  GPU after each iteration.

    `order.<mix>.<way>`   Measured mean progress of the jobs, the median of the rounds (5 at most).
                          `simulated`, `jobs` (of the median round), `jobs_simulated`, `rounds`.
    `order.pairs`         Pairs of ways whose simulated progress differs by 10 % or more: the share
                          that was measured in the same order. `pairs`, `wrong`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness import MeasurementError, Options, Row, host_kernels, virtual_facts
from suites import shared

if TYPE_CHECKING:
    from study.jobs.sweeps import Simulated, Sweep

ROUNDS_MOST = 5
SETTLED_S = 3.0
"""Wait for the leases of a new job, which grow in steps."""
MEASURED_S, OF_TURNS_S = 6.0, 40.0
"""Measured time, without turns and with turns: at least two turns for each job."""
TRIES, LONGER = 4, 1.5
"""Tries of one measurement, and the factor for the next try's iterations. Jobs that are faster than
expected end too early, and then the others run faster."""


BY_HAND, NO_TURNS, TURNS = "by_hand", "no_turns", "turns"
KINDS = {BY_HAND: "", NO_TURNS: "[service]\nturns = false\n", TURNS: ""}
"""Configuration of a service of each kind."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    from study.jobs import sweeps

    parser = argparse.ArgumentParser(prog="scripts/bench order --")
    parser.add_argument("--only", action="append", choices=tuple(sweeps.MIXES), help="of the mixes")
    return parser.parse_args(arguments)


class Bench:
    """Runs sweeps side by side. `benches`: by kind of service, BY_HAND for none."""

    def __init__(self, benches: Mapping[str, shared.Bench]) -> None:
        self._benches = benches
        self._cards = 0
        self._alone: dict[Sweep, float] = {}

    def alone(self, sweep: Sweep, expected: float) -> float:
        """Returns iterations a second on a separate GPU; measures once a round."""
        from study.jobs import sweeps

        key = replace(sweep, priority=0)
        if key not in self._alone:
            alone = sweeps.Simulated([expected], [expected], [0])
            self._alone[key] = self.rates(BY_HAND, [sweep], alone)[0]
        return self._alone[key]

    def next_round(self) -> None:
        self._alone.clear()

    def rates(
        self, kind: str, mix: Sequence[Sweep], simulated: Simulated, *, priorities: bool = False
    ) -> list[float]:
        """Returns each job's iterations a second, under such a service or the simulated budgets."""
        measured_s = OF_TURNS_S if kind == TURNS else MEASURED_S
        rates = simulated.rates
        for _ in range(TRIES):
            counts = [3 + int(rate * (SETTLED_S + measured_s)) for rate in rates]
            runs = self._together(kind, mix, counts, simulated.budgets, priorities)
            begin = max(run.started_s for run in runs) + SETTLED_S
            end = min(run.ends_s[-1] for run in runs)
            if end >= begin + measured_s / 2:
                rate = in_all if kind == TURNS else whole_iterations
                return [rate(run.ends_s, begin, end) for run in runs]
            rates = [LONGER * len(run.ends_s) / run.seconds for run in runs]
        raise MeasurementError(f"the jobs were together for {end - begin + SETTLED_S:.1f} s only")

    def _together(
        self,
        kind: str,
        mix: Sequence[Sweep],
        counts: Sequence[int],
        budgets: Sequence[int],
        priorities: bool,
    ) -> list[shared.Figures]:
        from study.jobs import sweeps

        self._cards += 1
        card = f"order-{os.getpid()}-{self._cards}"
        jobs = []
        try:
            for sweep, count, budget in zip(mix, counts, budgets, strict=True):
                words = [
                    f"--buffers={sweep.buffers}",
                    f"--buffer-mib={sweeps.BUFFER_BYTES >> 20}",
                    f"--passes={sweep.passes}",
                    f"--pause-ms={1000 * sweep.pause_s:g}",
                    f"--iterations={count}",
                    "--sync-every-step",
                ]
                options = ["--policy=planned"]
                options += [f"--priority={sweep.priority}"] if priorities else []
                options += [f"--budget={budget}"] if budget else []
                bench = self._benches[kind]
                more = {"PUMP_KEEP_LEARNED": "no"}
                job = bench.launch(
                    words, card, sweeps.CARD_BYTES, options, more=more, kernel=sweeps.SETTINGS
                )
                jobs.append(job)
            return [bench.result(*job) for job in jobs]
        finally:
            for process, _ in jobs:
                process.kill()
                process.communicate()


def in_all(ends_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Returns the iterations a second that end in that time, including waits for a turn."""
    return sum(begin_s <= one <= end_s for one in ends_s) / (end_s - begin_s)


def whole_iterations(ends_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Returns iterations a second from the first to the last that ends in that time."""
    inside = [one for one in ends_s if begin_s <= one <= end_s]
    if len(inside) < 2:
        return len(inside) / (end_s - begin_s)
    return (len(inside) - 1) / (inside[-1] - inside[0])


def run(options: Options) -> Iterator[Row]:
    from study.jobs import sweeps
    from study.papers import several

    from pump_lab import profiles

    chosen = parse(options.rest).only or list(sweeps.MIXES)
    profile = profiles.load(shared.PROFILE).changed(sweeps.SETTINGS)
    curve, link = sweeps.curve(profile), several.link_of(profile)
    simulated: dict[tuple[str, str], Simulated] = {}
    for name in chosen:
        mix = sweeps.MIXES[name]
        for way, sharing in sweeps.sharings(mix).items():
            simulated[name, way] = sweeps.simulated(mix, sharing, curve, link)
    rounds = 1 if options.quick else min(options.pairs, ROUNDS_MOST)
    found = measured(options, list(simulated.items()), rounds)
    facts = {**virtual_facts(shared.PROFILE, "timing"), "profile_settings": sweeps.SETTINGS}
    progress = {}
    for (name, way), each in found.items():
        median = sorted(each, key=statistics.fmean)[len(each) // 2]
        progress[name, way] = statistics.fmean(median)
        yield Row(
            f"order.{name}.{way}", progress[name, way], "of alone",
            **facts,
            simulated=simulated[name, way].mean,
            jobs=median,
            jobs_simulated=simulated[name, way].progress,
            rounds=[statistics.fmean(one) for one in each],
        )  # fmt: skip
    count, wrong = 0, []
    for name in chosen:
        of = {way: case.mean for (mix, way), case in simulated.items() if mix == name}
        pairs, differ = sweeps.disagreements(of, {way: progress[name, way] for way in of})
        count += pairs
        wrong += [f"{name}: {better} before {worse}" for better, worse in differ]
    share = (count - len(wrong)) / count if count else None
    yield Row("order.pairs", share, "of pairs", **facts, pairs=count, wrong=wrong)


def measured(
    options: Options, cases: Sequence[tuple[tuple[str, str], Simulated]], rounds: int
) -> dict[tuple[str, str], list[list[float]]]:
    """Returns the jobs' progress in each round, by mix and way; each round runs all cases. Prints
    each result at once, because a round takes long."""
    from study.jobs import sweeps

    kernels = host_kernels()
    found: dict[tuple[str, str], list[list[float]]] = {key: [] for key, _ in cases}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        benches = {}
        for kind, configuration in KINDS.items():
            (work := Path(folder) / kind).mkdir()
            wanted = kind != BY_HAND
            service = stack.enter_context(shared.leases(options, work, wanted, configuration))
            benches[kind] = shared.Bench(options, kernels, work, service)
        bench = Bench(benches)
        for turn in range(rounds):
            bench.next_round()
            for (name, way), case in cases[:: 1 if turn % 2 == 0 else -1]:
                mix = sweeps.MIXES[name]
                sharing = sweeps.sharings(mix)[way]
                kind = (TURNS if sharing.turns else NO_TURNS) if sharing.by_leases else BY_HAND
                alone = [bench.alone(*one) for one in zip(mix, case.alone, strict=True)]
                rates = bench.rates(kind, mix, case, priorities=sharing.priorities)
                found[name, way].append([a / b for a, b in zip(rates, alone, strict=True)])
                print(json.dumps([name, way, turn, found[name, way][-1]]), flush=True)
    return found
