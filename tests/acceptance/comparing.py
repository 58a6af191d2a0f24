"""Runs a program with and without pump, compares and judges the results. Used by several stages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from acceptance import running
from acceptance.contract import (
    FAIL,
    INFO,
    MANAGED_MOST_BYTES,
    MIB,
    PASS,
    UNAVAILABLE,
    Context,
    Item,
    Json,
    Machine,
    RefusedError,
    late,
)
from acceptance.running import Run

RUN_LIMIT_S = 60.0
LEAST_S = 4.0
"""No program is started with less time left."""
AT_ONCE = 4
"""Programs under pump that may run at the same time."""
AT_ONCE_MOST_BYTES = MANAGED_MOST_BYTES // AT_ONCE
"""The --limit of each program, so that all of them together obey MANAGED_MOST_BYTES."""
ACTIVE = {"PUMP_ACTIVE": "always"}
COMPUTE = {"mode": "compute"}
"""Setting of the virtual GPU: kernels really compute."""
TORCH_NEEDS = {
    "PYTORCH_ALLOC_CONF": "expandable_segments:False",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
}
"""Unified Memory cannot page expandable segments, which are mapped by other driver calls."""
JAX_NEEDS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Without this setting XLA allocates three quarters of the GPU's memory at once."""


@dataclass(frozen=True)
class Case:
    """A program to compare. `needs`: environment that it needs, named in the result.

    `converted_least_bytes`: how much of its memory pump must make pageable. `stream_ordered`: its
    memory is stream-ordered; pump sees and counts such memory but need not convert it.
    """

    words: list[str]
    budget_bytes: int
    converted_least_bytes: int
    needs: Mapping[str, str] = field(default_factory=dict)
    stream_ordered: bool = False


def attempt(name: str, make: Callable[[], Item]) -> Item:
    """Returns the item that `make` makes; an exception becomes a failed or unavailable item."""
    try:
        return make()
    except RefusedError as error:
        return Item(name, UNAVAILABLE, str(error))
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        return Item(name, FAIL, f"broke off: {type(error).__name__}: {error}"[:400])


def allowed(name: str, part: Iterator[Item]) -> Iterator[Item]:
    """Yields the items of a part of a stage. If the part requests more memory than allowed, it ends
    with the unavailable item `name`, and the stage continues."""
    try:
        yield from part
    except RefusedError as error:
        yield Item(name, UNAVAILABLE, str(error))


def compared(context: Context, name: str, case: Case) -> Item:
    """Runs a program with and without pump at the same time, and judges the results."""
    if context.left_s() < LEAST_S:
        return late(name)
    environ = dict(case.needs)
    plain = running.start(context, case.words, pump=False, environ=environ, settings=COMPUTE)
    pumped = running.start(
        context,
        case.words,
        budget_bytes=case.budget_bytes,
        limit_bytes=AT_ONCE_MOST_BYTES,
        environ={**environ, **ACTIVE},
        settings=COMPUTE,
    )
    ended = plain.finish(RUN_LIMIT_S), pumped.finish(RUN_LIMIT_S)
    return judge(name, case, *ended, context.machine)


def not_here(name: str, run: Run, machine: Machine) -> Item:
    """Returns the item of a program that does not run without pump either. docs/gpu.md lists what
    cannot run on the virtual GPU."""
    why = run.trouble() or "it told no result"
    where = "on the virtual GPU" if machine.virtual else "here"
    where = (
        f"{run.lacks()} is not installed" if run.lacks() else f"does not run {where} without pump"
    )
    return Item(name, UNAVAILABLE, f"{where}: {why}", run.evidence())


def judge(name: str, case: Case, plain: Run, pumped: Run, machine: Machine) -> Item:
    """Returns the verdict on a program that ran without pump and with it."""
    result = plain.result()
    if not plain.ok or result is None:
        return not_here(name, plain, machine)
    if machine.virtual and not result.get("right", True):
        return Item(name, UNAVAILABLE, "its kernels do not compute on the virtual GPU")
    shim = (pumped.summary or {}).get("shim", {})
    converted = shim.get("converted_bytes_peak", 0)
    values: dict[str, Json] = {
        "needs": dict(case.needs),
        "converted_bytes_peak": converted,
        "operations": shim.get("operations", 0),
        "events_dropped": shim.get("events_dropped", 0),
        "attached": shim.get("attaches", 0) > 0,
        "plain_run_s": round(plain.seconds, 3),
        "pump_run_s": round(pumped.seconds, 3),
    }
    reason = other_result(plain, pumped) or not_intercepted(pumped) or unclean(pumped)
    if reason:
        return Item(name, FAIL, reason, {**values, **pumped.evidence()})
    if converted < case.converted_least_bytes:
        wanted = case.converted_least_bytes // MIB
        reason = f"{converted // MIB} MiB were converted, at least {wanted} were expected"
        if case.stream_ordered:
            return Item(name, INFO, f"seen, but its memory is stream-ordered: {reason}", values)
        return Item(name, FAIL, reason, {**values, **pumped.evidence()})
    return Item(name, PASS, values=values)


def broken(name: str, run: Run) -> Item:
    """Returns the item of a program that ended badly: failed, unless it only lacks a package."""
    if run.lacks():
        return Item(name, UNAVAILABLE, f"{run.lacks()} is not installed here")
    return Item(name, FAIL, run.trouble() or "it told no result", run.evidence())


def other_result(plain: Run, pumped: Run) -> str:
    """Returns how the result with pump differs from the result without pump; "" if it does not."""
    before, after = plain.result(), pumped.result()
    if not pumped.ok or after is None:
        return f"with pump: {pumped.trouble() or 'it told no result'}"
    if before is None or before["sha256"] != after["sha256"]:
        return "other bits with pump"
    if not (before.get("right", True) and after.get("right", True)):
        return "wrong result, with pump and without"
    return ""


def not_intercepted(pumped: Run) -> str:
    """Returns why pump did not observe the program, according to pump's summary; "" if it did."""
    if pumped.summary is None:
        return "not intercepted: pump never saw a cuInit succeed"
    if pumped.summary["shim"]["operations"] == 0:
        return "not intercepted: pump saw no operation"
    return ""


def unclean(pumped: Run) -> str:
    """Returns what pump left running or broke; "" if nothing."""
    if pumped.left:
        return f"left behind: {', '.join(pumped.left)}"
    report = pumped.driver_report or {}
    if report.get("violations", 0):
        return f"the virtual driver saw {report['violations_by_check']}"
    return ""
