"""A program's time and faults by cause: live on the virtual GPU against simulated.

DESIGN
  scripts/bench path -- [OPTIONS] --program COMMAND. In the command, {} is replaced by the number of
  steps. Each run is made with both step counts of --steps. Results are the differences of the two
  runs, so start and end of the program do not count. Runs for each step count, in this order:

    `room`        A run with memory for everything, not recorded.
    `recording`   The same, recorded. Simulations use this recording, with corrected host times
                  (host_times).
    `live`        A run with --memory, recorded only with --expect (for the cause "unknown").

  Rows (path_causes.py explains parts, causes and fates):

    `path.seconds`     Live seconds; baseline: simulated. `room_s`, `simulated_room_s`: seconds with
                       enough memory, live and simulated.
    `path.time`        Live seconds by part; baseline: simulated.
    `path.counters`    The GPU's counters of faulted pages (64 KiB) and moved bytes; baseline:
                       simulated.
    `path.faults`      Faulted blocks by cause. `wait_s`: seconds that kernels waited for them.
    `path.moved`       Bytes to the GPU, by fate.
    `path.processor`   CPU seconds of each group of threads, in the whole longer live run.
                       `delay_s`: seconds that they waited for a CPU core. `per_gib`: CPU seconds
                       for each GiB moved in either direction.

  --scale X multiplies the times of the profile by X, and divides its rates by X. --loop NAME runs
  one of LOOPS with PyTorch, by default with half of its memory. --program is the last option.
  Without both, examples/train_mlp.py runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import gpu_events
import touched
from harness import ROOT, MeasurementError, Options, Row, child, host_kernels, virtual_facts
from path_causes import COUNTERS, Path, follow
from suites.sim import written
from thread_times import Sampler, Times
from torch_runs import PROFILE, ROOM_BYTES, environment

GIB = 1 << 30
SECONDS_MAX = 280
TRAIN = ("--width=2048", "--layers=10", "--batch=512", "--warm-up=0", "--report-every=0")
IDLE_LEAST, HOST_LEAST = 0.05, 0.25
"""Least idle share of a run for a correction of host times, and the least factor."""
EXAMPLE = ("--layers=24", "--width=1024", "--inner=4096", "--heads=16", "--json=/dev/null")
LOOPS_FILE = "lab/bench/load_generators/torch_loops.py"
LOOPS = {
    "gpt": (704, (LOOPS_FILE, "gpt")),
    "vit": (1034, (LOOPS_FILE, "vit")),
    "resnet": (525, (LOOPS_FILE, "resnet")),
    "trainer": (688, (LOOPS_FILE, "trainer")),
    "gnn": (642, (LOOPS_FILE, "gnn")),
    "lora": (577, ("examples/pytorch/lora.py", *EXAMPLE)),
    "tokens": (507, ("examples/pytorch/inference.py", *EXAMPLE)),
}
"""Loops with PyTorch: half of the memory that each reserves, in MiB, and its command."""
GROUPS = {
    "pump-in": "threads that copy to the GPU",
    "pump-out": "threads that copy to the host",
    "pump-mark": "markers",
    "pumpd-worker": "worker",
    "virtual-gpu": "virtual GPU",
}
"""Groups by the start of a thread's name; grouped() also has groups for all other threads."""


