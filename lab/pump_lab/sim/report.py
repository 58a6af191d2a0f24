"""The numbers of simulations, for JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from pump.model.bounds import BLOCK_BYTES, RESERVE_PERCENT, without_reserve
from pump.report.words import percent, size
from pump_lab.floor import Floor, Rates, floor_of, least_traffic, lp_floor
from pump_lab.sim.host import Host
from pump_lab.sim.named_policies import NAMED_POLICIES, NamedPolicy, iteration_steps, simulate
from pump_lab.sim.program import COPY_LOCAL, KERNEL, MEMSET, Program, ProgramError, Table
from pump_lab.sim.simulation import Machine, Outcome, Stretch, run
from pump_lab.sim.touches import touches

GIB: Final = 1 << 30
FLOOR_REPEATS: Final = 2
MIGRATION_THREADS: Final = 6
"""At most two to the GPU and four to the host: executors.h."""

HOST_BOUND: Final = 1.1
"""The report names the program's own thread as the bottleneck from this multiple of kernel time."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A program and a machine. `discarding`: the program with discards, if they are known."""

    program: Program
    machine: Machine
    discarding: Program | None = None

    def of(self, candidate: NamedPolicy) -> Program | None:
        """Returns the program that the candidate runs; None if it needs discards that are unknown.
        If everything fits, pump is dormant and discards nothing."""
        if not candidate.discard or self.discarding is None:
            return self.discarding if candidate.discard else self.program
        room = without_reserve(self.machine.memory_bytes, self.machine.reserve_percent)
        return self.program if self.program.peak_bytes <= room else self.discarding

    def with_memory(self, memory_bytes: int) -> Case:
        """Returns the case on a GPU with `memory_bytes`."""
        return replace(self, machine=replace(self.machine, memory_bytes=memory_bytes))


def with_reserve(budget_bytes: int, percent: float = RESERVE_PERCENT) -> int:
    """Inverts `without_reserve`: returns whole blocks of bytes that leave at least this budget."""
    memory_bytes = int(budget_bytes / (100 - percent) * 100) // BLOCK_BYTES * BLOCK_BYTES
    while without_reserve(memory_bytes, percent) < budget_bytes:
        memory_bytes += BLOCK_BYTES
    return memory_bytes


def unlimited(case: Case) -> Outcome:
    """Simulates the program without pump on a GPU that holds all of its memory: no page moves, and
    first touches do not fault either. Raises ProgramError if the operations take no time."""
    steps = case.program.steps.copy()
    steps["uses"] = 0
    memory_bytes = (case.program.blocks + 64) * BLOCK_BYTES
    whole = replace(case.program, steps=steps)
    outcome = run(whole, replace(case.machine, memory_bytes=memory_bytes))
    if outcome.steady.seconds <= 0:
        raise ProgramError(
            f"{case.program.name}: its operations take no time, so nothing can be compared; "
            "record a longer run"
        )
    return outcome


def _measured(case: Case) -> tuple[Program, int]:
    """Returns the program, with discards if they are known, and the first measured step."""
    program = case.discarding or case.program
    return program, len(program.steps) - iteration_steps(program)


def floor_of_parts(case: Case, least: Floor | None = None) -> float | None:
    """Returns the seconds of an iteration that any policy needs if the operations keep their order
    (pump_lab.floor.lp_floor): at least the floor. None for a recording, which does not show its
    iterations, and without scipy.

    least: the floor, if the caller has it."""
    program, first = _measured(case)
    if "iterations" not in program.facts or not lp_floor.available():
        return None
    steps = program.steps[first:]
    rates = Rates.of(case.machine.profile.values, MIGRATION_THREADS)
    durations_ns = steps["duration_ns"][steps["seq"] > 0].tolist()
    used, memory_bytes = touches(program, first), case.machine.memory_bytes
    duplicates = case.machine.duplicates
    of_parts = lp_floor.least_seconds(
        used,
        durations_ns,
        memory_bytes,
        rates,
        duplicates=duplicates,
        flash=flash_of(case.machine.host),
    )
    return max((least or floor(case)).seconds, of_parts)


def flash_of(host: Host | None) -> lp_floor.Flash | None:
    """Returns the flash of a host, for the floor; None if it has none."""
    if host is None or host.flash_gbps is None:
        return None
    read, write = host.flash_gbps
    return lp_floor.Flash(host.memory_bytes, read, write, host.write_budget_gbps or math.inf)


