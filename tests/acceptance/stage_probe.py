"""Stage "probe": scripts/gpu_probe measures the GPU, and its answers become a device profile.

Each question is an item. A later call with --resume asks the questions for which there was no time,
and merges the answers. The profile must load, and the virtual GPU must start with it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from probe.constants import derive_profile
from probe.questions import QUESTIONS
from probe.transfer import KEY, mark

from acceptance import results, running
from acceptance.comparing import broken
from acceptance.contract import (
    FAIL,
    INFO,
    LATE,
    MIB,
    PASS,
    UNAVAILABLE,
    VIRTUAL,
    Context,
    Item,
    Json,
)

NAME = "probe"
LIMIT_S = 360.0
WHAT = "what a card's Unified Memory does and costs, and a device profile from it"

REPORT = "gpu_probe.json"
RESERVE_S = 15.0
"""Seconds reserved for the profile, after the questions."""
PROBE_LIMIT_S = 345.0
QUICK = ("call_cost", "prefetch_idle", "copy_engine")
POLL_S = 0.5
BLOCK_BYTES = 2 * MIB
TIME_SPENT = "time limit"
BASES = {
    **{"h100": "h100-pcie5", "h200": "h200-pcie5", "b200": "h200-pcie5"},
    **{"4090": "rtx4090", "5090": "rtx5090"},
}
DEFAULT_BASE = "a100-pcie4"
"""Profile that supplies unmeasured constants for an unknown GPU."""


def run(context: Context) -> Iterator[Item]:
    report = context.out / REPORT
    fresh = context.out / "gpu_probe.part.json"
    earlier = kept(report, fresh) if context.done else {}
    words = [sys.executable, str(context.root / "scripts" / "gpu_probe")]
    report.unlink(missing_ok=True)
    if earlier:
        _write(context, report, earlier)
    fresh.unlink(missing_ok=True)
    limit_s = max(5.0, min(PROBE_LIMIT_S, context.left_s() - RESERVE_S))
    words += ["--out", str(fresh), "--time-limit", f"{limit_s:.0f}"]
    left = _left(context)
    if left is not None:
        if not left:
            yield from _profile(context, report)
            return
        words += ["--only", *left]
    limits = {name: question.limit_s for name, question in QUESTIONS.items()}
    try:
        environ, settings = _virtual(context)
    except OSError as error:
        yield Item("gpu_probe", FAIL, f"the probe's kernels cannot be built: {error}")
        return
    program = running.start(context, words, pump=False, environ=environ, settings=settings)
    told: set[str] = set()
    ended = False
    while not ended:
        ended = program.popen.poll() is not None or context.left_s() < RESERVE_S / 2
        for item in answers(results.read(fresh) or {}, limits):
            if item.name not in told and item.reason != "not chosen":
                told.add(item.name)
                yield item
        if not ended:
            time.sleep(POLL_S)
    done = program.finish(1.0)
    found = results.read(fresh)
    if found is None:
        yield Item("gpu_probe", FAIL, done.trouble() or "no report", done.evidence())
        return
    if not done.ok:
        yield Item("gpu_probe", FAIL, done.trouble(), done.evidence())
    _write(context, report, merge(earlier, found))
    fresh.unlink(missing_ok=True)
    yield from _profile(context, report)


def _write(context: Context, report: Path, merged: dict[str, Json]) -> None:
    """Writes a report with the constants derived from all of its answers."""
    merged["profile"] = derive_profile(merged["questions"])
    mark(merged)
    merged["commit"] = results.commit_of(context.root)[0]
    results.write(report, merged, context.root)


def _virtual(context: Context) -> tuple[dict[str, str], dict[str, str]]:
    """Returns environment and settings for probing the virtual GPU (docs/uvm.md); both are empty on
    a real GPU. Raises OSError."""
    if not context.machine.virtual:
        return {}, {}
    library = context.work / "probe_kernels.so"
    source = Path(__file__).with_name("probe_kernels.c")
    compiler = context.machine.tools.get("cc", "cc")
    words = [compiler, "-O2", "-fPIC", "-shared", "-o", str(library), str(source)]
    made = running.tool(context, words, limit_s=60)
    if not made.ok:
        raise OSError(made.trouble())
    return {"PUMP_VIRTUAL_KERNELS": str(library)}, {"copies": "modelled"}


def _left(context: Context) -> list[str] | None:
    """Returns the questions still to be asked; None means all of them."""
    asked = {name.removeprefix("question.") for name in context.done}
    if not (context.out / REPORT).exists():
        asked = set()
    if context.quick:
        return [name for name in QUICK if name not in asked]
    if not asked & {"machine"}:
        return None
    return [name for name in QUESTIONS if name not in asked and name != "machine"]


def answers(report: Mapping[str, Json], limits: Mapping[str, float]) -> Iterator[Item]:
    """Yields the items of a report's questions. `limits`: the time limit of each, in seconds.

    A question stopped by the end of the call, before its own limit, is only late.
    """
    for name, answer in report.get("questions", {}).items():
        status, reason = answer["status"], answer.get("reason", "")
        cut_off = status == "timeout" and answer.get("seconds", 0.0) < limits.get(name, 0.0)
        if status == "ok":
            verdict = PASS
        elif cut_off:
            verdict, reason = UNAVAILABLE, LATE
        elif status in ("failed", "timeout"):
            verdict = FAIL
        else:
            verdict = UNAVAILABLE
            reason = LATE if TIME_SPENT in reason else reason
        values = {"status": status, "question_s": answer.get("seconds", 0.0)}
        values |= {KEY: answer[KEY]} if KEY in answer else {}
        yield Item(f"question.{name}", verdict, reason, values)


def kept(report: Path, fresh: Path) -> dict[str, Json]:
    """Returns the answers of earlier calls, including a call that was killed before merging."""
    found = results.read(report) or {}
    part = results.read(fresh)
    return merge(found, part) if part else found


def merge(earlier: Mapping[str, Json], newer: Mapping[str, Json]) -> dict[str, Json]:
    """Merges two reports: the newer answer wins unless it was skipped."""
    questions = dict(earlier.get("questions", {}))
    for name, answer in newer.get("questions", {}).items():
        if answer["status"] != "skipped" or name not in questions:
            questions[name] = answer
    both = {**earlier, **newer, "questions": questions}
    both["seconds"] = float(earlier.get("seconds", 0.0)) + float(newer.get("seconds", 0.0))
    return both


def whole_blocks(total_bytes: int, card_bytes: int) -> bool:
    """Returns whether a virtual GPU has a real GPU's memory, rounded down to whole blocks."""
    return total_bytes == card_bytes // BLOCK_BYTES * BLOCK_BYTES


