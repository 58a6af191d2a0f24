"""Two equal jobs on one virtual GPU, each with 0.75 of its memory: together, and by priority.

DESIGN
  Each job is a separate process on one shared GPU (lab/README.md); both begin together. Budgets are
  set by hand (--budget). With --leases they come from `pumpd serve`, for jobs of equal priority,
  and for the highest next to the lowest priority. The jobs want too little memory to take turns.
  Rounds rotate the order of measurements; ratios are taken within a round.

    `shared.<program>.together`         Naive makespan / makespan under pump: both jobs under naive
                                        Unified Memory, and both under the policy window with equal
                                        budgets. Makespan: from the first begin of timed iterations
                                        to the last end.
    `shared.<program>.priority`         Seconds of one job on an idle GPU, without pump / seconds
                                        of the same job under pump next to the other one. It has a
                                        budget for all its memory, the other job has the rest.
    `shared.<program>.priority_naive`   The same with both under naive Unified Memory.
    `shared.<program>.newcomer`         Only with leases. Seconds of an iteration of a running job
                                        while a new job makes its first three / its last thirty
                                        iterations. The new job has as much memory and the same
                                        priority. Both wait after each iteration. `slowest`: the
                                        slowest iteration during the first three, as such a ratio.

  Programs: sweep (kernels without a pause), pausing (the same with a pause after each iteration, so
  that the GPU is in use for a fifth of the time). The compute engine alternates between processes
  like a real one, without priorities. So a program gets at most half of the engine's time while
  another one never pauses.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cyclic_sweep
from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    compare,
    compared,
    host_kernels,
    virtual_facts,
)

PROFILE = "a100-pcie4"
SHARE = 0.75
"""Share of the GPU's memory that each job allocates."""
EQUAL_BUDGETS = (0.45, 0.45)
"""Shares of the GPU. The rest holds blocks that faults bring in above a budget. Otherwise the
driver would evict blocks of either job for them."""
PRIORITY_BUDGETS = (0.78, 0.15)
PRIORITIES = {PRIORITY_BUDGETS[0]: 10, PRIORITY_BUDGETS[1]: -10}
"""With leases, the priority of the job that would have that budget."""
WARM_UP = 12
"""Untimed iterations of each run with leases. Twelve iterations of a pausing program take about a
second: as long as leases take to move on a busy machine."""
SECONDS_MAX = 240
SERVICE_SECONDS_MAX = 60
FIRST, STEADY = 3, 30
"""Measured iterations of a newcomer."""
ALONE_S = 4
"""Time before a newcomer: by then, the first job has a lease and regular iterations."""
OVERLAP_LEAST = 0.6
"""Least share of a makespan in which both jobs run: their starts take unequally long."""
KERNEL = {"kernel.sweep.gbps": "60"}


@dataclass(frozen=True)
class Figures:
    """Results of one run. `started_s`: on the monotonic clock. `card`: the driver's report."""

    started_s: float
    seconds: float
    ends_s: list[float]
    card: dict[str, Any]

    def iterations(self, begin_s: float, end_s: float) -> list[float]:
        """Returns the seconds of the iterations that are in that time, or partly in it."""
        return [
            end - begin
            for begin, end in itertools.pairwise(self.ends_s)
            if end > begin_s and begin < end_s
        ]


@dataclass(frozen=True)
class Pair:
    """Two simultaneous runs."""

    runs: tuple[Figures, Figures]

    @property
    def makespan(self) -> float:
        begin = min(run.started_s for run in self.runs)
        return max(run.started_s + run.seconds for run in self.runs) - begin

    @property
    def overlap(self) -> float:
        end = min(run.started_s + run.seconds for run in self.runs)
        return (end - max(run.started_s for run in self.runs)) / self.makespan


def programs(quick: bool) -> dict[str, list[str]]:
    """Returns options of examples/cyclic_sweep.py. At 60 GB/s its kernels take 18 ms an iteration.

    A launch queue cannot hold all launches. Otherwise a job could have issued all of them when its
    lease is taken away, and would have no operation left to prefetch for.
    """
    words = ["--buffers=16", f"--buffer-mib={16 if quick else 64}"]
    sweep, pausing = (24, 6) if quick else (150, 120)
    return {
        "sweep": [*words, f"--iterations={sweep}"],
        "pausing": [*words, f"--iterations={pausing}", "--pause-ms=72"],
    }


