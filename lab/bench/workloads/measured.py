"""Inference, LoRA and experts in PyTorch on the virtual GPU: part of suites/frameworks.py.

DESIGN
  A program of examples/pytorch runs once in each mode of a round, each time in a separate process.
  Its results and the virtual GPU's counters are of its timed steps, without the first three. Memory
  is weights / oversubscription, as for a model that a user wants to run. LoRA has as much memory
  again for other data, so it gets all memory / oversubscription. Rows, for each policy:

    `virtual.<program>.<policy>`   Seconds of a step, the median over rounds of a run's mean.
                                   `ratio`: naive's / its. `to_gpu`, `to_host`: bytes of a step.
                                   `back`: to_host / to_gpu. `of_floor`, `of_bound`: the floor,
                                   and the bound of workloads/formulas.py / its seconds. `slowest`:
                                   slowest step of a run / mean.
    `virtual.<program>.window.no_duplicates`   The same if clean memory is copied back.
    `virtual.<program>.<system>`   Seconds with another system, computed by formulas.py from the
                                   kernels' time and the link's rate.

  The floor knows only the weights that products read. With --record nothing is measured: each
  program is recorded with enough memory, for suites/sim.py (workloads/simulated.py).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import floor
from harness import ROOT, Options, Row, compare, compared, rounds, virtual_facts
from quickstart import workload as quickstart
from torch_runs import PROFILE, ROOM_BYTES, Torch
from workloads import formulas
from workloads.formulas import Step

PROGRAMS = "inference", "lora", "experts"
RATIOS = (1.5, 2.0)
ROUNDS_MOST = 3
UNLIMITED, NAIVE = "unlimited", "naive"
NO_DUPLICATES = "window.no_duplicates"
POLICIES = {
    "window": ("--policy=window",),
    NO_DUPLICATES: ("--policy=window",),
    "planned": ("--policy=planned",),
}
"""Options of pump-run for each policy."""
QUICK = ("--layers=4", "--width=1024", "--heads=8", "--inner=2048", "--vocabulary=1024",
         "--steps=3")  # fmt: skip
RECORDED = {"lora": ("--steps=3",)}
"""Options for recordings: a step of training has two thousand operations."""


@dataclass(frozen=True)
class Figures:
    """Results of one run. `counters`: the virtual GPU's, of the timed steps."""

    found: Mapping[str, Any]
    counters: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """Returns the seconds of a step."""
        return float(self.found["seconds"]) / self.steps

    @property
    def steps(self) -> int:
        return int(self.found["steps"])

    @property
    def slowest(self) -> float:
        return max(self.found["each_s"]) / self.seconds

    def moved(self, way: str) -> float:
        """Returns the bytes of a step; `way`: h2d or d2h."""
        kinds = ("demand", "prefetch", "remote") if way == "h2d" else ("evict", "prefetch", "ahead")
        return sum(self.counters[f"{way}_{kind}_bytes"] for kind in kinds) / self.steps

    @property
    def step(self) -> Step:
        """Returns the data of a step for formulas.py, from a run with enough memory."""
        lengths = [length for _, length in self.found["reads"]]
        compute = self.counters["compute_busy_ns"] / 1e9 / self.steps
        return Step(
            weights_bytes=self.found["weights_bytes"],
            read_bytes=sum(lengths) / self.steps,
            others_bytes=self.found["allocated_bytes"] - self.found["weights_bytes"],
            largest_bytes=max(lengths),
            layer_bytes=self.found["layer_bytes"],
            compute_seconds=compute,
            gap_seconds=max(0.0, self.seconds - compute),
        )

    @property
    def footprint_bytes(self) -> int:
        """Returns the bytes that an oversubscription is relative to."""
        return int(self.found["reserved_bytes" if "losses" in self.found else "weights_bytes"])


