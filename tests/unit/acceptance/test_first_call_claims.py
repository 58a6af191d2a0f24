"""Each row of docs/uvm.md that a question settles has a judge, and a mark shows the finding."""

from __future__ import annotations

import copy
import csv
import re
from fnmatch import filter as matching
from typing import Any

import first_call_cards as made_up
import pytest
from acceptance.first_call import claims, uvm_page
from acceptance.first_call.reports import concluded, transferable
from places import DOCS, ROOT

PAGE = (DOCS / "uvm.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
OPEN = PAGE.partition("## Open claims")[2].partition("\n## ")[0]
DEFINED = PAGE.count("[M] ")
CARD = "NVIDIA X, driver 1.2, vm, 2026-01-01"


def report(**answers: Any) -> dict[str, Any]:
    found = copy.deepcopy(made_up.REPORT)
    for name, answer in answers.items():
        found["questions"][name] |= answer
    return transferable(concluded(found))


def test_each_claim_is_one_row_that_names_its_question() -> None:
    for claim in claims.CLAIMS:
        rows = [row for row in ROWS if row.startswith(f"| {claim.row}")]
        assert len(rows) == 1, claim.row
        if rows[0] in OPEN:
            assert f"`{claim.questions[0]}" in rows[0] or claim.constants, claim.row


def test_each_open_claim_has_a_judge() -> None:
    rows = [line for line in OPEN.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    known = tuple(f"| {claim.row}" for claim in claims.CLAIMS)
    assert [row for row in rows if not row.startswith(known)] == []


def test_each_claim_has_a_known_tag_and_each_published_figure_exists() -> None:
    file = ROOT / "lab/bench/data/published/figures.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        known = {row["id"] for row in csv.DictReader(lines)}
    tables = [part for part in PAGE.split("\n\n") if part.startswith("| claim | tag |")]
    assert len(tables) >= 5
    for row in "\n".join(table.partition("|\n")[2] for table in tables).splitlines():
        if row.startswith("|-"):
            continue
        tags = re.findall(r"\[([A-Z])\]", row.split(" | ")[1])
        assert tags and set(tags) <= set("SPIM"), row
        for cited in re.findall(r"\[P\]([^\[|]*)", row):
            for figure in re.findall(r"[a-z0-9]+_[a-z0-9_*]+", cited):
                assert matching(known, figure), figure


def test_the_virtual_gpus_answers_judge_nearly_all_claims() -> None:
    found = report()
    silent = {claim.row for claim in claims.CLAIMS if claims.judged(claim, found) is None}
    assert len(silent) <= 6, silent


@pytest.mark.parametrize(
    ("row", "question", "change", "expected"),
    [
        ("LAST_PREFETCH_LOCATION", "residency",
         {"after_prefetch_out": -1, "after_kernel_brought_it_back": -1}, "confirmed"),
        ("LAST_PREFETCH_LOCATION", "residency",
         {"after_prefetch_out": -1, "after_kernel_brought_it_back": 0}, "wrong"),
        ("H2D and D2H together", "copy_engine", {"duplex_factor": 0.85}, "confirmed"),
        ("H2D and D2H together", "copy_engine", {"duplex_factor": 0.99}, "wrong"),
        ("cuGetProcAddress returns", "symbols", {"asked": 9, "unmatched": []}, "confirmed"),
        ("cuGetProcAddress returns", "symbols", {"asked": 9, "unmatched": ["cuInit"]}, "wrong"),
        ("memory of the system allocator", "pageable", {"access": 1}, "measured"),
        ("first host pages", "way_back", {"first_out_extra_us_per_block": 160.0}, "confirmed"),
        ("first host pages", "way_back", {"first_out_extra_us_per_block": 400.0}, "wrong"),
    ],
)  # fmt: skip
def test_an_answer_confirms_or_corrects_its_row(
    row: str, question: str, change: dict[str, Any], expected: str
) -> None:
    found = report()
    result = found["questions"][question]["result"] | change
    found = report(**{question: {"status": "ok", "result": result}})
    (claim,) = [one for one in claims.CLAIMS if one.row.startswith(row)]
    verdict = claims.judged(claim, found)
    assert verdict is not None and verdict[0] == expected
    text, told = uvm_page.marked(PAGE, found, CARD)
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {row}")]
    shown = f"**{expected}**" if expected == "wrong" else expected
    assert f"[M] {shown}, {CARD}: " in line
    assert any(one.startswith(f"{expected}: {row}") for one in told)


def test_marks_leave_every_other_line_and_every_table_as_it_was() -> None:
    text, told = uvm_page.marked(PAGE, report(), CARD)
    before, after = PAGE.splitlines(), text.splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == len(told) > 20
    for old, new in changed:
        assert re.sub(r"; \[M\] .*? (\||$)", r" \1", new).rstrip() == old
        assert new.count("|") == old.count("|")


def test_a_second_look_at_a_card_replaces_its_mark_and_no_other() -> None:
    first, _ = uvm_page.marked(PAGE, report(), CARD)
    both, _ = uvm_page.marked(first, report(), "NVIDIA Y, driver 1.2, vm, 2026-01-02")
    again, _ = uvm_page.marked(both, report(), CARD)
    assert again.count("[M] ") == both.count("[M] ") == 2 * first.count("[M] ") - DEFINED
    assert again.count(CARD) == first.count(CARD)


def test_without_an_answer_no_row_is_marked() -> None:
    found = report()
    for answer in found["questions"].values():
        answer["status"] = "timeout"
    assert uvm_page.marked(PAGE, found, CARD) == (PAGE, [])
