"""Trains a model in one process, and switches policy and budget between iterations.

The speed and trace stages run it, under pump-run or without. It writes one JSON object per line as
soon as possible, so that a kill loses nothing:

    `model`     facts, which do not depend on the link; footprint;
    `phase`     plan.Measured;
    `timeline`  of one policy, see _timeline();
    `loop`      seconds of iterations without a change of policy or budget (--loop, --turns);
    `ready`     the model is warm; estimated seconds of an iteration (--turns).

    pump-run python tests/acceptance/speed/program.py --model mlp --ratio 1.5 --out lines
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import floor  # noqa: E402
from acceptance import models  # noqa: E402
from acceptance.speed import plan as speed_plan  # noqa: E402
from acceptance.speed.plan import UNLIMITED, Measured, Phase  # noqa: E402
from acceptance.speed.switching import Figures, Switch, SwitchError  # noqa: E402

WARM_UNITS = 3
WARM_SECONDS = 0.7
"""Time before measuring: PyTorch's allocator has its segments after two iterations, and a GPU
reaches its clocks after some tenths of a second."""
SETTLE_UNITS_MOST = 6
SETTLE_UNITS_LEAST = 2
STEADY = 0.1
"""Traffic is steady if two consecutive iterations differ by less than this share."""
BUDGET_SLACK = 0.03
"""Residency may exceed the budget by this share at the end of an iteration."""
TIMELINE_STEP_S = 0.01
TIMELINE_UNITS = 3
SEED = 1


class Trainer:
    """A model and the control of its job's policy and budget."""

    def __init__(self, options: argparse.Namespace, lines: Any) -> None:
        self._began = time.monotonic()
        self._options = options
        self._lines = lines
        self._model = models.build(options.model, SEED, options.quick)
        self._unit = int(self._model.facts.get("cycle", 1))
        self._floors: dict[tuple[float, int], int] = {}
        self._phase_seconds: dict[str, float] = {}
        self._unit_seconds: dict[tuple[float, str], float] = {}

    def left_s(self) -> float:
        return float(self._options.seconds) - (time.monotonic() - self._began)

    def say(self, **line: Any) -> None:
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()

    def iterations(self, count: int) -> float:
        """Runs `count` iterations and waits; returns the seconds."""
        self._model.wait()
        started = time.perf_counter()
        for _ in range(count):
            self._model.step()
        self._model.wait()
        return time.perf_counter() - started

    def warm_up(self) -> None:
        """Runs until allocator and clocks are ready."""
        began = time.monotonic()
        self.iterations(WARM_UNITS * self._unit)
        while time.monotonic() - began < self._options.warm_seconds:
            self.iterations(self._unit)

    # ---- iterations without a change of policy or budget ----

    def loop(self, count: int) -> None:
        self.warm_up()
        seconds = self.iterations(count)
        self.say(kind="loop", iterations=count, seconds=seconds)
        self.say(kind="model", facts=self._model.facts)

    def turns(self) -> None:
        """For each line of stdin, runs that many iterations; ends with stdin.

        An untimed unit runs first, because the caches still hold the other program's data.
        """
        self.warm_up()
        self.say(kind="ready", seconds_per_iteration=self.iterations(self._unit) / self._unit)
        for line in sys.stdin:
            self.iterations(self._unit)
            count = int(line)
            self.say(kind="loop", iterations=count, seconds=self.iterations(count))

    # ---- switched ----

    def measure(self) -> None:
        """Measures all requested phases while time is left. Raises SwitchError."""
        self.warm_up()
        touches = self._model.touches()
        self._switch = Switch()
        self._total_bytes = self._switch.total_bytes()
        footprint = self._switch.figures().footprint_bytes
        self.say(kind="model", facts=self._model.facts, footprint_bytes=footprint,
                 unit_iterations=self._unit, operations_of_the_floor=len(touches))  # fmt: skip
        options = self._options
        for ratio in options.ratio:
            found: list[Measured] = []
            for phase in speed_plan.phases(ratio, options.policy, options.rounds):
                if self._phase_seconds.get(phase.policy, 0) * 1.2 > self.left_s():
                    self.say(kind="cut", ratio=ratio, round=phase.round, policy=phase.policy)
                    return
                found.append(self._phase(phase, footprint, touches))
                self.say(**found[-1].as_json())
            if self._is_slow(found):
                self._timelines(ratio, footprint)
            self.say(kind="whole", ratio=ratio)

    def _is_slow(self, found: Sequence[Measured]) -> bool:
        """Returns whether window is so slow that a timeline must explain it."""
        figures = speed_plan.figures(found, speed_plan.WINDOW, 1.0)
        speedup = figures.get("speedup_over_demand_emulated")
        return speedup is not None and speedup < self._options.timeline_below

    def _budget(self, phase: Phase, footprint: int) -> int:
        if phase.policy == UNLIMITED:
            return self._total_bytes
        return speed_plan.budget_bytes(footprint, phase.ratio)

    def _phase(self, phase: Phase, footprint: int, touches: Sequence[floor.Touch]) -> Measured:
        began = time.monotonic()
        budget = self._budget(phase, footprint)
        settled, settling = self._settle(phase, budget)
        before = self._switch.figures()
        count = speed_plan.iterations_of(
            self._unit_seconds[phase.ratio, phase.policy],
            self._unit,
            self._options.phase_seconds,
        )
        seconds = self.iterations(count)
        after = self._switch.figures()
        moved = after.since(before)
        self._phase_seconds[phase.policy] = time.monotonic() - began
        return Measured(
            phase=phase,
            iterations=count,
            seconds=seconds,
            budget_bytes=budget,
            to_gpu_bytes=moved["to_gpu_bytes"],
            to_host_bytes=moved["to_host_bytes"],
            overshoot_bytes=after.overshoot_bytes,
            resident_bytes=after.resident_bytes,
            blocks_used=moved["blocks_used"],
            blocks_hit=moved["blocks_hit"],
            floor_h2d_bytes=self._floor(touches, phase, count, footprint),
            settled=settled,
            settling_iterations=settling,
        )

    def _settle(self, phase: Phase, budget: int) -> tuple[bool, int]:
        """Switches, and runs until residency fits the budget and traffic is steady.

        Returns whether that happened and after how many iterations. Does not empty PyTorch's cache,
        because that would change the footprint, the base of all budgets.
        """
        policy = speed_plan.WINDOW if phase.policy == UNLIMITED else phase.policy
        self._switch.to(policy, budget)
        last: Figures | None = None
        moved_before = -1
        for unit in range(1, SETTLE_UNITS_MOST + 1):
            seconds = self.iterations(self._unit)
            now = self._switch.figures()
            if last is not None:
                difference = now.since(last)
                moved = difference["to_gpu_bytes"] + difference["to_host_bytes"]
                self._unit_seconds[phase.ratio, phase.policy] = seconds
                fits = now.resident_bytes <= budget * (1 + BUDGET_SLACK)
                steady = abs(moved - moved_before) <= STEADY * max(moved, floor.BLOCK_BYTES)
                if fits and steady and unit > SETTLE_UNITS_LEAST:
                    return True, unit * self._unit
                moved_before = moved
            last = now
        return False, SETTLE_UNITS_MOST * self._unit

    def _floor(
        self, touches: Sequence[floor.Touch], phase: Phase, count: int, footprint: int
    ) -> int | None:
        """Returns the least bytes that must reach the GPU in the timed iterations."""
        if not touches:
            return None
        if phase.policy == UNLIMITED:
            return 0
        key = phase.ratio, count
        if key not in self._floors:
            memory = speed_plan.budget_bytes(footprint, phase.ratio)
            least = floor.least_traffic(touches, count, memory)
            self._floors[key] = least.h2d_bytes
        return self._floors[key]

    # ---- why ----

    def _timelines(self, ratio: float, footprint: int) -> None:
        """Records timelines of window and demand that explain a small difference."""
        for policy in (speed_plan.WINDOW, speed_plan.DEMAND):
            if self._phase_seconds.get(policy, 0) * 1.5 > self.left_s():
                return
            phase = Phase(ratio, -1, policy)
            self._settle(phase, self._budget(phase, footprint))
            rows, marks = self._timeline()
            self.say(kind="timeline", ratio=ratio, policy=policy, columns=TIMELINE_COLUMNS,
                     rows=rows, iteration_ends_ms=marks)  # fmt: skip

    def _timeline(self) -> tuple[list[list[float]], list[float]]:
        """Returns the activity per 10 ms and the ends of iterations; waits after each iteration."""
        rows: list[list[float]] = []
        stop = threading.Event()
        started = time.perf_counter()

        def watch() -> None:
            last = self._switch.figures()
            while not stop.wait(TIMELINE_STEP_S):
                now = self._switch.figures()
                change = now.since(last)
                rows.append([
                    round(1e3 * (time.perf_counter() - started), 1),
                    *(round(change[name] / 2**20, 1) for name in _MOVED),
                    *(change[name] for name in _COUNTED),
                    round(now.resident_bytes / 2**20),
                ])  # fmt: skip
                last = now

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        marks = []
        for _ in range(TIMELINE_UNITS * self._unit):
            self.iterations(1)
            marks.append(round(1e3 * (time.perf_counter() - started), 1))
        stop.set()
        watcher.join(10)
        return rows, marks


