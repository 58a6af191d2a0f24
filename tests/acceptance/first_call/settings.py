"""Lists settings and constants whose answers differ from pump's assumptions. Changes none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from acceptance.contract import Json
from acceptance.first_call.claims import FORM_ERRORS, answer
from acceptance.first_card import rows
from acceptance.first_card.page import judged as judged_row

DIFFERS = 1.1
"""A line is worth reading if found and assumed values differ at least by this factor."""
NOTHING = 1e-6
"""A value below this share of the other one counts as 0, as an error of a fit."""
DECIDES = float("inf")
"""Ratio of an answer that is not a number: an unexpected outcome is listed first."""
GAIN_LEAST = 0.9
"""With fewer threads, this share of the best rate is enough."""
NO_SAMPLES = "no_samples"
SLICES_MIB = {"up_to_256": 256, "up_to_32": 32, "up_to_8": 8}
PLACES_MOST = 3

ASSUMED = {
    "symbols": ("known",),
    "param_info": ("either", "own"),
    "capture": ("holds",),
    "kernel_speed": ("same",),
    "discard": ("unmaps",),
    "felt_by_others": ("up_to_32", "up_to_256"),
    "lanes": ("priority", "apart"),
    "tma": ("faults",),
    "engine": ("kept",),
    "bulk": ("right",),
    "lazy": ("same_context", "everywhere", "eager"),
    "poller": ("free",),
    "pinned_copies": ("same",),
    "waits": ("soon",),
    "attributes": ("known",),
    "remote": ("in_place",),
}
"""Outcomes of docs/first-card.md for which pump works as designed."""


@dataclass(frozen=True)
class Difference:
    """A line of the list. `assumed` and `found` include their units; `ratio` is at least 1."""

    name: str
    assumed: str
    found: str
    ratio: float
    where: str

    def line(self) -> str:
        times = "" if self.ratio == DECIDES else f", {self.ratio:.1f} times"
        return f"{self.name}: assumed {self.assumed}, found {self.found}{times} ({self.where})"


@dataclass(frozen=True)
class Coded:
    """A constant in the code. `pattern` finds its number in the file, and `scale` converts that
    number to `unit`. `found` returns the measured value, None for "as assumed"."""

    name: str
    file: str
    pattern: str
    unit: str
    question: str
    found: Callable[[Mapping[str, Json]], float | None]
    scale: float = 1.0


def quiet_slice_mib(report: Mapping[str, Json]) -> float | None:
    """Returns the size of the longest slice to the host that other threads do not feel."""
    key, _ = rows.felt_by_others(report["questions"]["felt_by_others"]["result"])
    return SLICES_MIB.get(key)


def most_lanes_without_delay(report: Mapping[str, Json]) -> float | None:
    """Returns how many lanes of another priority delay no kernel at 32 queues; None: any number."""
    answers = report["questions"]["lanes"]["result"]["connections_32"]
    stuck = [
        row["first_stuck_at_lanes"]
        for name, row in answers.items()
        if name.startswith("held_") and name != "held_default" and row.get("first_stuck_at_lanes")
    ]
    return max(min(stuck) - 1, 1) if stuck else None


def enough_threads(way: str) -> Callable[[Mapping[str, Json]], float]:
    """Returns a judge for the fewest threads that suffice for 8 MiB slices; `way`: in or out."""

    def found(report: Mapping[str, Json]) -> float:
        rates = {
            n: answer(
                report, "prefetch_threads", f"slices_8_mib_threads_{n}", f"{way}_gbps", "median"
            )
            for n in (1, 2, 4)
        }
        return min(n for n in rates if rates[n] >= GAIN_LEAST * max(rates.values()))

    return found


LIMITS = "shim/base/limits.h"
CODED = (
    Coded("SLICE_BLOCKS_MOST", "pump/model/bounds.py", r"^SLICE_BLOCKS_MOST = (\d+)$", "MiB",
          "felt_by_others", quiet_slice_mib, 2.0),
    Coded("PUMP_IN_LANES", LIMITS, r"^#define PUMP_IN_LANES (\d+)$", "lanes", "lanes",
          most_lanes_without_delay),
    Coded("PUMP_IN_THREADS_MOST", LIMITS, r"^#define PUMP_IN_THREADS_MOST (\d+)$", "threads",
          "prefetch_threads", enough_threads("in")),
    Coded("PUMP_OUT_THREADS_MOST", LIMITS, r"^#define PUMP_OUT_THREADS_MOST (\d+)$", "threads",
          "prefetch_threads", enough_threads("out")),
)  # fmt: skip


def differences(report: Mapping[str, Json], base: str, root: Path) -> list[Difference]:
    """Lists what the report (only its transferable part) contradicts, the largest ratio first.

    base: name of the nearest profile included in pump. Raises what pump_lab.profiles raises, and
    ImportError if pump's packages are missing.
    """
    found = [*_outcomes(report), *_coded(report, root), *_profile(report, base, root)]
    return sorted(found, key=lambda one: -one.ratio)


def ratio(assumed: float, found: float) -> float:
    """Returns the ratio of two values, at least 1; DECIDES if only one of them is practically 0."""
    low, high = sorted((abs(assumed), abs(found)))
    if low == high:
        return 1.0
    return high / low if low > NOTHING * high else DECIDES


def _outcomes(report: Mapping[str, Json]) -> Iterator[Difference]:
    for row in rows.ROWS:
        one = report["questions"].get(row.name, {})
        if row.name not in ASSUMED or one.get("status") not in ("ok", rows.UNSUPPORTED):
            continue
        key, _ = judged_row(row, one["result"]) if one["status"] == "ok" else (rows.UNSUPPORTED, "")
        change = next((other.change for other in row.outcomes if other.key == key), None)
        if change is not None and key not in (*ASSUMED[row.name], NO_SAMPLES):
            assumed = " or ".join(ASSUMED[row.name])
            yield Difference(row.name, assumed, key, DECIDES, change)


def _coded(report: Mapping[str, Json], root: Path) -> Iterator[Difference]:
    for one in CODED:
        if report["questions"].get(one.question, {}).get("status") != "ok":
            continue
        try:
            found = one.found(report)
        except FORM_ERRORS:
            continue
        assumed = coded_value(one, root)
        if found is None or assumed is None or ratio(assumed, found) < DIFFERS:
            continue
        yield Difference(
            one.name,
            f"{assumed:g} {one.unit}",
            f"{found:g} {one.unit}",
            ratio(assumed, found),
            f"{one.file}; question {one.question}",
        )


def coded_value(one: Coded, root: Path) -> float | None:
    """Returns the constant in the code; None if the code does not contain it."""
    try:
        match = re.search(one.pattern, (root / one.file).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return float(match[1]) * one.scale if match else None


def _profile(report: Mapping[str, Json], base: str, root: Path) -> Iterator[Difference]:
    from pump_lab import profiles
    from pump_lab.profiles import from_probe

    assumed = profiles.load(base)
    fields = profile_fields(root)
    for key, constant in from_probe.constants_of(report, assumed, "found").items():
        value, old = constant.value, assumed.values[key]
        if constant.kind == from_probe.ASSUMED or key.startswith("device."):
            continue
        if isinstance(value, str) or isinstance(old, str) or ratio(old, value) < DIFFERS:
            continue
        where = users(root, fields.get(key, key))
        yield Difference(
            key,
            f"{old:g} ({base})",
            f"{value:g} ({constant.kind})",
            ratio(old, value),
            where or "lab/pump_lab/profiles",
        )


def profile_fields(root: Path) -> dict[str, str]:
    """Returns the field of struct uvm_profile for each key of a profile."""
    try:
        lines = (root / "lab/pump_lab/profiles/keys.def").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r'^PROFILE_KEY\("([\w.]+)", \w+, (\w+),', lines, re.MULTILINE))


@cache
def model(root: Path) -> tuple[tuple[str, str], ...]:
    """Returns name and text of each source file of the model."""
    rooms = (root / "lab" / room for room in ("driver", "gpu", "simulate"))
    files = sorted(file for room in rooms for file in room.rglob("*.c"))
    return tuple(
        (str(file.relative_to(root)), file.read_text(encoding="utf-8", errors="replace"))
        for file in files
    )


def users(root: Path, field: str) -> str:
    """Names a few of the model's files that read a field."""
    reads = re.compile(rf"(?:->|\.){field}\b")
    found = [name for name, text in model(root) if reads.search(text)]
    more = f" and {len(found) - PLACES_MOST} more" if len(found) > PLACES_MOST else ""
    return ", ".join(found[:PLACES_MOST]) + more


def page(found: list[Difference], label: str, base: str) -> str:
    """Returns the differences from the assumptions as a page of Markdown."""
    head = [
        "# What differs from the assumptions",
        "",
        f"{label}. Assumed values are those of the profile {base} and of the code. Nothing was",
        "changed: compare each value with the answers behind it first (docs/uvm.md).",
        "",
    ]
    if not found:
        return "\n".join([*head, f"No answer differs by a factor of {DIFFERS:g} or more."]) + "\n"
    lines = [
        "| what | assumed | found | ratio | where it is used, or what to change |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        times = "decides" if one.ratio == DECIDES else f"{one.ratio:.1f}"
        lines.append(f"| {one.name} | {one.assumed} | {one.found} | {times} | {one.where} |")
    return "\n".join([*head, *lines]) + "\n"
