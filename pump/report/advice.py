"""Explains why a run was slow, and what to try. Pure: numbers in, sentences out.

docs/guides/why.md explains each cause at length, under the same key.
"""

from __future__ import annotations

import shlex
from typing import Any, Final, NamedTuple

from pump.base.names import one_line, quoted
from pump.report.words import percent, plain, seconds

GOOD_HITS: Final = 0.99
MANY: Final = 0.25
"""A cause is named if it has at least this share of the misses."""
MUCH_WAITING: Final = 0.25
LONG_TURNS: Final = 0.01
"""Waits for turns are named above this share of a run's time, as in the job's last line."""
NOTHING: Final = 0.01
"""Up to this share of a run's time, a difference may be chance."""
VAGUE: Final = 0.2
"""If the range of the time lost exceeds this share of a run's time, only the range is shown."""


class Advice(NamedTuple):
    """key: heading in docs/guides/why.md. found: the cause. advice: what to try. command: the next
    command, complete."""

    key: str
    found: str
    advice: str
    command: str


def advise(report: dict[str, Any]) -> list[Advice]:
    """Returns the findings on a report (pump.report.gather), the most important first."""
    found = _of_comparison(report) + _of_estimate(report)
    if not report["sampled"]:
        return [
            *found,
            Advice(
                "no-samples",
                "The recording has no memory samples: the run ended too early, or an old version "
                "of pump made it.",
                "Record the run again.",
                _rerun(report, f"--record {quoted(report['file'])}"),
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
                "According to pump's model, nearly all blocks were on the GPU when operations "
                "needed them."
                if used
                else "No operation used a block a second time, so pump saw no miss.",
                "The model can be wrong, because the driver does not report where blocks are. "
                "Simulate the run to estimate what memory transfers cost.",
                _sweep(report),
            )
        )
    return found


def time_lost(report: dict[str, Any]) -> str:
    """Returns the headline of a report; the time is measured if there is a run to compare with."""
    compared = report.get("compared")
    return f"Time lost to memory: {_measured(compared) or estimated(report.get('time_lost'))}"


def _measured(compared: dict[str, Any] | None) -> str:
    if compared is None:
        return ""
    lost, error = compared["lost_seconds"], compared["error_seconds"]
    than = f"measured against {plain(compared['file'])}"
    than += f", \u00b1 {seconds(error)}" if error else ""
    if lost <= 0:
        return f"none, {than}"
    least = "" if compared["other_fits"] else "at least "
    share, whole = percent(compared["lost_share"]), seconds(compared["seconds"])
    return f"{least}{share} of {whole} ({seconds(lost)}), {than}"


def estimated(lost: dict[str, float] | None) -> str:
    """Returns the time lost as pump estimates it (pump.report.gather.estimate_of), in words."""
    if lost is None:
        return "not known from this recording"
    whole, least, most = lost["of_seconds"], lost["least_seconds"], lost["most_seconds"]
    if most <= NOTHING * whole:
        return f"under {percent(NOTHING)} of {seconds(whole)}"
    between = f"({seconds(least)} to {seconds(most)})"
    if most - least > VAGUE * whole:
        share = f"{percent(least / whole)} to {percent(most / whole)}"
    else:
        share = f"about {percent(lost['seconds'] / whole)}"
    return f"{share} of {seconds(whole)} {between}"


def waited_for_turns(report: dict[str, Any]) -> str:
    """Returns how long the program waited for its turns on a GPU; "" if it did not."""
    waited_s = report["turns_waited_seconds"]
    return seconds(waited_s) if waited_s else ""


def _sweep(report: dict[str, Any]) -> str:
    return f"pump simulate {quoted(report['file'])} --sweep"


def _rerun(report: dict[str, Any], options: str, verb: str = "pump-run") -> str:
    """Returns the command line that runs the recorded command again."""
    job = report["job"] if isinstance(report["job"], dict) else {}
    words = [verb, options] if options else [verb]
    if isinstance(virtual := job.get("virtual"), dict) and report["devices"]:
        size = f"{report['devices'][0]['total_bytes'] >> 20}MiB"
        words.append(f"--virtual {quoted(str(virtual.get('profile')))} --virtual-set memory={size}")
    if budget := job.get("budget"):
        words.append(f"--budget {quoted(str(budget))}")
    command = report["command"]
    known = isinstance(command, list) and command
    return one_line(f"{' '.join(words)} -- {shlex.join(map(str, command)) if known else 'COMMAND'}")