def busy_seconds(steps: Table) -> float:
    """Returns the seconds of work that cannot run concurrently, the maximum of: all kernels, all
    copies and memsets inside the GPU, all operations of one stream. These three may overlap."""
    steps = steps[steps["seq"] > 0]
    durations_ns = steps["duration_ns"].astype(np.float64)
    kernels = steps["kind"] == KERNEL
    inside = np.isin(steps["kind"], (COPY_LOCAL, MEMSET))
    by_stream = np.bincount(steps["stream"], durations_ns, minlength=1)
    sums = durations_ns[kernels].sum(), durations_ns[inside].sum(), by_stream.max()
    return float(max(sums)) / 1e9


def largest_bytes(case: Case) -> int:
    """Returns the most bytes that one operation uses, in whole blocks."""
    program, first = _measured(case)
    used = (len({*t.reads, *t.updates, *t.overwrites}) for t in touches(program, first))
    return max(used, default=0) * BLOCK_BYTES


def floor(case: Case) -> Floor:
    """Returns the floor of the steady iteration of a replay, or of a recording after its start."""
    program, first = _measured(case)
    used = touches(program, first)
    repeats = FLOOR_REPEATS if "iterations" in program.facts else 1
    traffic = least_traffic(used, repeats, case.machine.memory_bytes)
    if case.machine.duplicates:  # how much of the evicted data must be copied is unknown
        traffic = replace(traffic, first_bytes=traffic.h2d_bytes)
    compute = busy_seconds(program.steps[first:])
    rates = Rates.of(case.machine.profile.values, MIGRATION_THREADS)
    found = floor_of(compute * repeats, traffic, rates)
    return Floor(found.compute / repeats, found.link / repeats, found.cpu / repeats)


def figures(
    outcome: Outcome, unlimited_seconds: float, least: Floor, of_parts: float | None
) -> Figures:
    """Returns one candidate's numbers; times are in seconds. `of_parts`: from `floor_of_parts`."""
    part: Stretch = outcome.steady
    counters = part.counters
    return {
        "policy": outcome.policy,
        "seconds": part.seconds,
        "slowdown": part.seconds / unlimited_seconds,
        "of_floor": least.seconds / part.seconds,
        "of_parts": None if of_parts is None else of_parts / part.seconds,
        "h2d_bytes": part.h2d_bytes,
        "d2h_bytes": part.d2h_bytes,
        "faults": counters["fault_pages"],
        "fault_batches": counters["fault_batches"],
        "stall_seconds": {
            "fault": counters["stall_fault_ns"] / 1e9,
            "late_arrival": counters["stall_arrival_ns"] / 1e9,
            "copy": counters["copy_stall_ns"] / 1e9,
        },
        "dropped_bytes": counters["dropped_bytes"],
        "clean_bytes": counters["clean_bytes"],
        "flash_read_bytes": counters["flash_read_bytes"],
        "flash_write_bytes": counters["flash_write_bytes"],
        "whole_run": {
            "seconds": outcome.whole.seconds,
            "operations": outcome.operations,
            "ticks": outcome.ticks,
            "launch_queue_wait_seconds": outcome.queue_wait_seconds,
            "synchronisation_wait_seconds": outcome.sync_wait_seconds,
            "driver_seconds_to_gpu": outcome.mover_seconds[0],
            "driver_seconds_to_host": outcome.mover_seconds[1],
            "refused_commands": outcome.refused,
            "block_uses": outcome.tally,
            "scheduled_bytes": outcome.scheduled_bytes,
            "schedules_dropped": outcome.schedules_dropped,
            "predicted": None if outcome.predicted is None else asdict(outcome.predicted),
        },
    }


def able(
    case: Case, candidates: Sequence[NamedPolicy]
) -> tuple[list[tuple[NamedPolicy, Program]], list[str]]:
    """Returns the candidates that can run, each with its program, and the names of the others.

    Raises ProgramError if none can run.
    """
    runs, left_out = [], []
    for candidate in candidates:
        program = case.of(candidate)
        if program is None:
            left_out.append(candidate.name)
        else:
            runs.append((candidate, program))
    if not runs:
        names = ", ".join(left_out)
        raise ProgramError(
            f"{case.program.name}: {names} needs to know which memory is dead; only "
            "JSON traces contain this"
        )
    return runs, left_out


def compared(case: Case, candidates: Sequence[NamedPolicy]) -> Figures:
    """Simulates all candidates on one case; `left_out` names the ones that cannot run."""
    base, least = unlimited(case), floor(case)
    of_parts = floor_of_parts(case, least)
    seconds = base.steady.seconds
    runs, left_out = able(case, candidates)
    rows = []
    for candidate, program in runs:
        outcome = simulate(candidate, program, case.machine)
        rows.append({**figures(outcome, seconds, least, of_parts), "text": candidate.text})
    return {
        **about(case),
        **as_recorded(case),
        "unlimited_seconds": seconds,
        "floor": {
            "seconds": least.seconds,
            "compute_seconds": least.compute,
            "link_seconds": least.link,
            "cpu_seconds": least.cpu,
        },
        "floor_of_parts_seconds": of_parts,
        "largest_operation_bytes": largest_bytes(case),
        "policies": rows,
        "left_out": left_out,
    }


