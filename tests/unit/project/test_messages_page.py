"""docs/guides/why.md has an entry for each line of pump's library and pumpd, and pump explain finds
the entry by the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import DOCS, ROOT

from pump.base import paths
from pump.cli.support import guide

PAGE = DOCS / "guides" / "why.md"

CALL = re.compile(
    r"\bpump_(?:say|log|log_once|line_result)"
    r"\(\s*(?:(?:&\w+(?:\[\w+\])?|line),\s*)?(?:PUMP_LOG_(?P<level>\w+),\s*)?"
    r'(?P<text>(?:"(?:[^"\\]|\\.)*"\s*|PRI\w+\s*)+)'
)
REASON = re.compile(
    r"(?:pump_line_reason\(line,|\{PUMP_LOAD\(&worker->\w+\),|#define PUMP_NOTHING_COMPUTED)"
    r'\s*"([^"]+)"'
)
DIRECTIVE = re.compile(r"%%|%[-+ #0-9.*]*(?:hh|h|ll|l|z|j)?[a-z]")


def messages() -> set[str]:
    """Returns errors, warnings and last lines, with X for names and numbers."""
    found = set()
    for source in (ROOT / "shim").rglob("*.c"):
        for call in CALL.finditer(source.read_text(encoding="utf-8")):
            if call["level"] not in {"INFO", "DEBUG"}:
                text = re.sub(r"PRI\w+", '"x"', call["text"])
                text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
                found.add(DIRECTIVE.sub(lambda part: "%" if part[0] == "%%" else "X", text))
    life = ROOT / "shim" / "life"
    reasons = REASON.findall((life / "verdict.c").read_text() + (life / "life.h").read_text())
    return found | {DIRECTIVE.sub("X", text) for text in reasons if text != "%s"}


def entries() -> list[str]:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text().partition("## Messages\n")[2], re.M)
    assert len(rows) == len(set(rows))
    return rows


def fits(entry: str, message: str) -> bool:
    return re.match(".+?".join(map(re.escape, entry.split("..."))), message) is not None


def test_each_message_of_the_code_has_an_entry() -> None:
    found = messages()
    assert len(found) > 40
    assert {line for line in found if not any(fits(entry, line) for entry in entries())} == set()


def test_each_entry_is_a_message_of_the_code() -> None:
    assert [entry for entry in entries() if not any(fits(entry, m) for m in messages())] == []


def test_explain_reads_this_page() -> None:
    assert Path(paths.library("why.md")).read_bytes() == PAGE.read_bytes()


@pytest.mark.parametrize("value", ["17", "3.20 GiB", "'/data/run (2).pump'", "GPU-1: it's full;"])
def test_explain_finds_each_message_of_the_code_whatever_its_names_and_numbers(value: str) -> None:
    known = list(guide.parse(PAGE.read_text()))
    for message in messages():
        shown = re.sub("X+", value, re.sub(r"(?<=[a-z])X", " X", message))
        line = f"pump: [my job] {shown}: and more"
        keys = [entry.key for entry in guide.find(line, known)]
        assert [key for key in keys if fits(key, message)], line
        assert len(keys) <= 3, (line, keys)


def test_explain_finds_each_entry_of_the_page_by_its_key() -> None:
    known = list(guide.parse(PAGE.read_text()))
    assert {*entries(), "late", "dormant", "Are results the same?"} <= {e.key for e in known}
    for entry in known:
        assert guide.find(entry.key, known)[0] == entry
        assert guide.find(entry.key.lower().replace("-", "_"), known)[0] == entry


def test_a_reference_of_the_page_is_an_entry() -> None:
    known = list(guide.parse(PAGE.read_text()))
    references = re.findall(r"[Ss]ee \*([^*]+)\*", PAGE.read_text())
    assert references and set(references) <= {entry.key for entry in known}