def _of_estimate(report: dict[str, Any]) -> list[Advice]:
    lost = report.get("time_lost")
    if lost is None or report.get("compared") or lost["seconds"] <= NOTHING * lost["of_seconds"]:
        return []
    whole, least, most = lost["of_seconds"], lost["least_seconds"], lost["most_seconds"]
    between = f"{seconds(whole - most)} to {seconds(whole - least)}"
    vague = most - least > VAGUE * whole
    would = between if vague else f"about {seconds(whole - lost['seconds'])}"
    found = [
        Advice(
            "time-lost",
            f"With enough memory, the run would take {would} instead of {seconds(whole)}.",
            "Simulate the run to see how its speed depends on the GPU memory.",
            _sweep(report),
        )
    ]
    core_s = lost.get("core_seconds", 0.0)
    if core_s > lost["seconds"] / 2:
        found.append(
            Advice(
                "cores",
                f"For {seconds(core_s)} of the time lost, the program waited for a CPU core: "
                "pump's threads and the driver use CPU cores, too.",
                "Give the job more CPU cores, or fewer threads.",
                _explain("cores"),
            )
        )
    return found


def _of_comparison(report: dict[str, Any]) -> list[Advice]:
    """Returns the time lost if a comparison with another run shows it."""
    compared = report.get("compared")
    if compared is None:
        return []
    lost, error, whole = (compared[f"{name}seconds"] for name in ("lost_", "error_", ""))
    took = (
        f"{compared['operations']:,} operations took {seconds(whole)} in this run and "
        f"{seconds(compared['other_seconds'])} in {plain(compared['file'])}."
    )
    if lost <= max(error, NOTHING * whole):
        more = "This run lost no measurable time to memory. Look at the program and its input."
        return [Advice("time-lost", took, more, _explain("host"))]
    if not compared["other_fits"]:
        more = (
            "The other run was short of memory, too, so the loss is larger. Record a run with "
            "enough memory."
        )
        return [Advice("time-lost", took, more, _explain("time-lost"))]
    more = "Compare the policies, each in several runs."
    return [Advice("time-lost", took, more, _rerun(report, "", "pump compare"))]


def _explain(key: str) -> str:
    return f"pump explain {key}"


def _of_device(report: dict[str, Any], device: dict[str, Any]) -> list[Advice]:
    used, hit = device["blocks_used"], device["blocks_hit"]
    if used == 0 or hit >= GOOD_HITS * used:
        return []
    misses = {cause: device[f"blocks_{cause}"] for cause in ("no_room", "late", "unseen")}
    known = sum(misses.values())
    whole = max(used - hit, known)
    name, window = f"GPU {device['device']}", _rerun(report, "--policy window")
    if report["policy"] == "demand":
        missed = percent(1 - hit / used, 1)
        return [
            Advice(
                "demand",
                f"{missed} of the block uses on {name} missed. The policy demand does not "
                "prefetch.",
                "Use a policy that prefetches.",
                window,
            )
        ]
    peak, budget = device["allocated_bytes_peak"], max(1, device["budget_bytes"])
    counts = {"demand": whole - known, **misses}
    shares = {cause: f"{percent(n / whole)} of the misses on {name}" for cause, n in counts.items()}
    found = {
        "demand": Advice(
            "demand",
            f"{shares['demand']} happened under a policy that does not prefetch.",
            "Use the policy window from the start.",
            window,
        ),
        "no_room": Advice(
            "no-room",
            f"{shares['no_room']} happened because the budget was full. The program's peak was "
            f"{peak / budget:.2f}x the budget.",
            "Raise --budget if you set it. Otherwise reduce the batch size, or free memory before "
            "the phase with the peak.",
            _explain("no-room"),
        ),
        "late": Advice(
            "late",
            f"{shares['late']} were late prefetches: the link is slower than the program.",
            "Increase the work per byte (larger batches, lower precision) or the budget.",
            _explain("late"),
        ),
        "unseen": Advice(
            "unseen",
            f"{shares['unseen']} were unexpected: kernels started before pump could prefetch, or "
            "their arguments hide the memory.",
            "Synchronize less often, so that the program runs ahead of the GPU. CUDA graphs and "
            "--granularity tensor also show pump more.",
            _explain("unseen"),
        ),
    }
    return [found[cause] for cause, count in counts.items() if count >= MANY * whole]


def _of_job(report: dict[str, Any]) -> list[Advice]:
    found = []
    length_s = report["active_seconds"]
    lost = sum(report["lost"].values())
    if lost:
        found.append(
            Advice(
                "lost",
                f"{lost:,} events were lost, because pumpd had too little CPU time.",
                "Leave one CPU core to pumpd, or give the job fewer threads.",
                _explain("lost"),
            )
        )
    turns_s = report["turns_waited_seconds"] or 0.0
    if turns_s > LONG_TURNS * length_s:
        found.append(
            Advice(
                "turns",
                f"The program's threads waited {seconds(turns_s)} in total for their turns on "
                "the GPU, while other jobs used it.",
                "Run fewer jobs on this GPU, or increase this job's --priority.",
                "pump jobs",
            )
        )
    idle = report["host_gap_seconds"] / length_s if length_s > 0 else 0.0
    if idle > MUCH_WAITING:
        found.append(
            Advice(
                "host",
                f"For {percent(idle)} of the time, the GPU was idle: the program worked on the "
                "CPU between a wait and the next launch.",
                "Load data in other threads, and synchronize less often.",
                _explain("host"),
            )
        )
    return found
