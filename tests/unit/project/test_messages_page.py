"""docs/guides/why.md has an entry for each line that pump's library and pumpd print."""

from __future__ import annotations

import re

from places import DOCS, ROOT

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
    """Errors, warnings and last lines, with X for names and numbers."""
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
    rows = re.findall(r"^\| `([^`]+)` \|", (DOCS / "guides" / "why.md").read_text(), re.MULTILINE)
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