@dataclass
class Live:
    """One run: its sums, its threads' times by group, and the path of its recording, if any."""

    path: Path
    threads: Mapping[str, Times]
    trace: File


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench path --")
    add = parser.add_argument
    add("--memory", metavar="SIZE", help="of the live GPU (default: 512MiB, or as --loop says)")
    add("--policy", default="window", help="(default: %(default)s)")
    add("--steps", nargs=2, type=int, metavar=("FEW", "MANY"), help="(default: 8 32)")
    add("--expect", action="store_true", help="record the live run, too")
    add("--virtual-set", action="append", default=[], metavar="KEY=VALUE")
    add("--loop", choices=LOOPS, help="a training loop with PyTorch instead of --program")
    add("--scale", type=float, default=1.0, help="of the GPU's times (default: %(default)s)")
    add("--program", nargs=argparse.REMAINDER, metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    if chosen.program is not None and not any("{}" in word for word in chosen.program):
        parser.error("--program needs a word with {}, for the number of steps")
    if chosen.steps is not None and not 0 < chosen.steps[0] < chosen.steps[1]:
        parser.error("--steps needs two numbers, the smaller one first")
    half_mib = LOOPS[chosen.loop][0] if chosen.loop else 512
    chosen.memory = chosen.memory or f"{half_mib}MiB"
    return chosen


def settings_of(chosen: argparse.Namespace) -> dict[str, str]:
    """Returns the changes of the profile by --scale and --virtual-set. Raises MeasurementError."""
    from pump_lab import profiles

    found = {}
    if chosen.scale != 1:
        for key, value in profiles.load(PROFILE).values.items():
            if key.endswith("_us"):
                found[key] = str(float(value) * chosen.scale)  # type: ignore[arg-type]
            elif key.endswith("gbps"):
                found[key] = str(float(value) / chosen.scale)  # type: ignore[arg-type]
    for setting in chosen.virtual_set:
        key, equals, value = setting.partition("=")
        if not equals:
            raise MeasurementError(f"--virtual-set needs KEY=VALUE, not '{setting}'")
        found[key] = value
    return found


class Bench:
    """Runs the program and simulates it."""

    def __init__(self, options: Options, chosen: argparse.Namespace, work: File) -> None:
        self._pump_run = options.tools.pump_run
        self._chosen = chosen
        train = [options.tools.python, str(ROOT / "examples" / "train_mlp.py"), *TRAIN]
        self._kernels = {}
        if chosen.loop:
            file, *words = LOOPS[chosen.loop][1]
            python = str(environment(options))
            self.program = [python, str(ROOT / file), *words, "--steps={}"]
        elif chosen.program:
            self.program = chosen.program
        else:
            self._kernels = {"PUMP_VIRTUAL_KERNELS": str(host_kernels())}
            self.program = [*train, "--no-hash", "--iterations={}"]
        self._settings = settings_of(chosen)
        self._work = work
        self._count = 0

    def live(self, steps: int, memory: str, *, record: bool = False) -> Live:
        """Runs the program once. Raises MeasurementError."""
        self._count += 1
        folder = self._work / str(self._count)
        folder.mkdir()
        events, report, trace = (folder / name for name in ("events", "report", "run.pump"))
        command = [self._pump_run, "--log-file", str(folder / "log"), "--virtual", PROFILE]
        command += ["--policy", self._chosen.policy]
        for key, value in {"mode": "timing", **self._settings, "memory": memory}.items():
            command += ["--virtual-set", f"{key}={value}"]
        if record:
            command += ["--record", str(trace)]
        program = [word.replace("{}", str(steps)) for word in self.program]
        files = {"PUMP_VIRTUAL_EVENTS": str(events), "PUMP_VIRTUAL_REPORT": str(report)}
        sampler = Sampler(folder)
        with sampler.sampling():
            child([*command, "--", *program], {**self._kernels, **files}, SECONDS_MAX)
        expected = None
        try:
            if record:
                from pump.trace.reader import Reader

                with written(trace).open("rb") as stream:
                    expected = touched.read_extents(Reader(stream).records())
            with events.open() as lines:
                path = follow(gpu_events.read(lines), expected)
        except (OSError, ValueError) as error:
            raise MeasurementError(str(error)) from None
        driver = json.loads(report.read_text())
        if driver["violations"]:
            raise MeasurementError(f"the virtual driver saw {driver['violations_by_check']}")
        path.counters = {key: driver["counters"][key] for key in COUNTERS}
        return Live(path, grouped(sampler.between(0.0, float("inf"))), trace)

    def simulated(self, trace: File, memory_bytes: int, host_scale: float) -> Path:
        """Simulates a recording; returns seconds by part and counters; other sums are 0. Held
        kernels count as idle: the simulator has no gates."""
        from pump_lab import profiles
        from pump_lab.sim import named_policies, recording
        from pump_lab.sim.simulation import Machine

        program = recording.program(trace.read_bytes(), trace.name)
        program.steps["host_ns"] = (program.steps["host_ns"] * host_scale).astype("u8")
        profile = profiles.load(PROFILE).changed(
            {k: v for k, v in self._settings.items() if k not in profiles.DRIVER_KEYS}
        )
        machine = Machine(profile, memory_bytes)
        policy = named_policies.by_name(self._chosen.policy)
        outcome = named_policies.simulate(policy, program, machine).whole
        counters = outcome.counters
        kernels, faults, arrivals = (
            counters[key] / 1e9 for key in ("compute_busy_ns", "stall_fault_ns", "stall_arrival_ns")
        )
        idle = outcome.seconds - kernels - faults - arrivals
        found = Path(counters={key: counters[key] for key in COUNTERS})
        found.seconds |= {"kernels": kernels, "faults": faults, "arrivals": arrivals, "idle": idle}
        return found


def grouped(threads: Mapping[str, Times]) -> dict[str, Times]:
    """Returns the times of all threads, summed by group."""
    found: dict[str, Times] = {}
    for key, times in threads.items():
        name = key.rsplit(" ", 1)[-1]
        group = next((text for start, text in GROUPS.items() if name.startswith(start)), "program")
        if key.startswith(("pump-run", "pumpd")) and group == "program":
            group = "pump's other threads"
        found[group] = found.get(group, Times()).plus(times)
    return found


def between(runs: Sequence[Live]) -> Path:
    """Returns the difference of two runs: the longer minus the shorter."""
    return runs[1].path.less(runs[0].path)


def host_times(room: Path, recorded: Path) -> float:
    """Returns the factor for recorded host times, because the recorder slows the program down. It
    is the idle time without recording / with recording, or 1 if the GPU is rarely idle."""
    idle = recorded.seconds["idle"]
    if idle < IDLE_LEAST * recorded.total:
        return 1.0
    return min(1.0, max(HOST_LEAST, room.seconds["idle"] / idle))


def run(options: Options) -> Iterator[Row]:
    from pump.config.values import parse_size

    chosen = parse(options.rest)
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(options, chosen, File(work))
        room, recorded, live = [], [], []
        steps_of_runs = chosen.steps or ([2, 8] if options.quick else [8, 32])
        for steps in steps_of_runs:
            room.append(bench.live(steps, f"{ROOM_BYTES}"))
            recorded.append(bench.live(steps, f"{ROOM_BYTES}", record=True))
            live.append(bench.live(steps, chosen.memory, record=chosen.expect))
        found = {"room": between(room), "live": between(live)}
        host_scale = host_times(found["room"], between(recorded))
        for name, memory_bytes in (("sim", parse_size(chosen.memory)), ("sim_room", ROOM_BYTES)):
            two = [bench.simulated(run.trace, memory_bytes, host_scale) for run in recorded]
            found[name] = two[1].less(two[0])
        facts = {
            "host_scale": host_scale,
            **virtual_facts(PROFILE, "timing"),
            "program": bench.program,
            "steps": steps_of_runs,
            "policy": chosen.policy,
            "memory": chosen.memory,
            "scale": chosen.scale,
            "settings": chosen.virtual_set,
        }
        yield from rows(found, live[1], facts)


def rows(found: Mapping[str, Path], longer: Live, facts: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the rows of a program. `longer`: the longer live run."""
    live, simulated = found["live"], found["sim"]
    yield Row(
        "path.seconds", live.total, "s", simulated.total, ratio=live.total / simulated.total,
        room_s=found["room"].total, simulated_room_s=found["sim_room"].total, **facts,
    )  # fmt: skip
    for part, seconds in live.seconds.items():
        yield Row("path.time", seconds, "s", simulated.seconds[part], case=part, **facts)
    for name, count in live.counters.items():
        baseline = simulated.counters[name]
        ratio = count / baseline if baseline else None
        unit = name.rsplit("_", 1)[-1]
        yield Row("path.counters", count, unit, baseline, case=name, ratio=ratio, **facts)
    for cause, blocks in live.blocks.items():
        yield Row("path.faults", blocks, "blocks", case=cause, wait_s=live.waits[cause], **facts)
    for fate, moved_bytes in live.moved.items():
        yield Row("path.moved", moved_bytes, "bytes", case=fate, **facts)
    moved = longer.path.moved
    gib = (sum(moved.values()) - moved["there already"] + longer.path.evicted_bytes) / GIB
    for group, times in sorted(longer.threads.items()):
        yield Row(
            "path.processor", times.ran_s, "s", case=group, delay_s=times.delay_s,
            per_gib=times.ran_s / gib if gib else None, **facts,
        )  # fmt: skip