_MOVED = ("to_gpu_bytes", "to_host_bytes")
_COUNTED = ("blocks_used", "blocks_hit", "blocks_late", "blocks_unseen", "blocks_no_room")
TIMELINE_COLUMNS = ["at_ms", "to_gpu_mib", "to_host_mib", *_COUNTED, "resident_mib"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=sorted(models.MODELS))
    parser.add_argument("--quick", action="store_true", help="the model's smallest size")
    parser.add_argument("--ratio", action="append", type=float, default=[])
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=speed_plan.ROUNDS)
    parser.add_argument("--phase-seconds", type=float, default=1.0)
    parser.add_argument("--warm-seconds", type=float, default=WARM_SECONDS, help="at least")
    parser.add_argument("--timeline-below", type=float, default=0.0, metavar="SPEEDUP")
    parser.add_argument("--loop", type=int, default=0, metavar="ITERATIONS")
    parser.add_argument("--turns", action="store_true", help="loops as stdin says how long")
    parser.add_argument("--seconds", type=float, default=600.0, help="end by then")
    parser.add_argument("--out", type=Path, required=True, help="where the lines go")
    options = parser.parse_args()
    if not (options.loop or options.turns or options.ratio):
        parser.error("give --ratio, --loop or --turns")
    if any(not 1 < ratio <= 16 for ratio in options.ratio):
        parser.error("--ratio must lie above 1, up to 16")
    return options


def main() -> int:
    options = parse()
    with options.out.open("a") as lines:
        try:
            trainer = Trainer(options, lines)
            if options.loop:
                trainer.loop(options.loop)
            elif options.turns:
                trainer.turns()
            else:
                trainer.measure()
        except (SwitchError, ImportError) as error:
            print(f"speed_program: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