def about(case: Case) -> Figures:
    """Returns facts of the program and the machine, which are part of all results."""
    program, machine = case.program, case.machine
    return {
        "trace": program.name,
        **program.facts,
        "simulated": True,
        "operations": program.operations,
        "peak_bytes": program.peak_bytes,
        "gpu_memory_bytes": machine.memory_bytes,
        "oversubscription": program.peak_bytes / machine.memory_bytes,
        "jitter": machine.jitter.share if machine.jitter else 0.0,
        "seed": machine.jitter.seed if machine.jitter else None,
        "wake_ups": machine.daemon.wake_ups.name if machine.daemon.wake_ups else None,
        "wake_ups_seed": machine.daemon.seed if machine.daemon.wake_ups else None,
        "queue_operations": machine.queue_operations,
        "duplicates": machine.duplicates,
        "host_memory_bytes": machine.host.memory_bytes if machine.host else None,
        "flash_gbps": machine.host.flash_gbps if machine.host else None,
        "flash_us": machine.host.flash_us if machine.host else None,
        "flash_writes_a_day_bytes": machine.host.writes_a_day if machine.host else None,
        "profile": machine.profile.name,
        "profile_hash": machine.profile.hash(),
    }


def as_recorded(case: Case) -> Figures:
    """Returns the seconds of a recording that was short of memory, simulated with the memory and
    the policy of its run; nothing for other programs. Compared with `recorded_seconds`, they show
    how well the simulation fits."""
    facts = case.program.facts
    name = "naive" if facts.get("recorded_policy") == "demand" else facts.get("recorded_policy")
    candidate = NAMED_POLICIES.get(str(name))
    if not facts.get("short_of_bytes") or not facts["recorded_seconds"] or candidate is None:
        return {}
    here = case.with_memory(with_reserve(facts["recorded_budget_bytes"]))
    return {"as_recorded_seconds": simulate(candidate, here.program, here.machine).steady.seconds}


# ---- text ------------------------------------------------------------------------

HEAD: Final = (
    *("policy", "time s", "slowdown", "floor", "parts", "to GPU", "to host", "faults"),
    "stalls: faults, late, copies (s)",
)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines: the first column is left-aligned, the others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def _cells(row: Figures) -> list[str]:
    stall = row["stall_seconds"]
    return [
        row["policy"],
        _seconds(row["seconds"]),
        f"{row['slowdown']:.2f}x",
        f"{row['of_floor']:.0%}",
        _share(row["of_parts"]),
        gib(row["h2d_bytes"]),
        gib(row["d2h_bytes"]),
        f"{row['faults']:,}",
        f"{stall['fault']:.3f} {stall['late_arrival']:.3f} {stall['copy']:.3f}",
    ]


def as_text(found: Figures) -> str:
    """Returns the numbers of `compared` as text: the result first."""
    least = found["floor"]
    lines = [
        *heading(found, _result(found)),
        *table([HEAD, *(_cells(row) for row in found["policies"])]),
        "",
        *settings(found),
        f"{'GPU memory':<12} {gib(found['gpu_memory_bytes'])}; the peak is "
        f"{found['oversubscription']:.2f}x this size",
        f"{'no paging':<12} {_seconds(found['unlimited_seconds'])} s; floor "
        f"{_seconds(least['seconds'])} s (compute {_seconds(least['compute_seconds'])}, link "
        f"{_seconds(least['link_seconds'])}, CPU {_seconds(least['cpu_seconds'])})",
        *_parts_line(found),
        *_notes(found),
    ]
    if found["flash_gbps"]:
        lines.append(
            f"{'flash':<12} below {gib(found['host_memory_bytes'])} of host memory"
            f"{_budget(found)}, read and written: "
            + ", ".join(
                f"{row['policy']} {gib(row['flash_read_bytes'])} {gib(row['flash_write_bytes'])}"
                for row in found["policies"]
            )
        )
    return "\n".join([*lines, *caveats(found)])


def _result(found: Figures) -> str:
    best = min(found["policies"], key=lambda row: float(row["seconds"]))
    fastest = "" if len(found["policies"]) == 1 else " is the fastest"
    return (
        f"{best['policy']}{fastest}: {best['slowdown']:.2f}x the time with enough memory "
        f"({_seconds(best['seconds'])} s instead of {_seconds(found['unlimited_seconds'])} s)"
    )


