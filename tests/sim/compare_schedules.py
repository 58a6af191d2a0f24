"""Compares the schedules of simulated programs with schedules that are made block by block.

Not a test: test_sim_schedule_rule.py runs this file in a process of its own, with a pump_core that
hands over each schedule (made_schedules.c). The comparison ends at the first schedule that differs.
Otherwise it prints, as JSON, how often each case of the rule occurred.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from schedule_by_blocks import Block, Bounds, Device, Operation, Schedule, Use, Wait
from sim_programs import MS, machine, made, made_up, whole

from pump.base import paths
from pump.model.bounds import BLOCK_BYTES
from pump.policy.scheduled import Planned, Window
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program
from pump_lab.sim.simulation import Machine, run

DUE = {-1: "", 0: "there", 1: "maybe evicted", 2: "away"}
ROW = ctypes.POINTER(ctypes.c_int64)
HANDED = ctypes.CFUNCTYPE(None, ROW, ROW, ROW, ROW, ROW)

happened: Counter[str] = Counter()
differs: list[str] = []


def table(rows: Any, count: int, width: int) -> list[list[int]]:
    if count == 0:
        return []
    return np.ctypeslib.as_array(rows, (count, width)).tolist()  # type: ignore[no-any-return]


def compare(head: Any, ops: Any, uses: Any, idle: Any, entries: Any) -> None:
    """Compares a schedule with the one made block by block; made_schedules.c fills the columns."""
    if differs:
        return
    known, op_count, use_count, idle_count, count, budget, *counts = head[:11]
    discarding_seq, discard_stream, left, leaving, ended, to_gpu, to_host, short = head[11:19]
    idle_blocks = [
        Block(b, slot, size, clean=clean != 0)
        for b, slot, size, clean in table(idle, idle_count, 4)
    ]
    discarded = Wait(discarding_seq, discard_stream)
    device = Device(budget, *counts, idle_blocks, discarded, discard_stream, left, leaving, ended)
    rows = iter(table(uses, use_count, 7))
    operations = []
    for seq, stream, of_op, anew, frees, larger, predicted in table(ops, op_count, 7):
        found = [next(rows) for _ in range(of_op)]
        used = [
            Use(Block(b, slot, size, stays != 0, clean != 0), DUE[due], again)
            for b, due, again, slot, size, stays, clean in found
        ]
        flags = larger != 0, predicted != 0
        operations.append(Operation(seq, used, stream, anew, frees, *flags))
    schedule = Schedule(device, operations, known, Bounds(slices=(to_gpu, to_host)))
    right = [
        [way, one.first, one.blocks, one.slot, one.need, *astuple(one.wait)]
        for way, listed in enumerate((schedule.arrivals, schedule.departures))
        for one in listed
    ]
    made = table(entries, count, 9)
    note(schedule, made)
    happened["bytes"] += any(row[7] % BLOCK_BYTES for row in made)
    happened["bytes ended"] += any(row[8] % BLOCK_BYTES for row in made)
    if made != right or schedule.short_of_ops != (short != 0):
        at = next(
            (i for i, pair in enumerate(zip(made, right, strict=False)) if pair[0] != pair[1]), -1
        )
        differs.append(
            f"entry {at} of {len(made)}: {made[at : at + 1]}, expected {right[at : at + 1]}"
        )


def paced_first(schedule: Schedule) -> bool:
    """Returns whether paced departures come before one without a pace. That happens if the list of
    arrivals is full, or if an arrival waits for an operation."""
    paces = [one.wait.ended_bytes for one in schedule.departures]
    return bool(paces) and paces[0] > 0 and paces[-1] == 0


def note(schedule: Schedule, made: list[list[int]]) -> None:
    device, coming, going = schedule.device, schedule.coming, schedule.going
    happened["schedules"] += 1
    happened["entries"] += len(made)
    happened["blocks"] += sum(row[2] for row in made)
    occupied = device.there + device.arriving + device.leaving + device.discarding
    last = schedule.operations[schedule.at] if schedule.operations else None
    for name, is_so in (
        ("no more entries", 0 in (coming.entries_left, going.entries_left)),
        ("no more arrivals", coming.blocks_left == 0),
        ("no more departures", going.blocks_left == 0),
        ("no more wait", schedule.waiting == schedule.bounds.waiting),
        ("above the budget", occupied - device.leaving > device.budget),
        ("larger", last is not None and last.larger and last.seq < schedule.horizon),
        ("horizon", last is not None and last.seq >= schedule.horizon),
        (
            "maybe evicted",
            any(use.due == "maybe evicted" for op in schedule.operations for use in op.uses),
        ),
        ("anew", any(op.anew for op in schedule.operations)),
        ("ends with the known operations", schedule.short_of_ops),
        ("arrival waits for a discard", any(row[0] == 0 and row[5] > 0 for row in made)),
        ("departure waits", any(row[0] == 1 and row[5] > 0 for row in made)),
        ("paced", any(row[8] > device.ended_bytes for row in made)),
        ("not paced behind", paced_first(schedule)),
        ("leaving", device.leaving > 0),
        ("discarding", device.discarding > 0),
        ("some stay", len(schedule.staying) > 0),
        ("streams", len({op.stream for op in schedule.operations}) > 1),
    ):
        happened[name] += is_so


def scattered(seed: int) -> tuple[Program, Machine]:
    """Returns a sweep through ranges of one block each: each block is an entry of its own."""
    order = random.Random(seed).sample(range(1200), 1200)
    builder = Builder()
    for first in [*range(0, 1200, 40)] * 3:
        uses = [whole(index, 1) for index in order[first : first + 40]]
        builder.operation(form.KERNEL, uses, duration_ns=MS, host_ns=4000)
    return made(builder, [1] * 1200), machine(700)


def written_in_part() -> tuple[Program, Machine]:
    """Returns a sweep through ranges that are only read, each with a small written range."""
    builder = Builder()
    for _ in range(12):
        for index in range(0, 40, 2):
            uses = [whole(index, 24, form.READ), whole(index + 1, 1)]
            builder.operation(form.KERNEL, uses, duration_ns=MS, host_ns=4000)
        builder.sync()
    return made(builder, [24, 1] * 20), replace(machine(460), duplicates=True)


def programs(seeds: int) -> Iterator[tuple[str, Program, Machine]]:
    for seed in range(seeds):
        for scale in (1, 12):
            program, gpu = made_up(seed, scale)
            if seed % 3 == 0:  # makes more operations larger than the memory
                gpu = replace(gpu, memory_bytes=max(16 * BLOCK_BYTES, gpu.memory_bytes // 3))
            yield f"seed {seed}, {scale}x blocks", program, replace(gpu, duplicates=seed % 2 > 0)
    yield "scattered", *scattered(seeds)
    yield "written in part", *written_in_part()


def simulate(seeds: int) -> None:
    for name, program, gpu in programs(seeds):
        for policy in (Window(), Planned()):
            run(program, gpu, policy)
            if differs:
                sys.exit(f"{name}, schedule {happened['schedules']}: {differs[0]}")


def main() -> None:
    core = ctypes.CDLL(paths.library("libpump_core.so"))
    handed = HANDED(compare)
    core.on_schedules(handed, ctypes.c_int64(int(sys.argv[1])))
    simulate(int(sys.argv[2]))
    print(json.dumps(happened))


main()
