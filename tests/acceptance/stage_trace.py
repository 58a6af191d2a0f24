"""Stage "trace": recordings of the speed models for the simulator, small enough to commit.

Each model runs a few recorded iterations with everything resident. One item per model:

    trace.<model>   pass: the recording is complete, lost nothing and is small. Its values give
                    the file and its contents; for models with known kernels also the floor
                    from the recording, next to the floor from the model's own description.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import floor

from acceptance import models, running, stage_speed
from acceptance.comparing import broken
from acceptance.contract import FAIL, PASS, UNAVAILABLE, Context, Item, RefusedError, late
from acceptance.models import programs
from acceptance.speed import plan as speed_plan

NAME = "trace"
LIMIT_S = 60.0
WHAT = "recordings of the speed models for the simulator"

LOOP = ("--loop", "3", "--warm-seconds", "0")
"""A few iterations, after as many in which an allocator acquires its segments."""
RECORDING_MOST_BYTES = 4 << 20
FLOOR_REPEATS = 4


def run(context: Context) -> Iterator[Item]:
    """Yields an item for each model that this machine can run."""
    names = list(dict.fromkeys(job.model for job in stage_speed.jobs(context)))
    todo = [name for name in names if f"trace.{name}" not in context.done]
    for number, model in enumerate(todo):
        if context.left_s() < 5:
            yield late(f"trace.{model}")
            continue
        try:
            context.managed(models.MODELS[model].expected_bytes(context.quick))
        except RefusedError as error:
            yield Item(f"trace.{model}", UNAVAILABLE, str(error))
            continue
        yield _recorded(context, model, context.left_s() / (len(todo) - number))


def _recorded(context: Context, model: str, limit_s: float) -> Item:
    """Records one model; the recording moves to the results only if it is sound."""
    lines, recording = (context.work / f"{model}.{end}" for end in ("trace.lines", "pumptrace"))
    for file in (lines, recording):
        file.unlink(missing_ok=True)
    ended = running.pumped(
        context,
        stage_speed.words(context, model, lines, *LOOP),
        limit_bytes=context.most_bytes(),
        record=recording,
        limit_s=limit_s,
        **stage_speed.virtual_parts(context, model),
    )
    name = f"trace.{model}"
    if not ended.ok:
        return broken(name, ended)
    if not recording.exists():
        return Item(name, FAIL, "pump-run wrote no recording", ended.evidence())
    values, wrong = look(recording)
    facts = next(
        (line["facts"] for line in stage_speed.read_lines(lines) if line["kind"] == "model"), {}
    )
    values["model"] = facts
    if wrong:
        return Item(name, FAIL, wrong, {**values, **ended.evidence()})
    if model in models.PROGRAMS:
        values |= floors(recording, model, context.quick)
    file = context.out / file_name(model, facts, context)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(recording, file)
    return Item(name, PASS, "", {**values, "file": file.name})


def look(recording: Path) -> tuple[dict[str, Any], str]:
    """Returns a recording's contents and what is wrong with it ("": nothing)."""
    from pump.trace.format import TraceError
    from pump.trace.info import summary

    try:
        found = summary(str(recording))
    except TraceError as error:
        return {}, str(error)
    keys = ("file_bytes", "bytes_per_operation", "operations", "kernels", "signatures", "extents")
    values = {key: found[key] for key in (*keys, "allocated_bytes_peak", "seconds", "state")}
    values["lost_events"] = sum(found["lost"].values())
    if found["state"] != "complete":
        return values, f"the recording is {found['state']}"
    if values["lost_events"]:
        return values, f"{values['lost_events']} events are missing in it"
    if not found["operations"]:
        return values, "it holds no operation"
    if found["file_bytes"] > RECORDING_MOST_BYTES:
        return values, f"{found['file_bytes'] >> 10} KiB, more than {RECORDING_MOST_BYTES >> 10}"
    return values, ""


def floors(recording: Path, model: str, quick: bool) -> dict[str, Any]:
    """Returns the least bytes to the GPU per iteration at 1.5x and 2x: from the recording, and from
    the model's own description. A recording is less certain, so its value can only be lower."""
    from acceptance.speed import floor_recording
    from pump.trace.reader import Reader

    with recording.open("rb") as file:
        recorded, operations = floor_recording.touches_of(Reader(file).records(), programs.ACCESS)
    known = programs.known_touches(model, quick)
    blocks = {b for touch in known for b in (*touch.reads, *touch.updates, *touch.overwrites)}
    values: dict[str, Any] = {"iteration_operations": operations}
    for ratio in stage_speed.CORE_RATIOS:
        memory = speed_plan.budget_bytes(len(blocks) * floor.BLOCK_BYTES, ratio)
        for source, touches in (("recording", recorded), ("model", known)):
            least = floor.least_traffic(touches, FLOOR_REPEATS, memory)
            key = f"floor_to_gpu_bytes_per_iteration_{speed_plan.tag(ratio)}_of_{source}"
            values[key] = least.h2d_bytes // FLOOR_REPEATS
    return values


def file_name(model: str, facts: Mapping[str, Any], context: Context) -> str:
    """Returns a file name with model, batch, and the GPU or the virtual GPU's profile."""
    machine = context.machine
    where = f"virtual-{machine.profile}" if machine.virtual else machine.name
    batch = f"batch{facts['batch']}" if "batch" in facts else ""
    quick = "quick" if context.quick else ""
    words = [model, batch, quick, *re.findall(r"[a-z0-9]+", where.lower())]
    return "-".join(filter(None, words)) + ".pumptrace"
