"""Simulates what discards in the order of the GPU would save on PyTorch's own addresses.

DESIGN
  A recording of pump has the operations that a program issued, with their times. On the same clock,
  allocator_probe.c logs when its allocator handed out and took back each block. When a 2 MiB block
  becomes empty, a discard is added to the recorded program after the last operation that was issued
  before. It is left out if an operation uses the block again too soon. The simulator runs discards
  in a separate stream, after that operation and before the next use, at the driver's price
  (docs/decisions/0042-discards.md). So this is the saving of a perfect mechanism. It knows at the
  free how long the memory stays free, and takes no time of the program's thread.

  There is a row for each size and each least stay, in parts of an iteration's operations.

    `transformer.ordered_discards.window`   Seconds without discards / with them. `operations`: the
                                            least stay. `discarded_bytes`. `h2d_bytes`, `d2h_bytes`,
                                            `faults`, each also with the prefix `without_`.

  All kernels together take the time that the virtual GPU counted, and each launch takes HOST_NS of
  the host. So the results do not depend on how busy the machine is.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness import Row
from study.dead_bytes import BLOCK_BYTES, Handed

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.deaths import Span
    from pump_lab.sim.program import Program
    from pump_lab.sim.simulation import Stretch

PARTS = (16, 8, 4, 2)
HOST_NS = 80_000
POLICY = "window"


def emptied(handed: Iterable[Handed]) -> list[tuple[int, int]]:
    """Returns when 2 MiB blocks became empty, and their addresses, in order of time."""
    lengths: dict[int, int] = {}
    live: dict[int, int] = {}
    found = []
    for one in sorted(handed, key=lambda one: one.time_ns):
        taken = one.length_bytes == 0
        length = lengths.pop(one.address, 0) if taken else one.length_bytes
        if not taken:
            lengths[one.address] = length
        first, end = one.address // BLOCK_BYTES, -(-(one.address + length) // BLOCK_BYTES)
        for block in range(first, end if length else first):
            live[block] = live.get(block, 0) + (-1 if taken else 1)
            if taken and live[block] == 0:
                found.append((one.time_ns, block * BLOCK_BYTES))
    return found


def by_operation(
    empty: Iterable[tuple[int, int]],
    issued_ns: Sequence[int],
    places: Sequence[tuple[int, int, int]],
) -> dict[int, list[Span]]:
    """Returns blocks by the last operation that was issued before they were empty.

    `issued_ns`: of all operations, ascending. `places`: (address, length_bytes, range) of ranges,
    in order of address.
    """
    found: dict[int, list[Span]] = {}
    begins = [begin for begin, _, _ in places]
    for time_ns, address in empty:
        operation = bisect.bisect_right(issued_ns, time_ns) - 1
        at = bisect.bisect_right(begins, address) - 1
        if operation < 0 or at < 0:
            continue
        begin, length_bytes, index = places[at]
        if address + BLOCK_BYTES <= begin + length_bytes:
            found.setdefault(operation, []).append((index, address - begin, BLOCK_BYTES))
    return found


def with_discards(program: Program, empty: Mapping[int, list[Span]], least: int) -> Program:
    """Returns the program with a discard after each operation of `empty`. It covers the blocks that
    no operation uses for more than `least` operations."""
    import numpy as np

    from pump_lab.sim import deaths
    from pump_lab.sim import program as form

    steps, uses = program.steps, program.uses
    numbers = np.flatnonzero(steps["seq"])
    spans = uses[["range", "offset_bytes", "length_bytes"]].tolist()
    used = [spans[step["first_use"] :][: step["uses"]] for step in steps[numbers]]
    firsts = program.ranges["first_block"].tolist()
    stays = deaths.lasting(used, empty, firsts, program.blocks, least)
    discards = np.zeros(len(stays), form.STEP)
    dead: list[tuple[int, ...]] = []
    for step, operation in zip(discards, sorted(stays), strict=True):
        step["kind"], step["stream"] = form.DISCARD, steps[numbers[operation]]["stream"]
        step["first_use"], step["uses"] = len(uses) + len(dead), len(stays[operation])
        dead += [
            (offset, length, i, form.OVERWRITE, 0, 0, 0, 0)
            for i, offset, length in stays[operation]
        ]
    behind = [int(numbers[operation]) + 1 for operation in sorted(stays)]
    return replace(
        program,
        steps=np.insert(steps, behind, discards),
        uses=np.concatenate((uses, np.array(dead, form.USE))),
    )


def recorded(data: bytes, compute_ns: int) -> tuple[Program, list[int], list[tuple[int, int, int]]]:
    """Returns the recording as a program with new times, and issued_ns and places for
    by_operation()."""
    import numpy as np

    from pump.trace import records as rec
    from pump.trace.reader import Reader
    from pump_lab.sim import recording

    program = recording.program(data, "transformer")
    steps = program.steps.copy()
    scale = compute_ns / max(1, int(steps["duration_ns"].sum()))
    steps["duration_ns"] = np.rint(steps["duration_ns"] * scale)
    steps["host_ns"] = np.where(steps["seq"] > 0, HOST_NS, 0)
    rows = list(Reader(io.BytesIO(data)).records())
    bases = {(row.slot, row.generation): row.base for row in rows if isinstance(row, rec.RangeRow)}
    places = sorted(
        (bases[int(one["slot"]), int(one["generation"])], int(one["length_bytes"]), index)
        for index, one in enumerate(program.ranges)
    )
    issued = [
        row.time_ns
        for row in rows
        if isinstance(row, rec.Operation) and row.kind in recording.KINDS
    ]
    return replace(program, steps=steps), issued, places


def rows(
    data: bytes,
    handed: Iterable[Handed],
    profile: Profile,
    *,
    compute_ns: int,
    iterations: int,
    waits: int,
    memory_bytes: Mapping[float, int],
) -> Iterator[Row]:
    """Yields the rows. `data`: a recording of `iterations` of the transformer, the timed ones with
    `waits` for the GPU. `memory_bytes`: by oversubscription."""
    program, issued_ns, places = recorded(data, compute_ns)
    empty = by_operation(emptied(handed), issued_ns, places)
    for ratio, bytes_there in memory_bytes.items():
        without, before = _run(program, waits, profile, bytes_there)
        for part in PARTS:
            least = program.operations // iterations // part
            discarding = with_discards(program, empty, least)
            seconds, whole = _run(discarding, waits, profile, bytes_there)
            facts: dict[str, Any] = {
                "oversubscription": ratio,
                "case": f"1/{part}",
                "operations": least,
                "waits": waits,
                "discarded_bytes": whole.counters["discarded_blocks"] * BLOCK_BYTES,
                "h2d_bytes": whole.h2d_bytes,
                "d2h_bytes": whole.d2h_bytes,
                "without_h2d_bytes": before.h2d_bytes,
                "without_d2h_bytes": before.d2h_bytes,
                "faults": whole.counters["fault_pages"],
                "without_faults": before.counters["fault_pages"],
                "profile": profile.name,
                "simulated": True,
            }
            name = f"transformer.ordered_discards.{POLICY}"
            yield Row(name, without / seconds, "x", "without discards", **facts)


def _run(
    program: Program, waits: int, profile: Profile, memory_bytes: int
) -> tuple[float, Stretch]:
    """Returns the seconds of the timed iterations, and the transfers of the whole run."""
    from pump_lab.sim.named_policies import by_name, simulate
    from pump_lab.sim.simulation import Machine

    outcome = simulate(by_name(POLICY), program, Machine(profile, memory_bytes))
    return outcome.syncs_seconds[-1] - outcome.syncs_seconds[-1 - waits], outcome.whole