class Bench:
    def __init__(self, name: str, options: Options, work: Path) -> None:
        from pump_lab import profiles

        program = str(ROOT / "examples" / "pytorch" / f"{name}.py")
        words = [program, *(QUICK if options.quick else ())]
        self._torch = Torch(options, words, work)
        self._name = name
        self._rounds = min(options.pairs, ROUNDS_MOST)
        self._link = float(profiles.load(PROFILE).values["link.prefetch_h2d_gbps"]) * 1e9

    def run(self, mode: str, memory_bytes: int, *words: str, record: str = "") -> Figures:
        """Runs once. Raises MeasurementError."""
        pump = [*POLICIES.get(mode, ())]
        pump += ["--record", record] if record else []
        environ = {"PUMP_DUPLICATES": "off"} if mode == NO_DUPLICATES else {}
        found, report = self._torch.run(
            memory_bytes, pump, *words, managed=mode == NAIVE, environ=environ
        )
        return Figures(found, report["profiled"])

    def record(self, folder: Path) -> Iterator[Row]:
        """Writes a recording and facts about it to the folder."""
        from suites.sim import written

        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self._name}.trace"
        words = RECORDED.get(self._name, ())
        figures = self.run("window", ROOM_BYTES, *words, record=str(file))
        length_bytes = written(file).stat().st_size
        facts = {
            "steps": figures.steps,
            "operations": figures.counters["kernels"] + figures.counters["copies"],
            "footprint_bytes": figures.footprint_bytes,
            "step": asdict(figures.step),
        }
        (folder / f"{self._name}.json").write_text(json.dumps(facts, indent=1) + "\n")
        yield Row(f"recorded.{self._name}", length_bytes, "bytes")

    def rows(self, ratio: float) -> Iterator[Row]:
        """Yields the rows of one oversubscription."""
        modes = (UNLIMITED, NAIVE, *POLICIES)
        alone = self.run(UNLIMITED, ROOM_BYTES)
        memory = int(alone.footprint_bytes / ratio)
        found: dict[str, list[Figures]] = {mode: [] for mode in modes}

        def measure(mode: str) -> Callable[[], float]:
            def once() -> float:
                found[mode].append(self.run(mode, ROOM_BYTES if mode == UNLIMITED else memory))
                return found[mode][-1].seconds

            return once

        rounds({mode: measure(mode) for mode in modes}, self._rounds)
        facts = {**virtual_facts(PROFILE, "timing"), "oversubscription": ratio}
        for mode in modes[1:]:
            yield self._row(mode, found, memory, facts)
        step = found[UNLIMITED][0].step
        for system, seconds_of in formulas.OTHERS.items():
            name = f"virtual.{self._name}.{system}"
            yield Row(name, seconds_of(step, memory, self._link), "s", computed=True, **facts)

    def _row(
        self, mode: str, found: Mapping[str, list[Figures]], memory: int, facts: dict[str, Any]
    ) -> Row:
        from pump.model.bounds import RESERVE_PERCENT, without_reserve

        runs, alone = found[mode], found[UNLIMITED]
        seconds = statistics.median(run.seconds for run in runs)
        budget = without_reserve(memory, RESERVE_PERCENT)
        bound = formulas.bounds(alone[0].step, budget, self._link).get(mode)
        to_gpu, to_host = (
            statistics.median(run.moved(way) for run in runs) for way in ("h2d", "d2h")
        )
        unlimited_s = statistics.median(run.seconds for run in alone)
        return compared(
            f"virtual.{self._name}.{mode}",
            compare([run.seconds for run in found[NAIVE]], [run.seconds for run in runs]),
            "s",
            value=seconds,
            baseline=NAIVE,
            to_gpu=to_gpu,
            to_host=to_host,
            back=to_host / max(1, to_gpu),
            of_floor=least_seconds(alone[0], memory, unlimited_s) / seconds,
            **({} if bound is None else {"of_bound": bound / seconds}),
            slowest=statistics.median(run.slowest for run in runs),
            unlimited_s=unlimited_s,
            compute_s=alone[0].step.compute_seconds,
            **facts,
        )


def least_seconds(alone: Figures, memory_bytes: int, seconds: float) -> float:
    """Returns the floor of a step, from the weights that products read. `seconds`: if all fits."""
    touches = []
    for address, length_bytes in alone.found["reads"]:
        last = (address + length_bytes - 1) // floor.BLOCK_BYTES
        touches.append(floor.Touch(tuple(range(address // floor.BLOCK_BYTES, last + 1)), (), ()))
    traffic = floor.least_traffic(touches, 1, memory_bytes)
    link = quickstart.link_bytes_per_second(PROFILE)
    return floor.floor_seconds(seconds * alone.steps, traffic, link) / alone.steps


def rows(name: str, options: Options, work: Path, record: Path | None) -> Iterator[Row]:
    """Yields the rows of one program. `record`: records it to this folder instead."""
    bench = Bench(name, options, work)
    if record is not None:
        yield from bench.record(record)
        return
    for ratio in RATIOS[: 1 if options.quick else None]:
        yield from bench.rows(ratio)
