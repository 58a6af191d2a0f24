"""A stage's JSON: its contents, how it is written, and which parts a later call keeps."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from acceptance.contract import FAIL, LATE, STATUSES, Item, Json, Machine

SCHEMA = 1
COMMIT_VARIABLE = "GPU_ACCEPTANCE_COMMIT"
STAGE_ITEM = "stage"
"""Name of the runner's own item about a stage that broke; --resume never keeps it."""
NAME_IS_ENOUGH = frozenset({"shim", "bits", "failures"})
"""Stages with verdicts and without numbers: --resume may use another GPU of the same name."""


@dataclass(frozen=True)
class Identity:
    """Properties that results in one folder must share."""

    commit: str
    dirty: bool
    machine: Machine

    def head(self) -> dict[str, Json]:
        """Returns the keys that every file carries."""
        machine = self.machine
        return {
            "schema": SCHEMA,
            "commit": self.commit,
            "dirty": self.dirty,
            "label": machine.label,
            "kind": machine.kind,
            "device": machine.name,
            "uuid": machine.uuid,
            "driver": machine.driver,
            "profile": machine.profile,
            "memory_total_bytes": machine.total_bytes,
            "memory_free_bytes": machine.free_bytes,
            "host": machine.host,
            "runtime": machine.runtime,
            "packages": dict(machine.packages),
            "tools": sorted(machine.tools),
        }

    def same(self, result: Mapping[str, Json]) -> bool:
        """Returns whether the result is of this commit and of this or an equivalent device."""
        mine = self.head()
        keys = ["schema", "commit", "dirty", "label"]
        keys += [] if result.get("stage") in NAME_IS_ENOUGH else ["uuid"]
        return all(result.get(key) == mine[key] for key in keys)


def commit_of(root: Path) -> tuple[str, bool]:
    """Returns the commit of the checkout and whether the checkout has changes.

    Outside git (when only the files were copied), returns COMMIT_VARIABLE if it is set, else
    "unknown".
    """
    try:
        words = ["git", "-C", str(root)]
        head = subprocess.run(
            [*words, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()
        changes = subprocess.run(
            [*words, "status", "--porcelain"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get(COMMIT_VARIABLE, "unknown"), True
    return head, bool(changes)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def item_from(record: Json) -> Item:
    """Parses an item from a stage or a file. Raises ValueError."""
    if not isinstance(record, dict):
        raise ValueError("an item is an object")
    known = {key: record[key] for key in ("name", "status") if isinstance(record.get(key), str)}
    if len(known) != 2 or known["status"] not in STATUSES:
        raise ValueError(f"no name or no known status: {str(record)[:120]}")
    values = record.get("values", {})
    seconds = record.get("seconds", 0.0)
    return Item(
        **known,
        reason=str(record.get("reason", "")),
        values=values if isinstance(values, dict) else {"value": values},
        seconds=float(seconds) if isinstance(seconds, (int, float)) else 0.0,
    )


def finished(result: Mapping[str, Json]) -> list[Item]:
    """Returns the items of an earlier call that need not be made again."""
    items = [item_from(record) for record in result.get("items", [])]
    return [item for item in items if item.reason != LATE and item.name != STAGE_ITEM]


def complete(items: Iterable[Item], ended: bool) -> bool:
    """Returns whether --resume has nothing left to do in a stage. `ended`: it was not stopped."""
    return ended and all(item.reason != LATE for item in items)


def failures(results: Iterable[Mapping[str, Json]]) -> int:
    """Returns the number of failed items."""
    return sum(
        1 for result in results for item in result.get("items", []) if item["status"] == FAIL
    )


def read(file: Path) -> dict[str, Json] | None:
    """Reads a result; returns None if there is no readable one."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        if isinstance(found, dict):
            return found
    return None


def write(file: Path, content: Mapping[str, Json], root: Path) -> None:
    """Writes the file atomically: a concurrent reader sees the old content or the new content.

    The path of the checkout is removed from the text, because results are committed.
    """
    text = json.dumps(content, indent=1, allow_nan=False)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_text(text.replace(str(root), "<checkout>") + "\n")
    fresh.replace(file)