class Bench:
    """Starts jobs, each measurement on a new virtual GPU."""

    def __init__(self, options: Options, kernels: Path, work: Path, service: str = "") -> None:
        self._service = service
        self.quick = options.quick
        self._pump_run = options.tools.pump_run
        self._python = options.tools.python
        self._kernels = kernels
        self._work = work
        self._count = 0

    def start(
        self, words: Sequence[str], card: str, memory: int, budget: float | None
    ) -> tuple[subprocess.Popen[str], Path]:
        """Starts a job. `budget`: share of the GPU; None: naive."""
        if budget is None:
            naive = {"PUMP_DISABLE": "1"}
            return self.launch([*words, "--managed"], card, memory, [], more=naive)
        options = ["--policy", "window"]
        if self._service:
            options += ["--priority", str(PRIORITIES.get(budget, 0))]
        else:
            options += ["--budget", str(int(budget * memory))]
        return self.launch(words, card, memory, options)

    def launch(
        self,
        words: Sequence[str],
        card: str,
        memory: int,
        options: Sequence[str],
        *,
        more: Mapping[str, str] | None = None,
        kernel: Mapping[str, str] = KERNEL,
    ) -> tuple[subprocess.Popen[str], Path]:
        """Starts a job; returns it and its folder. `options`: of pump-run. `more`: of its
        environment. `kernel`: settings of the virtual GPU."""
        self._count += 1
        folder = self._work / str(self._count)
        folder.mkdir()
        settings = {"memory": str(memory), "mode": "timing", "shared": card, **kernel}
        command = [self._pump_run, "--log-file", str(folder / "log"), "--virtual", PROFILE]
        for key, value in settings.items():
            command += ["--virtual-set", f"{key}={value}"]
        environ = {
            **os.environ,
            "PUMP_VIRTUAL_REPORT": str(folder / "driver.json"),
            "PUMP_VIRTUAL_KERNELS": str(self._kernels),
            "PUMP_VIRTUAL_CARDS": str(self._work),
            **({"PUMP_SERVICE": self._service} if self._service else {}),
            **(more or {}),
        }
        program = [str(ROOT / "examples" / "cyclic_sweep.py"), *words, "--no-hash"]
        command += [*options, "--", self._python, *program, "--json", str(folder / "result.json")]
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return process, folder

    def _card(self, words: Sequence[str]) -> tuple[str, int]:
        """Returns name and memory in bytes of a new GPU for two such jobs."""
        footprint = cyclic_sweep.footprint_bytes(cyclic_sweep.parse(list(words)))
        return f"bench-{os.getpid()}-{self._count}", int(footprint / SHARE) >> 21 << 21

    def run(self, words: Sequence[str], *budgets: float | None) -> list[Figures]:
        """Runs one job for each budget (None: naive), all at the same time."""
        card, memory = self._card(words)
        started = [self.start(words, card, memory, budget) for budget in budgets]
        try:
            return [self.result(process, folder) for process, folder in started]
        finally:
            for process, _ in started:
                process.kill()
                process.communicate()

    def result(self, process: subprocess.Popen[str], folder: Path) -> Figures:
        """Waits for the job; returns its results. Raises MeasurementError if the job fails."""
        try:
            _, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"no end within {SECONDS_MAX} s") from None
        if process.returncode != 0:
            raise MeasurementError(f"exit status {process.returncode}\n{errors[-2000:]}")
        found = json.loads((folder / "result.json").read_text())
        driver = json.loads((folder / "driver.json").read_text())
        if driver["violations"] or driver["card"]["check"]:
            raise MeasurementError(
                f"the virtual driver saw {driver['violations_by_check']}, "
                f"check {driver['card']['check']}"
            )
        return Figures(found["started_s"], found["seconds"], found["ends_s"], driver["card"])

    def pair(self, words: Sequence[str], first: float | None, second: float | None) -> Pair:
        """Runs two jobs that overlap for most of the time. Raises MeasurementError."""
        for _ in range(3):
            one, other = self.run(words, first, second)
            pair = Pair((one, other))
            if self.quick or pair.overlap >= OVERLAP_LEAST:
                return pair
            time.sleep(1)  # one of them was delayed
        raise MeasurementError(f"the jobs ran together for {pair.overlap:.0%} of the time only")

    def newcomer(self, words: Sequence[str]) -> tuple[list[float], list[float]]:
        """Returns the seconds of a job's iterations during the first and during the last iterations
        of a newcomer."""
        words = [*words, "--sync-every-step", "--warm-up=0"]
        card, memory = self._card(words)
        count = FIRST + STEADY if self.quick else 4 * STEADY
        started = [
            self.start([*words, f"--iterations={8 * count}"], card, memory, EQUAL_BUDGETS[0])
        ]
        try:
            time.sleep(ALONE_S)
            later = [*words, f"--iterations={count}"]
            started.append(self.start(later, card, memory, EQUAL_BUDGETS[1]))
            second, first = (self.result(*one) for one in reversed(started))
        finally:
            for process, _ in started:
                process.kill()
                process.communicate()
        if first.ends_s[-1] < second.ends_s[-1]:
            raise MeasurementError("the job that began first ended before the newcomer")
        return (
            first.iterations(second.started_s, second.ends_s[FIRST - 1]),
            first.iterations(second.ends_s[-STEADY], second.ends_s[-1]),
        )

    def beside(self, words: Sequence[str], budgets: tuple[float | None, float | None]) -> float:
        """Returns the seconds of the first of two jobs; the second begins earlier, ends later."""
        longer = [*words, "--iterations=100000"]
        card, memory = self._card(words)
        started = [self.start(longer, card, memory, budgets[1])[0]]
        try:
            until = time.monotonic() + SECONDS_MAX
            while not list(self._work.glob("pump-card-*")):  # made by that job with the GPU
                if time.monotonic() > until or started[0].poll() is not None:
                    raise MeasurementError("the other job has not begun")
                time.sleep(0.01)
            process, folder = self.start(words, card, memory, budgets[0])
            started.append(process)
            figures = self.result(process, folder)
            if started[0].poll() is not None or figures.card["processes"] != 2:
                raise MeasurementError("the other job ended before")
            return figures.seconds
        finally:
            for each in started:
                each.kill()
                each.communicate()
            for left in self._work.glob("pump-card-*"):
                left.unlink()