def _budget(found: Figures) -> str:
    a_day = found["flash_writes_a_day_bytes"]
    return "" if a_day is None else f" ({a_day / 1e12:g} TB a day)"


def _parts_line(found: Figures) -> list[str]:
    seconds = found["floor_of_parts_seconds"]
    if seconds is None and found.get("iterations") and not lp_floor.available():
        return ["parts        not known without scipy: pip install 'pump-cuda[simulate]'"]
    if seconds is None:
        return []
    return [
        f"{'parts':<12} {_seconds(seconds)} s: the floor with transfers in the operations' order"
    ]


def _notes(found: Figures) -> list[str]:
    """Returns lines that explain the numbers."""
    lines = []
    for row in found["policies"]:
        predicted = row["whole_run"]["predicted"]
        if predicted is not None:
            share = predicted["operations"] / found["operations"]
            lines.append(
                f"{row['policy']:<12} {percent(share)} of the operations predicted, predictions "
                f"dropped {predicted['lost']} times, final confidence {predicted['confidence']:.2f}"
            )
    seconds, least = found["unlimited_seconds"], found["floor"]["compute_seconds"]
    if seconds > HOST_BOUND * least:
        lines.append(
            f"Even with enough memory, the GPU works only {percent(least / seconds)} of the time. "
            "The rest is the program's own CPU time, which no policy changes."
        )
    if found["largest_operation_bytes"] > found["gpu_memory_bytes"]:
        largest = gib(found["largest_operation_bytes"])
        lines.append(f"One operation uses {largest}, more than the GPU has: it runs by faults.")
    return lines


def caveats(found: Figures) -> list[str]:
    """Returns lines about the limits of the numbers."""
    lines = []
    if found.get("events_lost"):
        lines.append(
            f"The recording lost {found['events_lost']:,} events: the numbers are too low."
        )
    if short_bytes := found.get("short_of_bytes"):
        lines.append(
            f"Recorded with {gib(short_bytes)} too little GPU memory: stalls may count as the "
            "program's own time, so slowdowns are too low. Record a run that fits."
        )
        if seconds := found.get("as_recorded_seconds"):
            lines.append(
                f"Simulated with the recording's memory and policy, it takes {_seconds(seconds)} "
                f"s; it took {_seconds(found['recorded_seconds'])} s."
            )
    if found.get("recorded_mode") == "compute":
        lines.append(
            "Recorded on a virtual GPU in compute mode: the times are CPU times, not GPU times. "
            "Record in timing mode."
        )
    if found.get("truncated"):
        lines.append("The recording is cut off: the numbers cover the part before that.")
    if found["left_out"]:
        names = ", ".join(found["left_out"])
        lines.append(f"Left out, because a recording lacks the data for them: {names}")
    return lines


def heading(found: Figures, result: str) -> list[str]:
    """Returns the result, and a line that names the simulated part."""
    part = found.get("simulated_part")
    what = (
        f"the recording {found['trace']}, {part}"
        if part
        else f"a steady iteration of {found['trace']}"
    )
    if found.get("iterations") == 1:
        what = (
            f"the only iteration of {found['trace']}, with its first touches (the floors are for "
            "a steady iteration)"
        )
    return [result, f"Simulated from {what}. Not a measurement.", ""]


def settings(found: Figures) -> list[str]:
    """Returns lines about the trace and the machine."""
    mapping = found.get("mapping")
    how = f", mapping {mapping}, iterations {found['iterations']}" if mapping else ""
    lines = [
        f"{'trace':<12} {found['trace']}: {found['operations']:,} operations, "
        f"peak {gib(found['peak_bytes'])}{how}",
        f"{'profile':<12} {found['profile']} {found['profile_hash']}",
    ]
    if found["jitter"]:
        lines.append(f"{'jitter':<12} {percent(found['jitter'])}, seed {found['seed']}")
    if found["duplicates"]:
        lines.append(f"{'duplicates':<12} clean blocks are evicted without a copy")
    if found["wake_ups"]:
        lines.append(f"{'wake-ups':<12} {found['wake_ups']}, seed {found['wake_ups_seed']}")
    return lines


def gib(length_bytes: float) -> str:
    """Returns bytes with two decimals, for the tables of this report."""
    return size(length_bytes, 2)


def _seconds(value: float) -> str:
    """Returns seconds rounded to 0.1 ms; short times to 1 us."""
    return f"{value:.4f}" if value >= 0.1 or value == 0 else f"{value:.6f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
