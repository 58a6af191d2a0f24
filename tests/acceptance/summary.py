"""Makes one page of Markdown from the stages' JSON. Pure: the same JSON gives the same page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acceptance.contract import FAIL, INFO, PASS, STATUSES, UNAVAILABLE
from acceptance.labels import TITLES

Result = Mapping[str, Any]
KEY_FIGURES_MOST = 14
"""Limit that keeps the summary on one page; the JSON has all numbers."""
REASONS_MOST = 12
COLUMNS_MOST = 8
HEADLINE = "headline"
"""Key of an item's values: a short sentence for this page."""


def page(found: Sequence[Result], seconds: float) -> str:
    """Returns the page. `found`: results of the stages in order. `seconds`: the call's duration."""
    if not found:
        return "# GPU acceptance\n\nNo stage has run.\n"
    parts = [
        head(found[0], found, seconds),
        table_of_stages(found),
        *filter(None, (reasons(found, FAIL, "Failed"), key_figures(found), speed(found))),
        *filter(None, (bounds(found, key, title) for key, title in TITLES.items())),
        *filter(None, [reasons(found, UNAVAILABLE, "Could not run here: neither pass nor fail")]),
    ]
    return "\n\n".join(parts) + "\n"


def head(first: Result, found: Sequence[Result], seconds: float) -> str:
    virtual = first["kind"] == "virtual"
    device = f"{first['device']}, driver {first['driver']}, {gib(first['memory_total_bytes'])}"
    lines = [
        "# GPU acceptance: " + ("virtual GPU" if virtual else first["device"]),
        "",
        f"**{first['label']}**" + ("" if virtual else " (measured on this card)"),
        "",
        f"- device: {device}, {gib(first['memory_free_bytes'])} free; runtime {first['runtime']}",
        f"- host: {first['host']}",
        f"- packages: {listed(first['packages'])}",
        f"- commit: {first['commit'][:12]}{' with changes' if first['dirty'] else ''}; "
        f"{first['date']}; {seconds:.0f} s in all" + modes(found),
    ]
    return "\n".join(lines)


def modes(found: Iterable[Result]) -> str:
    if any(result.get("quick") for result in found):
        return "; **--quick: smallest sizes, the figures mean nothing**"
    return ""


def table_of_stages(found: Sequence[Result]) -> str:
    rows = []
    for result in found:
        counts = [str(count(result, status)) for status in STATUSES]
        complete = "yes" if result.get("complete") else "no"
        seconds = f"{result['seconds']:.1f}"
        rows.append([result["stage"], seconds, *counts, complete, result.get("what", "")])
    return markdown(["stage", "s", *STATUSES, "complete", "what"], rows)


def count(result: Result, status: str) -> int:
    return sum(1 for item in result["items"] if item["status"] == status)


def reasons(found: Sequence[Result], status: str, title: str) -> str:
    """Lists items of that status by reason; "" if there are none."""
    return by_reason(
        title,
        (
            (item["reason"] or "no reason given", f"{result['stage']}.{item['name']}")
            for result in found
            for item in result["items"]
            if item["status"] == status
        ),
    )


def bounds(found: Sequence[Result], key: str, title: str) -> str:
    """Lists items that carry that label, by its reason; "" if there are none."""
    return by_reason(
        title,
        (
            (str(item["values"][key]), f"{result['stage']}.{item['name']}")
            for result in found
            for item in result["items"]
            if item["values"].get(key)
        ),
    )


def by_reason(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a section of (reason, name) pairs, one line for each reason; "" without pairs."""
    named: dict[str, list[str]] = {}
    for reason, name in pairs:
        named.setdefault(reason, []).append(name)
    if not named:
        return ""
    lines = [f"- {short(', '.join(names), 160)}: {short(why, 240)}" for why, names in named.items()]
    more = len(lines) - REASONS_MOST
    if more > 0:
        lines = [*lines[:REASONS_MOST], f"- and {more} more in the JSON"]
    return f"## {title}\n\n" + "\n".join(lines)


def key_figures(found: Sequence[Result]) -> str:
    """Lists the headlines that stages gave; "" if there are none."""
    lines = [
        f"- {result['stage']}.{item['name']}: {short(str(item['values'][HEADLINE]), 200)}"
        for result in found
        for item in result["items"]
        if item["status"] in (PASS, INFO) and item["values"].get(HEADLINE)
    ]
    if not lines:
        return ""
    more = len(lines) - KEY_FIGURES_MOST
    if more > 0:
        lines = [*lines[:KEY_FIGURES_MOST], f"- and {more} more in the JSON"]
    return "## Key figures\n\n" + "\n".join(lines)


def speed(found: Sequence[Result]) -> str:
    """Returns a table of stage "speed"'s plain numbers, a row for each item; "" without any."""
    rows = [
        item
        for result in found
        if result["stage"] == "speed"
        for item in result["items"]
        if item["status"] != UNAVAILABLE and numbers(item["values"])
    ]
    if not rows:
        return ""
    keys: list[str] = []
    for item in rows:
        keys += [key for key in numbers(item["values"]) if key not in keys]
    keys = keys[:COLUMNS_MOST]
    body = [
        [item["name"], item["status"], *(figure(item["values"].get(key)) for key in keys)]
        for item in rows
    ]
    return "## Speed\n\n" + markdown(["item", "status", *keys], body)


def numbers(values: Mapping[str, Any]) -> list[str]:
    """Returns the keys of plain numbers."""
    return [
        key
        for key, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def figure(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"

    return "\n".join([line(columns), line("---" for _ in columns), *map(line, rows)])


def listed(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items()) or "none known"


def short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def gib(count_bytes: int) -> str:
    return f"{count_bytes / (1 << 30):.1f} GiB"
