"""Sorts reports of scripts/gpu_probe and results of stages by the GPU that they describe.

Does not trust the files: a part whose form the probe does not write is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probe.constants import derive_profile
from probe.questions import QUESTIONS
from probe.transfer import KEY, mark

from acceptance import results, stage_probe, stages
from acceptance.contract import Json
from acceptance.first_call.archive import load_json
from acceptance.first_call.claims import FORM_ERRORS
from acceptance.machine import VIRTUAL_MARK

REPORTS = ("first.json", "rest.json", "acceptance/probe/gpu_probe.json")
"""The probe's reports in an archive, in the order in which they were taken."""
STATUSES = ("ok", "unsupported", "failed", "timeout", "skipped")
TEXT_MOST = 100
SECONDS_MOST = 1e6


@dataclass
class Card:
    """One kind of GPU with one driver, and its measurements.

    `sources`: files of the archive. `report`: the probe's merged report, None without one.
    `stages`: results of the acceptance by name. `uuids`: hexadecimal digits of each GPU.
    """

    name: str
    driver: str
    uuids: set[str]
    runtime: str
    date: str
    commit: str
    sources: list[str] = field(default_factory=list)
    report: dict[str, Json] | None = None
    stages: dict[str, dict[str, Json]] = field(default_factory=dict)

    @property
    def virtual(self) -> bool:
        return VIRTUAL_MARK in self.name or self.driver == "virtual"

    @property
    def quick(self) -> bool:
        """Returns whether a stage ran with the smallest sizes: such numbers are meaningless."""
        return any(result.get("quick") for result in self.stages.values())

    @property
    def kind(self) -> str:
        """Returns the kind of its numbers."""
        if self.virtual:
            return "virtual GPU, a model's figures"
        return "measured on this card" + (", some with --quick: not figures" if self.quick else "")

    @property
    def day(self) -> str:
        return self.date[:10] if self.date[:1].isdigit() else self.date

    @property
    def label(self) -> str:
        """Returns the label of every page."""
        return (
            f"{self.name}, driver {self.driver}, {self.day}, commit {self.commit[:12]}, "
            f"{self.runtime}, {self.kind}"
        )

    @property
    def short(self) -> str:
        """Returns the label of a table's row."""
        return f"{self.name}, driver {self.driver}, {self.runtime}, {self.day}"

    @property
    def folder(self) -> str:
        """Returns the name of the results folder."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{slug or 'unknown-card'}-{self.day}"

    def same(self, other: Card) -> bool:
        """Returns whether both have the same kind of GPU and driver, as far as both are known.

        Two calls on lent machines rarely get the same GPU, and a profile needs the answers of both.
        """
        told = ((self.driver, other.driver), (self.runtime, other.runtime))
        return self.name == other.name and all(
            mine == its for mine, its in told if known(mine) and known(its)
        )


def known(fact: str) -> bool:
    """Returns whether a report contained that fact about its machine."""
    return bool(fact) and not fact.startswith("unknown")


def cards(folder: Path) -> tuple[list[Card], list[str]]:
    """Returns the GPUs of an unpacked archive, and a line for each missing or skipped part."""
    found: list[Card] = []
    lines: list[str] = []
    for name in REPORTS:
        if not (folder / name).exists():
            if name != REPORTS[-1]:
                lines.append(f"{name}: not in the archive")
            continue
        try:
            _add(found, _of_report(load_json(folder / name), name, lines), lines)
        except ValueError as error:
            lines.append(f"{error}; left out")
    for stage in stages.ORDER:
        file = folder / "acceptance" / f"{stage}.json"
        if file.exists():
            try:
                _add(found, _of_stage(load_json(file), stage), lines)
            except ValueError as error:
                lines.append(f"{error}; left out")
    return found, lines


def _add(found: list[Card], fresh: Card, lines: list[str]) -> None:
    """Merges `fresh` into the card of the same kind, or appends it."""
    for card in found:
        if card.same(fresh):
            break
    else:
        if found:
            names = " and ".join(f"{card.sources[0]} ({card.short})" for card in (found[-1], fresh))
            lines.append(f"kept apart, not of one kind of GPU under one driver: {names}")
        found.append(fresh)
        return
    if fresh.report is not None:
        earlier = card.report or {}
        limits = {**earlier.get(KEY, {}), **fresh.report[KEY]}
        card.report = concluded({**stage_probe.merge(earlier, fresh.report), KEY: limits})
    card.stages |= fresh.stages
    card.sources += fresh.sources
    card.uuids |= fresh.uuids
    card.date = max(card.date, fresh.date)
    card.driver = card.driver if known(card.driver) else fresh.driver or card.driver
    card.runtime = card.runtime if known(card.runtime) else fresh.runtime or card.runtime


def _uuids(device: Mapping[str, Json]) -> set[str]:
    digits = text(device.get("uuid", "")).lower().removeprefix("gpu-")
    return {re.sub(r"[^0-9a-f]", "", digits)} - {""}


def _of_report(found: Mapping[str, Json], source: str, lines: list[str]) -> Card:
    """Parses a report of the probe. Raises ValueError with one line."""
    device, host = found.get("device"), found.get("host")
    asked = found.get("questions")
    if not isinstance(device, dict) or not isinstance(asked, dict) or not device.get("name"):
        raise ValueError(f"{source}: not a report of scripts/gpu_probe with a device")
    device, host = printable(device), printable(host, "\n") if isinstance(host, dict) else {}
    if not isinstance(host.get("runtime"), dict):
        host = {**host, "runtime": {"kind": "unknown"}}
    questions = {name: printable(asked[name]) for name in QUESTIONS if _is_answer(asked.get(name))}
    report = {**found, "device": device, "host": host, "questions": questions}
    report["seconds"] = found["seconds"] if _is_seconds(found.get("seconds")) else 0.0
    limits = found.get(KEY)
    report[KEY] = (
        {str(key): text(why) for key, why in limits.items()} if isinstance(limits, dict) else {}
    )
    dropped = [text(name) for name in asked if name not in questions]
    if dropped:
        lines.append(f"{source}: answers of another form left out: {', '.join(dropped[:4])}")
    return Card(
        name=text(device["name"]),
        driver=_driver(host, device),
        uuids=_uuids(device),
        runtime=text(host["runtime"].get("kind", "unknown")),
        date=_date(found),
        commit=text(found.get("commit") or "unknown"),
        sources=[source],
        report=concluded(report),
    )


def _is_answer(found: Json) -> bool:
    return (
        isinstance(found, dict)
        and found.get("status") in STATUSES
        and isinstance(found.get("result"), dict)
        and isinstance(found.get("reason", ""), str)
        and _is_seconds(found.get("seconds", 0.0))
    )


def _is_seconds(found: Json) -> bool:
    return isinstance(found, int | float) and 0 <= found < SECONDS_MOST


def concluded(report: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the report with the constants derived from its answers, and what does not transfer.

    Raises ValueError if the form of an answer differs from its question's.
    """
    whole = {**report, "questions": {name: {**a} for name, a in report["questions"].items()}}
    own = dict(report.get(KEY) or {})
    try:
        whole["profile"] = derive_profile(whole["questions"])
        mark(whole)
    except FORM_ERRORS as error:
        raise ValueError(f"an answer of another form ({type(error).__name__})") from None
    whole[KEY] = {**own, **whole[KEY]}
    return whole


