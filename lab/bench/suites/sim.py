"""The simulator against a study and against the virtual GPU, and its own speed.

DESIGN
  `sim.study.*`              Geometric mean of slow-downs over traces, at 1.1, 1.5, 2 and 4 times
                             the memory. It has the constants of a coarse study of the same traces
                             (STUDY) and its address mapping. `study`: that study's value over ten
                             traces; `ratio` to it is meaningful only for those ten (-- --traces
                             FOLDER). `naive_serial`: each evicted block is written back wholly
                             before its successor arrives, as the study assumed. Unified Memory
                             overlaps both on a two-way link. `window50_again`: each tick prefetches
                             blocks again that the driver evicted too early. Bounds count Belady's
                             bytes. In `bound_keeping`, contents that are never read again move like
                             others; `bound_dead_known` does not move them. In `bound_touched` they
                             leave like others and need not return, as the mean of both directions
                             (sim_bound.py).
  `sim.planned.*`            The planned policy: see sim_planned.py.
  `sim.unseen.*`             The same rows for networks that no policy was tuned for
                             (sim_unseen.py). On request: -- --only unseen.
  `sim.kinds.*`              Trainings with different steps (sim_changes.py). On request: -- --only
                             kinds.
  `sim.reserve.*`            Cost and benefit of the memory that pump leaves to others
                             (sim_reserve.py). On request: -- --only reserve.
  `sim.duplicates.*`         Evictions without a copy, when blocks are duplicated on trial
                             (sim_duplicates.py). On request: -- --only duplicates.
  `sim.inference.*`, `sim.lora.*`, `sim.experts.*`   Recordings of these (workloads/simulated.py).
                                                     On request: -- --only workloads.
  `sim.wakes.*`              Random delays of wake-ups against constant ones (sim_latency.py). On
                             request: -- --only wakes.
  `sim.agrees.*`             Seconds of a program of examples/ on the virtual GPU / simulated from
                             its recording with enough memory. The best of the pairs: the simulator
                             does not know other load on the machine.
  `sim.jitter.fixed_over_event`   Time in a fixed order of transfers / event-driven, if each kernel
                                  and transfer takes up to 25 % more or less. The mean over seeds,
                                  and the least. `fixed_each_way`: an order for each direction of
                                  the link, which is less strict. `fixed_as_issued`: evictions wait
                                  until as much was issued as in the rehearsal.
  `sim.jitter.event_over_calm`    Event-driven with jitter / without; sim_jitter.py.
  `sim.latency.*`            Cost of the path through the worker: sim_latency.py.
  `sim.train.*`              The training of the quickstart against its floor of parts:
                             sim_train.py.
  `sim.us_per_operation`     The simulator's own CPU time, by trace, policy and oversubscription.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Collection, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import (
    ROOT,
    MeasurementError,
    Options,
    Row,
    UnavailableError,
    child,
    host_kernels,
)
from study import (
    sim_changes,
    sim_jitter,
    sim_latency,
    sim_planned,
    sim_reserve,
    sim_train,
    sim_unseen,
)

if TYPE_CHECKING:
    from suites.virtual import Program as Example

    from pump.policy.base import Policy
    from pump_lab.profiles import Profile
    from pump_lab.sim.program import Program
    from pump_lab.sim.tensors import TensorTrace

PROFILE = "a100-pcie4"
DATA = ROOT / "lab" / "bench" / "data" / "g10"
RATIOS = (1.1, 1.5, 2.0, 4.0)
STUDY_QUEUE = 1000
RUNS_MOST = 5

# Device constants of the study. Its 10 us for a block that a fault populates are 8 us for the block
# and 2 us for zeroing. With data, both together move 2 MiB at 11.5 GB/s.
STUDY = {
    "link.prefetch_h2d_gbps": "23",
    "link.copy_h2d_gbps": "23",
    "link.copy_d2h_gbps": "23",
    "link.duplex_in": "0.85",
    "link.duplex_out": "0.85",
    "uvm.populate_gbps": "1048.576",
    "uvm.fault_block_us": "8",
    **dict.fromkeys(
        (
            *("uvm.fault_base_us", "uvm.fault_replay_us", "uvm.fault_page_us", "uvm.evict_us"),
            *(
                "uvm.cpu_pte_us",
                "uvm.cpu_unmap_us",
                "uvm.cpu_unmap_page_us",
                "uvm.fault_wake_us",
                "uvm.host_alloc_us",
            ),
            *("uvm.prefetch_call_us", "uvm.prefetch_block_us", "kernels.launch_us"),
            *("uvm.discard_call_us", "uvm.discard_block_us"),
        ),
        "0",
    ),
}
SERIAL = {
    "uvm.evict_us": "91.18",
    "link.copy_d2h_gbps": "100000",
    "link.duplex_in": "1",
    "link.duplex_out": "1",
}

FOUND = {
    "naive": (4.46, 4.46, 4.68, 6.63),
    "naive_serial": (4.46, 4.46, 4.68, 6.63),
    "naive_discard": (1.75, 2.86, 3.53, 4.67),
    "window50": (2.03, 1.93, 2.02, 2.57),
    "window50_again": (2.03, 1.93, 2.02, 2.57),
    "window1000": (2.22, 2.37, 4.35, 5.61),
    "bound_touched": (1.00, 1.03, 1.16, 1.51),
    "bound_keeping": (1.00, 1.03, 1.16, 1.51),
    "bound_dead_known": (1.00, 1.03, 1.16, 1.51),
}
"""The study's results, by row and ratio."""