@contextlib.contextmanager
def leases(options: Options, work: Path, wanted: bool, configuration: str = "") -> Iterator[str]:
    """Yields the socket of a system service that runs during the block, with this configuration, or
    "" if no service is wanted."""
    path, settings = work / "service", work / "config.toml"
    if not wanted:
        yield ""
        return
    settings.write_text(configuration)
    command = [options.tools.python, "-m", "pumpd", "serve", "--socket", str(path)]
    command += ["--config", str(settings)]
    with (work / "service.log").open("w") as log:
        service = subprocess.Popen(command, stderr=log)
    try:
        until = time.monotonic() + SERVICE_SECONDS_MAX
        while not path.exists():
            if time.monotonic() > until or service.poll() is not None:
                raise MeasurementError(f"no service: {(work / 'service.log').read_text()}")
            time.sleep(0.05)
        yield str(path)
    finally:
        service.terminate()
        service.wait()


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench shared --")
    parser.add_argument("--only", action="append", choices=tuple(PARTS))
    parser.add_argument("--program", action="append", choices=tuple(programs(True)))
    parser.add_argument("--leases", action="store_true", help="from pumpd serve, not by hand")
    return parser.parse_args(arguments)


def together(bench: Bench, words: list[str], name: str, count: int, facts: Any) -> Iterator[Row]:
    naive, pump = [], []
    for _ in range(count):
        naive.append(bench.pair(words, None, None))
        pump.append(bench.pair(words, *EQUAL_BUDGETS))
    result = compare([pair.makespan for pair in naive], [pair.makespan for pair in pump])
    yield compared(
        f"shared.{name}.together",
        result,
        "x",
        baseline="naive",
        **facts,
        budgets=None if facts["leases"] else EQUAL_BUDGETS,
        overlap=min(pair.overlap for pair in (*naive, *pump)),
        h2d_bytes=max(run.card["h2d_bytes"] for run in pump[-1].runs),
        naive_h2d_bytes=max(run.card["h2d_bytes"] for run in naive[-1].runs),
    )


def priority(bench: Bench, words: list[str], name: str, count: int, facts: Any) -> Iterator[Row]:
    alone, pump, naive = [], [], []
    if facts["leases"] and not bench.quick:
        words = [*words, f"--warm-up={WARM_UP}"]
    for _ in range(count):
        alone.append(bench.run(words, None)[0].seconds)
        pump.append(bench.beside(words, PRIORITY_BUDGETS))
        naive.append(bench.beside(words, (None, None)))
    given = None if facts["leases"] else PRIORITY_BUDGETS
    for suffix, runs, budgets in (("", pump, given), ("_naive", naive, None)):
        yield compared(
            f"shared.{name}.priority{suffix}",
            compare(alone, runs),
            "x",
            baseline="alone",
            **facts,
            budgets=budgets,
        )


def newcomer(bench: Bench, words: list[str], name: str, count: int, facts: Any) -> Iterator[Row]:
    if not facts["leases"]:
        return
    first, steady, slowest = [], [], 0.0
    for _ in range(count):
        early, late = bench.newcomer(words)
        first.append(statistics.mean(early))
        steady.append(statistics.mean(late))
        slowest = max(slowest, max(early) / steady[-1])
    yield compared(
        f"shared.{name}.newcomer",
        compare(first, steady),
        "x",
        baseline="steady",
        **facts,
        slowest=slowest,
    )


PARTS = {"together": together, "priority": priority, "newcomer": newcomer}


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    kernels = host_kernels()
    facts = {**virtual_facts(PROFILE, "timing"), "profile_settings": KERNEL, "share": SHARE}
    count = min(options.pairs, 10)
    facts["leases"] = chosen.leases
    with (
        tempfile.TemporaryDirectory() as folder,
        leases(options, work := Path(folder), chosen.leases) as service,
    ):
        bench = Bench(options, kernels, work, service)
        for name, words in programs(options.quick).items():
            for part, measure in PARTS.items():
                if part in (chosen.only or PARTS) and name in (chosen.program or [name]):
                    yield from measure(bench, words, name, count, facts)