def transferable(report: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the report without answers and constants that hold only for its runtime."""
    questions = {}
    for name, answer in report["questions"].items():
        reason = answer.get(KEY)
        questions[name] = (
            {"status": "skipped", "reason": f"not adopted: {reason}", "seconds": 0.0, "result": {}}
            if reason
            else answer
        )
    profile = {key: value for key, value in report["profile"].items() if key not in report[KEY]}
    return {**report, "questions": questions, "profile": profile}


def not_adopted(report: Mapping[str, Json]) -> list[str]:
    """Returns the questions whose answers hold only for the report's runtime."""
    return [name for name, answer in report["questions"].items() if answer.get(KEY)]


def _of_stage(found: Mapping[str, Json], stage: str) -> Card:
    """Parses the results of one stage. Raises ValueError with one line."""
    items = found.get("items")
    if not isinstance(items, list) or not found.get("device"):
        raise ValueError(f"{stage}.json: not the result of a stage")
    try:
        clean = [results.item_from(printable(item)).as_json() for item in items]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{stage}.json: items of another form") from None
    return Card(
        name=text(found["device"]),
        driver=text(found.get("driver", "")),
        uuids=_uuids(found),
        runtime=text(found.get("runtime", "")),
        date=_date(found),
        commit=text(found.get("commit") or "unknown"),
        sources=[f"acceptance/{stage}.json"],
        stages={stage: {**printable(found), "items": clean}},
    )


def _driver(host: Mapping[str, Json], device: Mapping[str, Json]) -> str:
    """Returns the version of the driver, or the CUDA version that it supports."""
    if VIRTUAL_MARK in str(device["name"]):
        return "virtual"
    version = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", str(host.get("nvidia_version_file", ""))[:500])
    if version:
        return version[0]
    cuda = device.get("driver_version")
    cuda = cuda if isinstance(cuda, int) else 0
    return f"unknown, for CUDA {cuda // 1000 % 1000}.{cuda % 1000 // 10}"


def _date(found: Mapping[str, Json]) -> str:
    date = str(found.get("date", ""))
    return date[:25] if re.match(r"\d{4}-\d\d-\d\d", date) else "unknown-date"


def printable(found: Json, also: str = "") -> Json:
    """Returns the same JSON with printable texts; `also`: characters that are kept."""
    if isinstance(found, dict):
        return {printable(key): printable(value, also) for key, value in found.items()}
    if isinstance(found, list):
        return [printable(value, also) for value in found]
    if isinstance(found, str) and not found.isprintable():
        return "".join(one if one.isprintable() or one in also else " " for one in found)
    return found


def text(found: Json) -> str:
    """Returns one short printable line that cannot break a Markdown table."""
    letters = (
        letter if letter.isprintable() and letter not in "|`<>" else " "
        for letter in str(found)[:500]
    )
    return " ".join("".join(letters).split())[:TEXT_MOST]
