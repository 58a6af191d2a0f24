"""The possible first answers of a GPU: what each means and what has to change. Pure.

A row's `judge` gets the question's result. It returns the name of one of the row's outcomes, and
the deciding numbers. The texts are in rows.toml; page.py makes docs/first-card.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from acceptance.contract import Json

UNSUPPORTED = "unsupported"
"""Outcome of a question that the driver or the GPU refuses; only some rows have it."""
SPEED_MOST = 1.01
"""Largest acceptable time on managed memory relative to plain memory, all of it resident."""
FELT_MOST, FELT_US = 2.0, 100.0
"""Bounds for a launch during an eviction: multiple of the control's p99, microseconds above it."""
ENGINE_MOST = 0.8
"""A process counts as slowed if it keeps at most this share of its rate next to a computing one."""
LATE_US = 5000.0
"""A call waits for a kernel of 30 ms if it takes this much longer than usual."""
POLL_MOST, POLL_US = 1.1, 20.0
"""Bounds for a launch beside a poller: multiple of the control's median, microseconds above p99."""
COPIES_MOST = 1.05
"""Largest acceptable time of a copy to managed memory relative to plain memory."""
WAKE_US = 25.0
"""Largest acceptable time that a blocking wait adds; a slice takes 40 us or more."""
CORRECTED = (
    *("MEMORY_TYPE", "IS_MANAGED", "HOST_POINTER", "RANGE_START_ADDR", "RANGE_SIZE"),
    *("ALLOWED_HANDLE_TYPES", "MEMPOOL_HANDLE"),
)
"""Attributes that pump answers as for plain memory (shim/pool/pointer_answers.c)."""
FAULT_US = 10.0
"""A write to resident memory has faulted if it takes this much longer than before."""


@dataclass(frozen=True)
class Outcome:
    """One possible answer."""

    key: str
    means: str
    change: str


@dataclass(frozen=True)
class Row:
    """A question of the probe, or a stage of the acceptance (`stage`)."""

    name: str
    asks: str
    judge: Callable[[Mapping[str, Json]], tuple[str, str]]
    outcomes: tuple[Outcome, ...]
    stage: bool = False


def symbols(result: Mapping[str, Json]) -> tuple[str, str]:
    unmatched = result["unmatched"]
    asked = f"{result['asked']} queries, {len(unmatched)} unmatched"
    return ("hidden", f"{asked}: {', '.join(unmatched[:4])}") if unmatched else ("known", asked)


def param_info(result: Mapping[str, Json]) -> tuple[str, str]:
    def right(key: str) -> bool:
        return bool(result[key].get("parameters") == result["expected"])

    own = right("function_by_cuFuncGetParamInfo") and right("kernel_by_cuKernelGetParamInfo")
    either = right("kernel_passed_to_cuFuncGetParamInfo")
    said = f"own calls right: {own}; cuFuncGetParamInfo of a CUkernel right: {either}"
    return ("either" if own and either else "own" if own else "wrong"), said


def capture(result: Mapping[str, Json]) -> tuple[str, str]:
    broken = [
        f"{where}.{name}"
        for where in ("same_thread_relaxed", "other_thread_relaxed")
        for name, row in result[where].items()
        if row["capture_after"] != "CUDA_SUCCESS"
    ]
    return ("broken", ", ".join(broken)) if broken else ("holds", "all calls")