def base_for(card: str) -> str:
    """Returns the profile of the most similar GPU."""
    words = re.split(r"[^a-z0-9]+", card.lower())
    return next((BASES[word] for word in words if word in BASES), DEFAULT_BASE)


def slug(context: Context) -> str:
    """Returns the profile's file name."""
    there = context.machine
    name = f"virtual-{there.profile}" if there.virtual else there.name
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _profile(context: Context, report: Path) -> Iterator[Item]:
    """Writes the profile, loads it and starts the virtual GPU with it."""
    there = context.machine
    base = there.profile if there.virtual else base_for(there.name)
    profile = context.out / f"{slug(context)}.toml"
    words = ["simulate", "--profile-from", str(report), "--base", base, "--out", str(profile)]
    command = running.pump_command(context.root, "pump", *words)
    written = running.tool(context, command, limit_s=30)
    if not written.ok:
        yield broken("profile.written", written)
        return
    constants = (results.read(report) or {}).get("profile", {})
    known = {key: value for key, value in constants.items() if isinstance(value, (int, float))}
    yield Item("profile.written", PASS, values={"file": profile.name, "base": base})
    headline = ", ".join(f"{key} {value:.4g}" for key, value in list(known.items())[:6])
    yield Item("profile.constants", INFO, values={**constants, "headline": headline})
    if context.lacks:
        yield Item("profile.starts", UNAVAILABLE, context.lacks)
        return
    virtual = replace(context, machine=replace(there, kind=VIRTUAL, profile=str(profile)))
    facts = Path(__file__).with_name("card_facts.py")
    started = running.plain(virtual, [sys.executable, str(facts)], limit_s=30)
    if not started.ok:
        yield Item("profile.starts", FAIL, started.trouble(), started.evidence())
        return
    total = json.loads(started.stdout)["total_bytes"]
    same = whole_blocks(total, there.total_bytes)
    reason = "" if same else f"it has {total} bytes of memory, the card {there.total_bytes}"
    yield Item("profile.starts", PASS if same else FAIL, reason, {"total_bytes": total})
