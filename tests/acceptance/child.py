"""The process of one stage: reads its input, runs the stage, writes items to a pipe.

Its stdout and stderr are the stage's log. Items have their own pipe, one JSON line each, so that
output printed by a library cannot be mistaken for an item.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

from acceptance import processes, running, stages
from acceptance.contract import (
    FAIL,
    LATE,
    NO_MEMORY,
    UNAVAILABLE,
    Context,
    Item,
    Json,
    Machine,
    RefusedError,
    Stage,
    late,
)
from acceptance.labels import labelled
from acceptance.results import STAGE_ITEM

TRACEBACK_BEFORE_S = 2.0


def packed(context: Context, stage: str, limit_s: float, pipe: int) -> dict[str, Json]:
    """Returns the JSON object that `main` reads."""
    return {
        "stage": stage,
        "limit_s": limit_s,
        "pipe": pipe,
        "root": str(context.root),
        "out": str(context.out),
        "work": str(context.work),
        "machine": asdict(context.machine),
        "core": context.core,
        "quick": context.quick,
        "done": sorted(context.done),
        "lacks": context.lacks,
    }


def unpacked(given: dict[str, Json]) -> Context:
    return Context(
        root=Path(given["root"]),
        out=Path(given["out"]),
        work=Path(given["work"]),
        machine=Machine(**given["machine"]),
        core=given["core"],
        quick=given["quick"],
        done=frozenset(given["done"]),
        deadline=time.monotonic() + given["limit_s"],
        lacks=given["lacks"],
    )


def end_with_runner() -> None:
    """Ends the stage and everything that it started when the command ends.

    stdin is a pipe that only the runner holds open. A signal would not work: Python handles one
    that arrives just before the main thread sleeps only when that thread wakes up.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        processes.kill_marked(processes.STAGE_MARK, os.environ.get(processes.STAGE_MARK, ""))
        os._exit(143)

    threading.Thread(target=watch, daemon=True).start()


def items(stage: Stage, context: Context) -> Iterator[Item]:
    """Yields the stage's items; an exception of the stage becomes an item."""
    try:
        yield from stage.run(context)
    except RefusedError as error:
        yield Item(STAGE_ITEM, UNAVAILABLE, f"{NO_MEMORY}: {error}")
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        yield Item(STAGE_ITEM, FAIL, f"broke off: {type(error).__name__}: {error}"[:400])


def settled(item: Item) -> Item:
    """Returns the item; a late one if the end of the stage stopped its program; an unavailable one
    if its program was refused memory."""
    if LATE in item.reason and item.status in (FAIL, UNAVAILABLE):
        return late(item.name)
    refused = NO_MEMORY in item.reason and item.status == FAIL
    return replace(item, status=UNAVAILABLE) if refused else item


def line(item: Item) -> str:
    """Returns an item as a line for the pipe; a failed item if JSON cannot represent its values."""
    try:
        return json.dumps(item.as_json(), allow_nan=False)
    except (TypeError, ValueError) as error:
        return json.dumps(Item(item.name, FAIL, f"its values are no JSON: {error}").as_json())


def write_items(stage: Stage, context: Context, pipe: IO[str]) -> None:
    for item in items(stage, context):
        pipe.write(line(settled(labelled(stage.NAME, item, context.machine))) + "\n")
        pipe.flush()


def main(file: str) -> int:
    given = json.loads(Path(file).read_text())
    end_with_runner()
    faulthandler.dump_traceback_later(max(1.0, given["limit_s"] - TRACEBACK_BEFORE_S))
    running.see_packages(Path(given["root"]))
    stage = stages.load(given["stage"])
    if stage is None:
        return 1
    with os.fdopen(given["pipe"], "w") as pipe:
        write_items(stage, unpacked(given), pipe)
    return 0
