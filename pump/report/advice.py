"""Why a run was slow, in sentences, and what to try. Pure: figures in, sentences out.

docs/guides/why.md explains each of them at length, under the same key.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pump.report.words import plain, seconds

GOOD_HITS: Final = 0.99
MANY: Final = 0.25
"""Least share of the misses for which a cause is named."""
MUCH_WAITING: Final = 0.25
LONG_TURNS: Final = 0.01
"""Least share of a run's time for which waits for turns are named, as in the job's last line."""
NOTHING: Final = 0.01
"""Share of a run's time below which two runs differ by chance."""
VAGUE: Final = 0.2
"""Share of a run's time from which the time lost is told as a range alone."""


class Advice(NamedTuple):
    """key: heading in docs/guides/why.md. found: what the figures say. advice: what to try."""

    key: str
    found: str
    advice: str


def advise(report: dict[str, Any]) -> list[Advice]:
    """The findings on a report (pump.report.gather), the most important first."""
    found = _of_comparison(report.get("compared")) + _of_estimate(report)
    if not report["sampled"]:
        return [
            *found,
            Advice(
                "no-samples",
                "The recording holds no samples of memory: it ended at once, or an older pump "
                "made it.",
                "Record again to see where memory was.",
            ),
        ]
    for device in report["devices"]:
        found += _of_device(report, device)
    found += _of_job(report)
    if not found:
        used = any(device["blocks_used"] for device in report["devices"])
        found.append(
            Advice(
                "well",
                "By pump's model nearly all blocks were on the GPU when operations needed them."
                if used
                else "pump saw no block that was used a second time, so none that was missed.",
                "The model may be wrong, since the driver does not tell where blocks are. `pump "
                "simulate FILE --sweep` estimates what moving memory costs all the same; `pump "
                "report FILE --with OTHER` measures it against a recording with memory for all.",
            )
        )
    return found


def time_lost(report: dict[str, Any]) -> str:
    """The headline of a report: measured, where it was compared with another one."""
    compared = report.get("compared")
    if compared is None:
        return estimated(report.get("time_lost"))
    lost, error = compared["lost_seconds"], compared["error_seconds"]
    sure = "" if compared["other_fits"] else "at least "
    within = f", to within {seconds(error)}" if error else ""
    if lost <= 0:
        return f"none against {plain(compared['file'])}{within}"
    return (
        f"{sure}{seconds(lost)}, {compared['lost_share']:.1%} of "
        f"{seconds(compared['seconds'])} for {compared['operations']:,} operations{within}; "
        f"{seconds(compared['other_seconds'])} in {plain(compared['file'])}"
    )


def estimated(lost: dict[str, float] | None) -> str:
    """The time lost as pump estimates it (pump.report.gather.estimate_of), in words."""
    if lost is None:
        return (
            "not known from this recording; record the command with memory for everything "
            "too, then pump report FILE --with OTHER"
        )
    whole, least, most = lost["of_seconds"], lost["least_seconds"], lost["most_seconds"]
    if most <= NOTHING * whole:
        return f"none that could be seen, of {seconds(whole)}"
    between = f"{seconds(least)} to {seconds(most)}"
    if most - least > VAGUE * whole:
        return f"{between}, {least / whole:.0%} to {most / whole:.0%} of {seconds(whole)}"
    return (
        f"about {seconds(lost['seconds'])}, {lost['seconds'] / whole:.0%} of {seconds(whole)} "
        f"({between})"
    )


def waited_for_turns(report: dict[str, Any]) -> str:
    """Returns how long the program waited for its turns on a GPU; "" if it did not."""
    waited_s = report["turns_waited_seconds"]
    return seconds(waited_s) if waited_s else ""


def _with_room(lost: dict[str, float]) -> str:
    """How long the run would take; as a range where that is all that is known."""
    whole, least, most = lost["of_seconds"], lost["least_seconds"], lost["most_seconds"]
    if most - least > VAGUE * whole:
        return f"{seconds(whole - most)} to {seconds(whole - least)}"
    return f"about {seconds(whole - lost['seconds'])}"


def _of_estimate(report: dict[str, Any]) -> list[Advice]:
    lost = report.get("time_lost")
    if lost is None or report.get("compared") or lost["seconds"] <= NOTHING * lost["of_seconds"]:
        return []
    return [
        Advice(
            "time-lost",
            f"Waits for memory cost {estimated(lost)}; with memory for everything it would take "
            f"{_with_room(lost)}.",
            "`pump simulate FILE --sweep` estimates the speed with more memory, and `pump compare "
            "-- COMMAND` measures it.",
        )
    ]