PARTS = "study", "planned", "jitter", "latency", "agrees", "speed"
MORE = "unseen", "reserve", "kinds", "wakes", "duplicates", "workloads"
"""Only on request: they take minutes."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench sim --")
    parser.add_argument("--only", action="append", choices=(*PARTS, *MORE))
    parser.add_argument("--traces", type=Path, default=DATA, metavar="FOLDER")
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    chosen = parse(options.rest)
    parts = chosen.only or PARTS
    if "study" in parts:
        yield from study(chosen.traces, quick=options.quick)
    if "planned" in parts:
        yield from planned(traces(chosen.traces), "planned", quick=options.quick)
    if "unseen" in parts:
        for family in sim_unseen.FAMILIES:
            yield from planned(sim_unseen.traces(family), f"unseen.{family}", quick=options.quick)
    if "agrees" in parts:
        yield from agreement(options)
    if "jitter" in parts:
        found = traces(chosen.traces)
        yield from sim_jitter.rows(found[:1] if options.quick else found, STUDY, options)
    if "reserve" in parts:
        from pump_lab import profiles

        yield from sim_reserve.rows(traces(chosen.traces), profiles.load(PROFILE), RATIOS)
    if "kinds" in parts:
        from pump_lab import profiles

        yield from sim_changes.rows(profiles.load(PROFILE))
    if "workloads" in parts:
        from workloads import simulated

        yield from simulated.rows()
    if "duplicates" in parts:
        from study import sim_duplicates

        from pump_lab import profiles

        yield from sim_duplicates.rows(traces(chosen.traces), profiles.load(PROFILE))
    yield from delays(parts, quick=options.quick)
    if "speed" in parts:
        yield from speed(traces(chosen.traces), quick=options.quick)


def delays(parts: Collection[str], *, quick: bool) -> Iterator[Row]:
    """Yields the rows of latency and wakes, on the traces of the repository."""
    for part, rows in (("latency", sim_latency.rows), ("wakes", sim_latency.wakes)):
        if part in parts:
            yield from rows(traces(DATA)[: 1 if quick else None], quick=quick)


# ---- the study -------------------------------------------------------------------


def traces(folder: Path) -> list[TensorTrace]:
    """Returns the traces with marginal durations. Raises UnavailableError if there are none."""
    from pump_lab.sim import tensors

    files = sorted(folder.glob("*_marginal.json.*"))
    if not files:
        raise UnavailableError(f"no *_marginal.json.* in {folder}")
    return [tensors.parse(file.read_bytes(), file.name) for file in files]


def study(folder: Path, quick: bool) -> Iterator[Row]:
    found = traces(folder)[:1] if quick else traces(folder)
    ratios = RATIOS[1:2] if quick else RATIOS
    logs: dict[tuple[str, float], float] = {}
    for trace in found:
        for ratio in ratios:
            for name, slowdown in slowdowns(trace, ratio).items():
                key = name, ratio
                logs[key] = logs.get(key, 0.0) + math.log(slowdown) / len(found)
    for (name, ratio), mean in logs.items():
        theirs = FOUND[name][RATIOS.index(ratio)]
        facts = {"traces": len(found), "simulated": True, "profile_settings": STUDY}
        value = math.exp(mean)
        yield Row(
            f"sim.study.{name}",
            value,
            "x",
            "study",
            oversubscription=ratio,
            study=theirs,
            ratio=value / theirs,
            **facts,
        )


def slowdowns(trace: TensorTrace, ratio: float) -> dict[str, float]:
    """Returns slow-downs by row of FOUND: the third iteration / only its kernels."""
    from study.baselines import Soonest, Unbounded

    from pump_lab import profiles
    from pump_lab.sim import tensors
    from pump_lab.sim.simulation import Machine, run

    profile = profiles.load(PROFILE).changed(STUDY)
    plain = tensors.program(trace, "caching")
    discarding = tensors.program(trace, "caching", discard=True, kernels_free=0)
    compute = plain.compute_seconds / tensors.ITERATIONS
    memory_bytes = int(plain.peak_bytes / ratio)

    def alone(program: Program, profile: Profile) -> float:
        machine = Machine(profile, memory_bytes, STUDY_QUEUE)
        return run(program, machine).steady.seconds / compute

    def ahead(launches: int, policy: Policy) -> float:
        machine = Machine(profile, memory_bytes, launches, reserve_percent=0)
        return run(plain, machine, policy).steady.seconds / compute

    return {
        "naive": alone(plain, profile),
        "naive_serial": alone(plain, profile.changed(SERIAL)),
        "naive_discard": alone(discarding, profile),
        "window50": ahead(50, Unbounded(plain)),
        "window50_again": ahead(50, Soonest()),
        "window1000": ahead(1000, Unbounded(plain)),
        "bound_touched": bound_touched(plain, memory_bytes, compute),
        "bound_keeping": bound(plain, memory_bytes, compute, keeping=True),
        "bound_dead_known": bound(plain, memory_bytes, compute, keeping=False),
    }


def bound(program: Program, memory_bytes: int, compute_seconds: float, *, keeping: bool) -> float:
    """Returns max(compute, Belady's bytes / bandwidth) / compute. `keeping`: dead memory moves."""
    from pump_lab.floor import Touch, floor_seconds, least_traffic
    from pump_lab.sim.named_policies import iteration_steps
    from pump_lab.sim.touches import touches

    used = touches(program, len(program.steps) - iteration_steps(program))
    if keeping:
        used = [Touch((), (*t.reads, *t.updates, *t.overwrites), ()) for t in used]
    least = least_traffic(used, 2, memory_bytes)
    return floor_seconds(2 * compute_seconds, least, 23e9) / (2 * compute_seconds)


def planned(found: list[TensorTrace], group: str, quick: bool) -> Iterator[Row]:
    from pump_lab import profiles

    profile = profiles.load(PROFILE).changed(STUDY)
    ratios = RATIOS
    if quick:
        found, ratios = found[:1], RATIOS[1:2]
    yield from sim_planned.rows(found, ratios, profile, settings=STUDY, serial=SERIAL, group=group)


def bound_touched(program: Program, memory_bytes: int, compute_seconds: float) -> float:
    """Returns the same for evictions by next touch, with the mean of both directions' bytes."""
    from study import sim_bound

    from pump.model.bounds import BLOCK_BYTES
    from pump_lab.sim.named_policies import iteration_steps
    from pump_lab.sim.touches import touches

    used = touches(program, len(program.steps) - iteration_steps(program))
    ways = sim_bound.by_next_touch(used, memory_bytes // BLOCK_BYTES)
    return max(1.0, sum(ways) / 2 * BLOCK_BYTES / 23e9 / compute_seconds)


# ---- the virtual GPU -----------------------------------------------------------------


def agreement(options: Options) -> Iterator[Row]:
    from suites import virtual

    kernels = host_kernels()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        runs = min(options.pairs, RUNS_MOST)
        bench = virtual.Bench(options, PROFILE, kernels, folder)
        for example in (virtual.sweeping(options.quick), virtual.training(options.quick)):
            recording = record(options, example, kernels, folder)
            for ratio in (1.5,) if options.quick else virtual.quickstart.RATIOS:
                for policy in ("naive", "window"):
                    yield agrees(bench, example, recording, ratio, policy, runs=runs)
                if example.name == "train":
                    trained = virtual.trained(options.quick)
                    yield from sim_train.rows(recording, trained, PROFILE, ratio, timed_seconds)


def record(options: Options, example: Example, kernels: Path, folder: Path) -> Path:
    """Records the example on a GPU that holds all of it."""
    file = folder / f"{example.name}.trace"
    command = [options.tools.pump_run, "--record", str(file), "--virtual", PROFILE]
    settings = {"mode": "timing", "memory": "12GiB", **example.settings}
    for key, value in settings.items():
        command += ["--virtual-set", f"{key}={value}"]
    script = str(ROOT / "examples" / example.words[0])
    command += ["--", options.tools.python, script, *example.words[1:], "--no-hash"]
    child(command, {"PUMP_VIRTUAL_KERNELS": str(kernels)})
    return written(file)


def written(file: Path) -> Path:
    """Returns the recording of an ended job. Raises MeasurementError if it is not written."""
    from pump.trace.info import opened

    for _ in range(100):  # its writer ends a moment later
        if file.exists():
            with opened(str(file)) as (stream, being_written):
                if not being_written and stream.read(1):
                    return file
        time.sleep(0.1)
    raise MeasurementError(f"the recording {file.name} was not written")


def agrees(
    bench: Any, example: Example, recording: Path, ratio: float, policy: str, *, runs: int
) -> Row:
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.sim import recording as reading
    from pump_lab.sim.simulation import Machine

    virtual = min(bench.run(example, policy, ratio).seconds for _ in range(runs))
    program = reading.program(recording.read_bytes(), recording.name)
    profile = profiles.load(PROFILE).changed(example.settings)
    machine = Machine(profile, example.memory_bytes(ratio))
    outcome = studied_policies.simulate(studied_policies.by_name(policy), program, machine)
    simulated = timed_seconds(outcome.syncs_seconds)
    return Row(
        f"sim.agrees.{example.name}.{policy}",
        virtual / simulated,
        "x",
        "simulated",
        oversubscription=ratio,
        virtual_seconds=virtual,
        simulated_seconds=simulated,
        mode="timing",
        profile=profile.name,
        profile_hash=profile.hash(),
    )


def timed_seconds(syncs_seconds: list[float]) -> float:
    """Returns the longest time between two waits: the timed iterations of an example."""
    return max(b - a for a, b in pairwise(syncs_seconds))


# ---- its own speed ---------------------------------------------------------------------

SPEEDS = "naive", "window", "window+discard", "planned", "planned+discard"


def speed(found: list[TensorTrace], quick: bool) -> Iterator[Row]:
    from study import studied_policies

    from pump_lab import profiles
    from pump_lab.sim import tensors
    from pump_lab.sim.simulation import Machine

    for trace, name, ratio in product(found[: 1 if quick else None], SPEEDS, (1.5, 2.0)):
        candidate = studied_policies.by_name(name)
        program = tensors.program(trace, "caching", 1 if quick else 3, discard=candidate.discard)
        machine = Machine(profiles.load(PROFILE), int(program.peak_bytes / ratio))
        began = time.process_time()
        outcome = studied_policies.simulate(candidate, program, machine)
        spent = time.process_time() - began
        yield Row(
            "sim.us_per_operation",
            spent / outcome.operations * 1e6,
            "us",
            case=name,
            trace=trace.name,
            oversubscription=ratio,
            peak_bytes=program.peak_bytes,
            ticks_per_operation=outcome.ticks / outcome.operations,
            schedules_per_operation=outcome.schedules / outcome.operations,
        )
