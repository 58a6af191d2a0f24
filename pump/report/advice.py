"""Why a run was slow, in sentences, and what to try. Pure: figures in, sentences out.

docs/slow.md explains each of them at length, under the same key.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

GOOD_HITS: Final = 0.99
MANY: Final = 0.25
"""Least share of the misses for which a cause is named."""
MUCH_WAITING: Final = 0.25


class Advice(NamedTuple):
    """key: heading in docs/slow.md. found: what the figures say. advice: what to try."""

    key: str
    found: str
    advice: str


def advise(report: dict[str, Any]) -> list[Advice]:
    """The findings on a report (pump.report.gather), the most important first."""
    found: list[Advice] = []
    if not report["sampled"]:
        return [
            Advice(
                "no-samples",
                "The recording holds no samples of memory: it ended at once, or an older pump "
                "made it.",
                "Record again to see where memory was.",
            )
        ]
    for device in report["devices"]:
        found += _of_device(report, device)
    found += _of_job(report)
    if not found:
        used = any(device["blocks_used"] for device in report["devices"])
        found.append(
            Advice(
                "well",
                "Nearly all blocks were there when they were needed, as far as pump could tell."
                if used
                else "pump saw no block that was used a second time, so none that was missed.",
                "That is a belief, not a measurement: what moving memory costs all the same, "
                "`pump simulate FILE --sweep` estimates.",
            )
        )
    return found


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
                f"{said}; the policy demand brings nothing in early.",
                "Run with --policy window.",
            )
        ]
    found = []
    if whole - told >= MANY * whole:
        found.append(
            Advice(
                "demand",
                f"{said}; for {1 - told / whole:.0%} of these the policy of "
                "that time brought nothing in early.",
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
    seconds = report["seconds"]
    lost = sum(report["lost"].values())
    if lost:
        found.append(
            Advice(
                "lost",
                f"{lost:,} events were lost: pumpd did not get enough of a processor.",
                "Leave one core to pumpd, or give the job fewer threads.",
            )
        )
    idle = report["host_gap_seconds"] / seconds if seconds > 0 else 0.0
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