def _of_comparison(compared: dict[str, Any] | None) -> list[Advice]:
    """The time lost, where another run of the program tells it."""
    if compared is None:
        return []
    lost, share = compared["lost_seconds"], compared["lost_share"]
    error, whole = compared["error_seconds"], compared["seconds"]
    took = (
        f"{compared['operations']:,} operations took {seconds(whole)} here and "
        f"{seconds(compared['other_seconds'])} in {plain(compared['file'])}"
    )
    about = f", to within {seconds(error)}" if error else ""
    if lost <= max(error, NOTHING * whole):
        return [
            Advice(
                "time-lost",
                f"{took}: this run lost no time that can be measured{about}.",
                "More memory would not make it faster; look at the program and its input.",
            )
        ]
    if not compared["other_fits"]:
        more = (
            "The other run was short of memory itself, so the time lost is longer: record one with "
            "memory for everything."
        )
    else:
        more = (
            "`pump simulate FILE --sweep` estimates the speed with more memory, and `pump compare "
            "-- COMMAND` measures it under each policy."
        )
    return [
        Advice("time-lost", f"{took}: {seconds(lost)} ({share:.0%}) lost{about}.", more),
    ]


def _of_device(report: dict[str, Any], device: dict[str, Any]) -> list[Advice]:
    used, hit = device["blocks_used"], device["blocks_hit"]
    name = f"GPU {device['device']}"
    if used == 0 or hit >= GOOD_HITS * used:
        return []
    misses = {cause: device[f"blocks_{cause}"] for cause in ("no_room", "late", "unseen")}
    told = sum(misses.values())
    whole = max(used - hit, told)
    said = f"{name}: {1 - hit / used:.1%} of the blocks that operations used were not there"
    if report["policy"] == "demand":
        return [
            Advice(
                "demand",
                f"{said}; the policy demand prefetches nothing.",
                "Run with --policy window.",
            )
        ]
    found = []
    if whole - told >= MANY * whole:
        found.append(
            Advice(
                "demand",
                f"{said}; {1 - told / whole:.0%} of these under a policy that prefetches nothing.",
                "Run with --policy window from the beginning.",
            )
        )
    if misses["no_room"] >= MANY * whole:
        peak, budget = device["allocated_bytes_peak"], max(1, device["budget_bytes"])
        found.append(
            Advice(
                "no-room",
                f"{said}; for {misses['no_room'] / whole:.0%} of these the budget left no room "
                f"(memory at its peak: {peak / budget:.2f} times the budget).",
                "Raise --budget if it was set by choice, make batches smaller, or free what is "
                "not needed during the largest phase.",
            )
        )
    if misses["late"] >= MANY * whole:
        found.append(
            Advice(
                "late",
                f"{said}; {misses['late'] / whole:.0%} of these were on their way: the link to "
                "the GPU was slower than the program.",
                "More work per byte helps (larger batches over the same weights, lower "
                "precision of what is moved), as does a larger budget.",
            )
        )
    if misses["unseen"] >= MANY * whole:
        found.append(
            Advice(
                "unseen",
                f"{said}; {misses['unseen'] / whole:.0%} of these ran before pump could act, or "
                "reached memory that their arguments do not show.",
                "Synchronise less often, so that the program runs ahead of the GPU; CUDA "
                "graphs and --granularity tensor show pump more.",
            )
        )
    return found


def _of_job(report: dict[str, Any]) -> list[Advice]:
    found = []
    length_s = report["seconds"]
    lost = sum(report["lost"].values())
    if lost:
        found.append(
            Advice(
                "lost",
                f"{lost:,} events were lost: pumpd did not get enough of a processor.",
                "Leave one core to pumpd, or give the job fewer threads.",
            )
        )
    turns_s = report["turns_waited_seconds"] or 0.0
    if turns_s > LONG_TURNS * length_s:
        found.append(
            Advice(
                "turns",
                f"The program waited {seconds(turns_s)} for its turns on the GPU, all its threads "
                "together: other jobs had it.",
                "Run fewer jobs on this GPU at once, or give this one a greater --priority.",
            )
        )
    idle = report["host_gap_seconds"] / length_s if length_s > 0 else 0.0
    if idle > MUCH_WAITING:
        found.append(
            Advice(
                "host",
                f"The program was busy on the CPU between a wait and its next operation for "
                f"{idle:.0%} of the time.",
                "The GPU has nothing to do then: load data in other threads, wait less often.",
            )
        )
    return found
