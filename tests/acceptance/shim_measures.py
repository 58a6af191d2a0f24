"""Measurements of stage "shim": operations against independent counts, and the cost of a hook."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from acceptance import running
from acceptance.comparing import (
    ACTIVE,
    COMPUTE,
    LEAST_S,
    RUN_LIMIT_S,
    TORCH_NEEDS,
    not_here,
)
from acceptance.contract import (
    FAIL,
    INFO,
    PASS,
    UNAVAILABLE,
    Context,
    Item,
    Json,
    late,
)

PROGRAMS = Path(__file__).with_name("programs")
COUNT_TOLERANCE = 0.02
"""Tolerated share of difference from a profiler's count: profilers are not exact either."""
COUNTED_CALLS = ("cuLaunch", "cuMemcpy", "cuMemset")
WAYS: dict[str, tuple[bool, dict[str, str]]] = {
    "plain": (False, {}),
    "dormant": (True, {}),
    "active": (True, ACTIVE),
}
"""Maps each way to whether pump is loaded, and to its environment."""


def counts(context: Context) -> Iterator[Item]:
    """Compares the operations that pump saw with independent counts."""
    if "count.profiler" not in context.done:
        yield _profiler_count(context)
    if context.machine.virtual and "count.driver" not in context.done:
        yield _driver_count(context)


def _profiler_count(context: Context) -> Item:
    """Compares the counts of pump and of PyTorch's profiler (CUPTI), for the same steps.

    Pump counts whole processes, so its count is the difference of two processes that differ only in
    their number of steps. The profiler counts in a third process, without pump.
    """
    name = "count.profiler"
    if "torch" not in context.machine.packages:
        return Item(name, UNAVAILABLE, "torch is not installed here")
    if context.left_s() < LEAST_S:
        return late(name)
    words = [sys.executable, str(PROGRAMS / "use_torch.py")]
    few, many = 4, 12

    def start(rounds: int, pump: bool, **more: str) -> running.Program:
        environ = {**TORCH_NEEDS, "ACCEPTANCE_ROUNDS": str(rounds), **more}
        if pump:
            environ |= ACTIVE
        return running.start(context, words, pump=pump, environ=environ, settings=COMPUTE)

    begun = [
        start(many - few, False, ACCEPTANCE_PROFILE="1"),
        start(few, True),
        start(many, True),
    ]
    profiled, short, long = (program.finish(RUN_LIMIT_S) for program in begun)
    seen = (profiled.result() or {}).get("profiler")
    if not profiled.ok or not seen:
        return not_here(name, profiled, context.machine)
    if not any(seen.values()):
        return blind(name, profiled)
    if short.summary is None or long.summary is None:
        bad = short if short.summary is None else long
        return Item(name, FAIL, f"no count from pump: {bad.trouble()}", bad.evidence())
    counted = long.summary["shim"]["operations"] - short.summary["shim"]["operations"]
    dropped = long.summary["shim"]["events_dropped"]
    limits = (
        "CUPTI counts a graph's nodes one by one, pump a graph launch once; none in these steps"
    )
    return count_verdict(
        name, counted, sum(seen.values()), dropped, {"profiler": seen, "limits": limits}
    )


def blind(name: str, profiled: running.Run) -> Item:
    """Returns the item for a profiler that works but gets no GPU activity from CUPTI."""
    why = "PyTorch's profiler saw nothing on the GPU: CUPTI is not served here"
    return Item(name, UNAVAILABLE, why, profiled.evidence())


def _driver_count(context: Context) -> Item:
    """Compares the calls counted by the virtual driver with the operations counted by pump."""
    name = "count.driver"
    if context.left_s() < LEAST_S:
        return late(name)
    words = [sys.executable, str(PROGRAMS / "use_cuda_bindings.py")]
    run_ = running.pumped(context, words, environ=ACTIVE, settings=COMPUTE, limit_s=RUN_LIMIT_S)
    if not run_.ok or run_.summary is None or run_.driver_report is None:
        return Item(name, FAIL, run_.trouble() or "no counts", run_.evidence())
    calls = run_.driver_report["calls"]
    counted = run_.summary["shim"]
    seen = sum(n for call, n in calls.items() if call.startswith(COUNTED_CALLS))
    more = {"calls": {call: n for call, n in calls.items() if call.startswith("cuLaunch")}}
    return count_verdict(name, counted["operations"], seen, counted["events_dropped"], more)


def count_verdict(name: str, pump: int, other: int, dropped: int, more: Mapping[str, Json]) -> Item:
    """Returns PASS if both counts agree within COUNT_TOLERANCE and no event was dropped."""
    values = {
        "pump_operations": pump,
        "counted_operations": other,
        "events_dropped": dropped,
        "headline": f"pump saw {pump} operations, {other} were counted by others",
        **more,
    }
    if other == 0 or abs(pump - other) > COUNT_TOLERANCE * other:
        return Item(name, FAIL, f"pump saw {pump} operations, others counted {other}", values)
    if dropped:
        return Item(name, FAIL, f"{dropped} events were dropped", values)
    return Item(name, PASS, values=values)


def cost(context: Context) -> Iterator[Item]:
    """Measures ns per launch in alternating processes: without pump, dormant and active."""
    name = "cost.launch"
    if name in context.done:
        return
    if "cc" not in context.machine.tools:
        yield Item(name, UNAVAILABLE, "no C compiler here")
        return
    if context.left_s() < LEAST_S:
        yield late(name)
        return
    program = context.work / "use-driver"
    compiler = [context.machine.tools["cc"], "-O2", str(PROGRAMS / "use_driver.c")]
    made = running.tool(context, [*compiler, "-o", str(program), "-ldl"], limit_s=60)
    if not made.ok:
        yield Item(name, UNAVAILABLE, f"cc cannot build it: {made.trouble()}", made.evidence())
        return
    turns, batches = (1, 50) if context.quick else (3, 300)
    words = [str(program), "cost", str(batches), "64"]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(turns):
        for way in [*WAYS][turn % 3 :] + [*WAYS][: turn % 3]:
            pump, environ = WAYS[way]
            begun = running.start(context, words, pump=pump, environ=environ)
            done = begun.finish(RUN_LIMIT_S)
            result = done.result()
            if not done.ok or result is None:
                yield Item(name, FAIL, f"{way}: {done.trouble()}", done.evidence())
                return
            found[way].append(result["launch_ns"])
    yield Item(name, INFO, values=cost_values(found))


def cost_values(found: Mapping[str, list[float]]) -> dict[str, Json]:
    """Returns medians over processes, and for each way the time that pump adds and the ratio."""
    plain = statistics.median(found["plain"])
    values: dict[str, Json] = {"plain_launch_ns": plain, "processes": len(found["plain"])}
    for way in ("dormant", "active"):
        with_pump = statistics.median(found[way])
        values |= {
            f"{way}_launch_ns": with_pump,
            f"{way}_added_ns": round(with_pump - plain, 1),
            f"{way}_ratio": round(with_pump / plain, 4),
        }
    values["headline"] = (
        f"a launch takes {plain:.0f} ns, {values['dormant_added_ns']:+.0f} dormant, "
        f"{values['active_added_ns']:+.0f} active"
    )
    return values
