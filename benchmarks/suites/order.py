"""Ways of sharing a GPU between jobs: whether the virtual GPU puts them in the simulator's order.

DESIGN
  Two or three jobs on one virtual GPU, and the same ones in the simulator of several jobs
  (study/jobs/sweeps.py), in each way of sharing that both know. Progress is a job's iterations a
  second / those that it has with a card of its own. It is measured from SETTLED_S after the last
  job's begin to the first one's end, without a wait for the budgets to settle beyond that. Jobs
  wait for the GPU after each iteration.

    order.<mix>.<way>   mean progress of the jobs, measured, the median of the rounds (5 at most);
                        `simulated`, `jobs` (of the median round), `jobs_simulated`, `rounds`
    order.pairs         pairs of ways whose simulated progress differs by 10 % and more: the share
                        that was measured in the same order; `pairs`, `wrong`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import MeasurementError, Options, Row, host_kernels, virtual_facts
from suites import shared

if TYPE_CHECKING:
    from study.jobs.sweeps import Simulated, Sweep

ROUNDS_MOST = 5
SETTLED_S = 3.0
"""Leases of a job that has just begun grow in steps."""
MEASURED_S = 6.0
TRIES = 3
"""Of one measurement: jobs that are faster than was thought end too early."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of the suite; exits with status 2 on a bad one."""
    from study.jobs import sweeps

    parser = argparse.ArgumentParser(prog="scripts/bench order --")
    parser.add_argument("--only", action="append", choices=tuple(sweeps.MIXES), help="of the mixes")
    return parser.parse_args(arguments)


class Bench:
    """Runs sweeps beside each other, by budgets or by leases."""

    def __init__(self, by_hand: shared.Bench, served: shared.Bench) -> None:
        self._by_hand, self._served = by_hand, served
        self._cards = 0
        self._alone: dict[Sweep, float] = {}

    def alone(self, sweep: Sweep, expected: float) -> float:
        """Iterations a second with a card of its own; once a round."""
        if sweep not in self._alone:
            self._alone[sweep] = self.rates([sweep], [expected], [0])[0]
        return self._alone[sweep]

    def next_round(self) -> None:
        self._alone.clear()

    def rates(
        self, mix: Sequence[Sweep], expected: Sequence[float], budgets: Sequence[int]
    ) -> list[float]:
        """By job, iterations a second. expected: what they are thought to be. budgets: in bytes;
        0: by a service's leases, and alone none."""
        for _ in range(TRIES):
            runs = self._together(mix, expected, budgets)
            begin = max(run.started_s for run in runs) + SETTLED_S
            end = min(run.ends_s[-1] for run in runs)
            if end >= begin + MEASURED_S / 2:
                return [whole_iterations(run.ends_s, begin, end) for run in runs]
            expected = [len(run.ends_s) / run.seconds for run in runs]
        raise MeasurementError(f"the jobs were together for {end - begin + SETTLED_S:.1f} s only")

    def _together(
        self, mix: Sequence[Sweep], expected: Sequence[float], budgets: Sequence[int]
    ) -> list[shared.Figures]:
        from study.jobs import sweeps

        self._cards += 1
        card = f"order-{os.getpid()}-{self._cards}"
        bench = self._served if len(mix) > 1 and not any(budgets) else self._by_hand
        jobs = []
        try:
            for sweep, rate, budget in zip(mix, expected, budgets, strict=True):
                words = [
                    f"--buffers={sweep.buffers}",
                    f"--buffer-mib={sweeps.BUFFER_BYTES >> 20}",
                    f"--passes={sweep.passes}",
                    f"--pause-ms={1000 * sweep.pause_s:g}",
                    f"--iterations={3 + int(rate * (SETTLED_S + MEASURED_S))}",
                    "--sync-every-step",
                ]
                options = ["--policy=planned", "--keep-learned=no", f"--priority={sweep.priority}"]
                options += [f"--budget={budget}"] if budget else []
                jobs.append(
                    bench.launch(words, card, sweeps.CARD_BYTES, options, kernel=sweeps.SETTINGS)
                )
            return [bench.result(*job) for job in jobs]
        finally:
            for process, _ in jobs:
                process.kill()
                process.communicate()


def whole_iterations(ends_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """A second, of those that end in that time, from the first of them to the last."""
    inside = [one for one in ends_s if begin_s <= one <= end_s]
    if len(inside) < 2:
        return len(inside) / (end_s - begin_s)
    return (len(inside) - 1) / (inside[-1] - inside[0])


def run(options: Options) -> Iterator[Row]:
    from study.jobs import sweeps
    from study.papers import several

    from pump import profiles

    chosen = parse(options.rest).only or list(sweeps.MIXES)
    profile = profiles.load(shared.PROFILE).changed(sweeps.SETTINGS)
    curve, link = sweeps.curve(profile), several.link_of(profile)
    simulated: dict[tuple[str, str], Simulated] = {}
    for name in chosen:
        mix = sweeps.MIXES[name]
        for way, sharing in sweeps.sharings(len(mix)).items():
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
    """By mix and way, the jobs' progress in each round; each round goes through all."""
    from study.jobs import sweeps

    kernels = host_kernels()
    found: dict[tuple[str, str], list[list[float]]] = {key: [] for key, _ in cases}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = Path(folder)
        service = stack.enter_context(shared.leases(options, work, wanted=True))
        bench = Bench(
            shared.Bench(options, kernels, made(work / "by_hand")),
            shared.Bench(options, kernels, made(work / "served"), service),
        )
        for turn in range(rounds):
            bench.next_round()
            for (name, way), case in cases[:: 1 if turn % 2 == 0 else -1]:
                mix = sweeps.MIXES[name]
                alone = [bench.alone(*one) for one in zip(mix, case.alone, strict=True)]
                rates = bench.rates(mix, case.rates, case.budgets)
                found[name, way].append([a / b for a, b in zip(rates, alone, strict=True)])
                print(json.dumps([name, way, turn, found[name, way][-1]]), flush=True)
    return found


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
