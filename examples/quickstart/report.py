"""Formats the result of scripts/quickstart as a table and as JSON. Pure.

Columns of the table:
  `slow-down`   Time / time of the same iterations with enough memory.
  `of floor`    The least possible time of any policy (floor.py) / time.
  `in`, `out`   GiB moved to the GPU and to the host by the whole run.
  `same`        Whether the weights are bit-identical to the weights with enough memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNLIMITED = "unlimited"
NAIVE = "naive"
DEMAND = "demand"
WINDOW = "window"

MEANING = {
    UNLIMITED: "enough memory, without pump",
    NAIVE: "Unified Memory without pump: the driver pages on demand",
    DEMAND: "pump, without prefetching",
    WINDOW: "pump, prefetching for the operations that the program has issued",
}


@dataclass(frozen=True)
class Run:
    """One training run. A metric that this machine cannot measure is None.

    `oversubscription`: footprint / memory, 1.0 for unlimited. `seconds`: of the timed
    iterations. Bytes and faults: of the whole run.
    """

    policy: str
    oversubscription: float
    seconds: float
    h2d_bytes: int | None
    d2h_bytes: int | None
    faults: int | None
    weights_sha256: str | None


@dataclass(frozen=True)
class Setting:
    """The GPU of the runs. `baseline` is the policy that speed-ups refer to.

    `floors`: seconds of the floor by oversubscription; `remark`: explains the baseline.
    """

    gpu: str
    virtual: bool
    mode: str
    time_scale: float
    baseline: str
    floors: Mapping[float, float]
    remark: str


def unlimited(runs: Sequence[Run]) -> Run:
    """Returns the run with enough memory. Raises ValueError unless there is exactly one."""
    found = [run for run in runs if run.policy == UNLIMITED]
    if len(found) != 1:
        raise ValueError(f"{len(found)} unlimited runs instead of one")
    return found[0]


def identical(runs: Sequence[Run]) -> bool:
    """Returns whether all runs produced the weights of the unlimited one. A missing hash counts
    as different."""
    return all(_same(run, unlimited(runs)) for run in runs)


def _same(run: Run, reference: Run) -> bool:
    return run.weights_sha256 is not None and run.weights_sha256 == reference.weights_sha256


def speedups(setting: Setting, runs: Sequence[Run]) -> dict[str, float]:
    """Returns baseline seconds / window seconds, by oversubscription as text, such as "1.5"."""
    seconds = {(run.policy, run.oversubscription): run.seconds for run in runs}
    return {
        f"{ratio:.1f}": round(seconds[setting.baseline, ratio] / seconds[WINDOW, ratio], 3)
        for ratio in sorted({ratio for policy, ratio in seconds if policy == WINDOW})
    }


def as_json(setting: Setting, runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the result as --json writes it."""
    return {
        "gpu": setting.gpu,
        "virtual": setting.virtual,
        "mode": setting.mode,
        "time_scale": setting.time_scale,
        "runs": [
            {
                "policy": run.policy,
                "oversubscription": run.oversubscription,
                "seconds": round(run.seconds, 4),
                "slowdown": round(run.seconds / unlimited(runs).seconds, 3),
                "of_floor": round(setting.floors[run.oversubscription] / run.seconds, 3),
                "h2d_bytes": run.h2d_bytes,
                "d2h_bytes": run.d2h_bytes,
                "faults": run.faults,
                "weights_sha256": run.weights_sha256,
            }
            for run in runs
        ],
        "speedup": speedups(setting, runs),
        "identical": identical(runs),
    }


COLUMNS = ("policy", "memory", "time", "slow-down", "of floor", "in", "out", "faults", "same")


def table(setting: Setting, runs: Sequence[Run]) -> str:
    """Returns the result as a table, labelled if the GPU is virtual."""
    reference = unlimited(runs)
    rows = [COLUMNS]
    for run in runs:
        rows.append(
            (
                run.policy,
                f"1/{run.oversubscription:.1f}" if run.policy != UNLIMITED else "all",
                f"{run.seconds:.2f} s",
                f"{run.seconds / reference.seconds:.2f}x",
                f"{setting.floors[run.oversubscription] / run.seconds:.0%}",
                _gib(run.h2d_bytes),
                _gib(run.d2h_bytes),
                "-" if run.faults is None else f"{run.faults:,}",
                "yes" if _same(run, reference) else "NO",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [_label(setting), ""]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells))
    lines.append("")
    lines += [f"  {policy}: {MEANING[policy]}" for policy in dict.fromkeys(r.policy for r in runs)]
    lines += ["", setting.remark]
    for ratio, factor in speedups(setting, runs).items():
        lines.append(f"Speed-up at {ratio}x{_virtual(setting)}: {factor:.2f}")
    same = identical(runs)
    lines.append(f"Results {'are bit-identical' if same else 'DIFFER: this is a bug'}.")
    return "\n".join(lines)


def curve(data: Mapping[str, Any]) -> str:
    """Returns a table of the training with other kernel times (docs/pictures/intensity.json)."""
    (found,) = (one for one in data["curves"] if one["program"] == "quickstart")
    names = ("naive", "window", "planned", "floor")
    lines = [
        f"The same training with other kernel times, slow-down at {data['oversubscription']:.1f}x "
        "(SIMULATED; docs/guides/choose.md explains it):",
        "",
        "  " + "kernels / link".ljust(16) + "".join(name.rjust(9) for name in names),
    ]
    for point in found["points"][::2]:
        cells = "".join(f"{point[name]:8.1f}x" for name in names)
        lines.append("  " + f"{point['x']:g}".ljust(16) + cells)
    lines += [
        "",
        f"  kernels / link: kernel time / link time; {found['given_x']:.1f} in profile "
        f"{data['profile']}",
    ]
    return "\n".join(lines)


def _label(setting: Setting) -> str:
    if not setting.virtual:
        return f"{setting.gpu}, {setting.mode}"
    return (
        f"VIRTUAL GPU {setting.gpu}: times come from a model, not from hardware "
        f"(mode {setting.mode}, time scale {setting.time_scale:g})"
    )


def _virtual(setting: Setting) -> str:
    return " (virtual)" if setting.virtual else ""


def _gib(length_bytes: int | None) -> str:
    return "-" if length_bytes is None else f"{length_bytes / 2**30:.1f} GiB"