def kernel_speed(result: Mapping[str, Json]) -> tuple[str, str]:
    ratios = {name: float(row["managed_over_plain"]) for name, row in result.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    said = f"worst: {worst}, {ratios[worst]:.3f} times plain memory"
    return ("same" if ratios[worst] <= SPEED_MOST else "slower"), said


def discard(result: Mapping[str, Json]) -> tuple[str, str]:
    rows = [result[size]["write_then_prefetch_out"] for size in ("2_mib", "8_mib")]
    whole = [row for row in rows if "write_after_discard_us" in row]
    slower = [row["write_after_discard_us"] - row["resident_write_us"] for row in whole]
    costs = ", ".join(f"{row['discard_caller_us']:.1f} us" for row in whole)
    said = f"the call takes {costs}; a write afterwards {max(slower, default=0.0):.0f} us longer"
    if not result["control_valid"] or not whole:
        return "undecided", "no verdict: words are lost without a discard too"
    if not result["every_write_survived"]:
        return "keeps_mappings", said
    return ("unmaps" if min(slower) > FAULT_US else "undecided"), said


def felt_by_others(result: Mapping[str, Json]) -> tuple[str, str]:
    row = result["launch"]
    control = percentile(row["control"], "cuLaunchKernel", "control")
    felt = {
        mib: percentile(row[f"evict_slices_{mib}_mib"], "cuLaunchKernel", "out")
        for mib in (8, 32, 256)
    }
    if control is None or felt[8] is None:
        return "no_samples", "the phases held no launch"
    said = f"p99 of a launch {control:.0f} us; beside slices " + ", ".join(
        f"of {mib} MiB {us:.0f} us" for mib, us in felt.items() if us is not None
    )
    most = max(FELT_MOST * control, control + FELT_US)
    quiet = [mib for mib, us in felt.items() if us is not None and us <= most]
    elsewhere = percentile(row.get("evict_8_mib_in_another_context", {}), "cuLaunchKernel", "out")
    if elsewhere is not None:
        said += f", of 8 MiB in another context {elsewhere:.0f} us"
    if quiet:
        return f"up_to_{max(quiet)}", said
    return ("in_its_context" if elsewhere is not None and elsewhere <= most else "always"), said


def percentile(row: Mapping[str, Json], call: str, phase: str) -> float | None:
    """Returns the p99 of one call in one phase, in microseconds."""
    found = row.get(call, {}).get(phase, {}).get("p99")
    return None if found is None else float(found)


def lanes(result: Mapping[str, Json]) -> tuple[str, str]:
    first = {
        (label, name.removeprefix("held_")): row.get("first_stuck_at_lanes")
        for label, answers in result.items()
        for name, row in answers.items()
        if name.startswith("held_") and "failed" not in row
    }
    told = ", ".join(
        f"{label.removeprefix('connections_')} queues, {name}: {count or 'never'}"
        for (label, name), count in first.items()
    )
    said = f"streams stuck from so many lanes on: {told}"
    usual = {name: count for (label, name), count in first.items() if label == "connections_8"}
    if not usual:
        return "no_samples", "no lane could be held"
    if usual.get("default") is None:
        return "apart", said
    above = [name for name, count in usual.items() if name != "default" and count is None]
    return ("priority" if above else "shared"), said


def tma(result: Mapping[str, Json]) -> tuple[str, str]:
    at = result["descriptor"]["address_at_byte"]
    said = (
        f"on the host {result['on_host']['us']} us, resident {result['resident']['us']} us; "
        f"the address stands at byte {at} of the descriptor"
    )
    if not (result["on_host"]["bits_right"] and result["resident"]["bits_right"]):
        return "wrong_bits", said
    return ("packed" if at < 0 else "faults"), said


def bulk(result: Mapping[str, Json]) -> tuple[str, str]:
    wrong = [name for name, row in result.items() if not row["bits_right"]]
    if wrong:
        return "wrong_bits", ", ".join(wrong)
    return "right", f"{len(result)} runs, also while the memory leaves the GPU"


def engine(result: Mapping[str, Json]) -> tuple[str, str]:
    share = {work: float(row["share"]) for work, row in result.items()}
    said = ", ".join(f"{share[work]:.2f} beside one that {work}" for work in share)
    said = f"of its rate alone a process has {said}"
    if share["computes"] > ENGINE_MOST:
        return "undecided", said
    midway = (1.0 + share["computes"]) / 2
    if share["waits"] < midway:
        return "kept_by_waits", said
    return ("kept" if share["faults"] < midway else "given_away"), said


def lazy(result: Mapping[str, Json]) -> tuple[str, str]:
    def longest(context: str, kind: str) -> float:
        return max(float(us) for us in result[context][kind]["longest_us"].values())

    known, first = (result["same_context"][kind]["launch_us"] for kind in ("known", "first"))
    own, other = longest("same_context", "first"), longest("another_context", "first")
    said = (
        f"on a busy GPU a first launch takes {first:.0f} us, a later one {known:.0f} us; the "
        f"longest call beside it {own:.0f} us, in another context {other:.0f} us"
    )
    if not result["lazy"]:
        return "eager", said
    if first <= known + LATE_US:
        return "at_once", said
    if own <= longest("same_context", "known") + LATE_US:
        return "drains", said
    return ("same_context" if other <= LATE_US else "everywhere"), said


def poller(result: Mapping[str, Json]) -> tuple[str, str]:
    control, same, other = (result[name] for name in ("control", "same_context", "another"))
    said = ", ".join(f"{row['median']:.2f} us ({row['p99']:.1f})" for row in (control, same, other))
    said = f"a launch, median and p99, beside a sleeper, a poller, one in another context: {said}"
    free = same["median"] <= POLL_MOST * control["median"] and same["p99"] <= max(
        FELT_MOST * control["p99"], control["p99"] + POLL_US
    )
    return ("free" if free else "felt"), said


def pinned_copies(result: Mapping[str, Json]) -> tuple[str, str]:
    ratios = {name: float(row["managed_over_plain"]) for name, row in result.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    said = f"worst: {worst}, {ratios[worst]:.3f} times plain memory"
    return ("same" if ratios[worst] <= COPIES_MOST else "slower"), said


def waits(result: Mapping[str, Json]) -> tuple[str, str]:
    spinning, blocking = (float(result[f"{how}_us"]["median"]) for how in ("spinning", "blocking"))
    said = f"a kernel of 100 us is waited for in {spinning:.0f} us, blocking in {blocking:.0f} us"
    return ("soon" if blocking - spinning <= WAKE_US else "late"), said


def attributes(result: Mapping[str, Json]) -> tuple[str, str]:
    more = [name for name in result["differ"] if name not in CORRECTED]
    said = f"differ: {', '.join(result['differ'])}"
    return ("more", f"{said}; not corrected: {', '.join(more)}") if more else ("known", said)


def remote(result: Mapping[str, Json]) -> tuple[str, str]:
    rates = ", ".join(
        f"{name.removeprefix('rows_of_')} B: {row['gbps']:.2f} GB/s" for name, row in result.items()
    )
    moved = [
        name for name, row in result.items() if row["in_place_us"][-1] < 2 * row["resident_us"]
    ]
    said = f"rows of {rates}"
    if moved:
        return "migrates", f"{said}; as fast as resident at the end: {', '.join(moved)}"
    faster = [name for name, row in result.items() if row["in_place_us"][0] < row["migrated_us"]]
    return ("in_place" if faster else "slow"), said


def verdicts(result: Mapping[str, Json]) -> tuple[str, str]:
    items = result["items"]
    failed = [item["name"] for item in items if item["status"] == "fail"]
    passed = sum(item["status"] == "pass" for item in items)
    said = f"{passed} pass, {len(failed)} fail" + (f": {', '.join(failed[:6])}" if failed else "")
    return ("fail" if failed else "pass" if passed else "no_samples"), said


def speed(result: Mapping[str, Json]) -> tuple[str, str]:
    """Judges the stage only by `window`'s own verdicts: a stage may run without meeting its bar."""
    key, said = verdicts(result)
    window = {item["status"] for item in result["items"] if item["name"].endswith(".window")}
    return (key if key == "fail" else "pass" if "pass" in window else "undecided"), said


JUDGES = {
    **{
        judge.__name__: judge
        for judge in (symbols, param_info, capture, kernel_speed, discard, felt_by_others)
    },
    **{judge.__name__: judge for judge in (lanes, tma, engine, bulk, lazy, poller)},
    **{judge.__name__: judge for judge in (pinned_copies, waits, attributes, remote, speed)},
}
"""Judges by row name; stages without an entry are judged by their verdicts."""


def rows() -> tuple[Row, ...]:
    """Returns the rows of rows.toml, the most important first."""
    found = tomllib.loads(Path(__file__).with_name("rows.toml").read_text())["row"]
    return tuple(
        Row(
            name=row["name"],
            asks=row["asks"],
            judge=JUDGES.get(row["name"], verdicts),
            outcomes=tuple(Outcome(*one) for one in row["outcomes"]),
            stage=row.get("stage", False),
        )
        for row in found
    )


ROWS = rows()


def questions() -> Iterator[str]:
    """Returns the names of the rows that the probe answers."""
    return (row.name for row in ROWS if not row.stage)
