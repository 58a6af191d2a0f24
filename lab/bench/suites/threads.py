"""Which of a job's threads wait for CPU cores: a transformer, with and without busy processes.

DESIGN
  transformer_train.py trains on the virtual GPU once in each mode of a round. PyTorch's own
  allocator cuts its memory (granularity native). thread_times.py measures each thread in the timed
  iterations. A recording of a run with enough memory is simulated at the same sizes: the
  simulator's CPU cores are never busy. Rows, medians over the rounds:

    `threads.<mode>.seconds`      Seconds of the timed iterations. `beside`: the number of processes
                                  that computed at the same time. `ratio`: simulated seconds /
                                  these.
    `threads.<mode>.processors`   CPU seconds of all threads / simulated seconds: the number of CPU
                                  cores that the job needs to run as fast as simulated.
    `threads.<mode>.delay`        Seconds in which the thread of `case` was runnable without a CPU
                                  core. `ran_s`; `blocked` and `preempted`: how often.

  A mode is a policy, or naive Unified Memory without pump, or unlimited, with enough memory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import floor
from harness import Options, Row, computing, cpus, pin, rounds, virtual_facts
from suites.frameworks import CPUS_MOST, QUICK, Shape, training
from suites.sim import written
from thread_times import Sampler, Times
from torch_runs import PROFILE, ROOM_BYTES, Torch

if TYPE_CHECKING:
    from pump_lab.sim.program import Program

UNLIMITED, NAIVE = "unlimited", "naive"
POLICIES = ("window", "planned", "demand")
TABLE = ((UNLIMITED, 1.0), (NAIVE, 2.0), ("window", 1.5), ("window", 2.0), ("planned", 2.0))
BESIDE = (0, 2)
RECORDINGS = 3
"""Number of recordings. The one with the fastest issue is simulated: load slows down others."""


@dataclass(frozen=True)
class Case:
    """A way to run: a mode, reserved bytes / memory, and other processes that compute."""

    mode: str
    ratio: float
    beside: int


@dataclass(frozen=True)
class Figures:
    seconds: float
    threads: dict[str, Times]


class Bench:
    """Runs the training in cases. `settings`: further settings of the virtual GPU."""

    def __init__(self, options: Options, settings: list[str], shape: Shape, work: Path) -> None:
        self._training = Torch(options, training(shape), work, settings)
        self._settings = settings
        self._work = work
        self._program = min(
            (self._record(work / f"transformer-{number}.trace") for number in range(RECORDINGS)),
            key=lambda program: self._simulated(program, NAIVE, ROOM_BYTES),
        )
        found, _ = self._training.run(ROOM_BYTES, [], "--touches")
        self.reserved_bytes = int(found["reserved_bytes"])

    def memory_bytes(self, case: Case) -> int:
        if case.mode == UNLIMITED:
            return ROOM_BYTES
        return int(self.reserved_bytes / case.ratio) // floor.BLOCK_BYTES * floor.BLOCK_BYTES

    def figures(self, case: Case) -> Figures:
        """Runs once. Raises MeasurementError."""
        pump = ["--policy", case.mode, "--granularity", "native"] if case.mode in POLICIES else []
        sampler = Sampler(self._work)
        with computing(case.beside), sampler.sampling():
            found, _ = self._training.run(self.memory_bytes(case), pump, managed=case.mode == NAIVE)
        threads = sampler.between(found["began_s"], found["ended_s"])
        return Figures(found["seconds"], threads)

    def _record(self, file: Path) -> Program:
        """Records the training, including its times of issue; returns it as a program."""
        from pump_lab.sim import recording

        self._training.run(ROOM_BYTES, ["--policy", "window", "--record", str(file)])
        return recording.program(written(file).read_bytes(), file.name)

    def _simulated(self, program: Program, policy: str, memory_bytes: int) -> float:
        """Returns the seconds between the last two waits for the GPU: the timed iterations."""
        from study import studied_policies

        from pump_lab import profiles
        from pump_lab.sim.simulation import Machine

        changes = dict(setting.split("=", 1) for setting in self._settings)
        machine = Machine(profiles.load(PROFILE).changed(changes), memory_bytes)
        outcome = studied_policies.simulate(studied_policies.by_name(policy), program, machine)
        began, ended = outcome.syncs_seconds[-2:]
        return ended - began

    def simulated_seconds(self, case: Case) -> float:
        """Returns the simulated seconds of a case."""
        policy = case.mode if case.mode in POLICIES else NAIVE
        return self._simulated(self._program, policy, self.memory_bytes(case))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench threads --")
    modes = (UNLIMITED, NAIVE, *POLICIES)
    parser.add_argument("--mode", action="append", choices=modes, help="may be repeated")
    parser.add_argument("--ratio", action="append", type=float, help="oversubscription")
    parser.add_argument(
        "--beside", action="append", type=int, metavar="N", help="processes that compute beside it"
    )
    parser.add_argument(
        "--virtual-set", action="append", default=[], metavar="KEY=VALUE", help="of the virtual GPU"
    )
    options = parser.parse_args(arguments)
    if any(not 1 <= ratio <= 8 for ratio in options.ratio or ()):
        parser.error("--ratio must lie in 1 to 8")
    return options


def cases(chosen: argparse.Namespace) -> list[Case]:
    """Returns the requested cases; without modes and ratios, the cases of TABLE."""
    wanted = TABLE
    if chosen.mode or chosen.ratio:
        modes = chosen.mode or [mode for mode, _ in TABLE[1:]]
        ratios = chosen.ratio or [2.0]
        wanted = tuple(dict.fromkeys((mode, ratio) for mode in modes for ratio in ratios))
    besides = BESIDE if chosen.beside is None else chosen.beside
    return [Case(mode, ratio, beside) for mode, ratio in wanted for beside in besides]


def middle(runs: list[Figures]) -> dict[str, Times]:
    """Returns the medians over the runs, by thread."""
    names = sorted({name for run in runs for name in run.threads})
    each = {name: [run.threads.get(name, Times()) for run in runs] for name in names}
    return {
        name: Times(*map(statistics.median, zip(*map(astuple, times), strict=True)))
        for name, times in each.items()
    }


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    shape = QUICK if options.quick else Shape()
    with tempfile.TemporaryDirectory() as work, pin(*cpus()[:CPUS_MOST]):
        bench = Bench(options, chosen.virtual_set, shape, Path(work))
        wanted = cases(chosen)
        found: dict[Case, list[Figures]] = {case: [] for case in wanted}

        def measure(case: Case) -> float:
            found[case].append(bench.figures(case))
            return found[case][-1].seconds

        rounds({str(case): lambda case=case: measure(case) for case in wanted}, options.pairs)
        for case, runs in found.items():
            seconds = [each.seconds for each in runs]
            simulated = bench.simulated_seconds(case)
            facts = {
                **virtual_facts(PROFILE, "timing"),
                "profile_settings": chosen.virtual_set,
                "oversubscription": case.ratio,
                "beside": case.beside,
            }
            value = statistics.median(seconds)
            yield Row(
                f"threads.{case.mode}.seconds",
                value,
                "s",
                "simulated",
                ratio=simulated / value,
                simulated_seconds=simulated,
                each_s=seconds,
                **facts,
            )
            threads = middle(runs)
            yield Row(
                f"threads.{case.mode}.processors",
                sum(times.ran_s for times in threads.values()) / simulated,
                "x",
                **facts,
            )
            for name, times in threads.items():
                yield Row(
                    f"threads.{case.mode}.delay",
                    times.delay_s,
                    "s",
                    case=name,
                    ran_s=times.ran_s,
                    blocked=times.blocked,
                    preempted=times.preempted,
                    **facts,
                )
