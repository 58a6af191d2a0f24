"""Users read technical English: countable rules for pages, messages, help and log lines."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from tidy_english import PATTERNS, Pattern, hits, sentences
from tidy_sources import name
from tidy_texts import LITERALS, PAGES, Text, is_prose, texts

HITS_MAX = 1.5
"""Allowed constructions per thousand words that technical English does not use."""
SENTENCE_MAX = 30
MEAN_MAX = 18


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.bad)
def test_a_pattern_finds_its_bad_text_and_leaves_its_good_one(pattern: Pattern) -> None:
    assert re.search(pattern.expression, pattern.bad)
    assert hits(pattern.good) == []


def test_sentences_end_at_dots_that_end_sentences() -> None:
    assert sentences(
        "It has 1.5 GiB. pump moves it. See docs/a.md now! Does pump work? (Yes.) No."
    ) == [
        "It has 1.5 GiB.",
        "pump moves it.",
        "See docs/a.md now!",
        "Does pump work?",
        "(Yes.",
        "No.",
    ]


def test_code_and_names_are_no_prose() -> None:
    assert is_prose("cannot open X: no such file")
    assert not is_prose("%s %d %s:%d\n")
    assert not is_prose("struct pump_batch *")


@pytest.mark.parametrize(
    ("group", "least", "known"),
    [
        ("front pages", 500, "pump"),
        ("docs/start", 1000, "virtual GPU"),
        ("docs/guides", 5000, "demand paging"),
        ("docs/reference", 1000, "GPU memory"),
        ("docs/man", 1000, "GPU memory"),
        ("pump/cli", 2000, "the command"),
        ("pump/config", 700, "GPU memory"),
        ("pump/report", 500, "Simulate the run"),
        ("pump", 1200, "unknown policy"),
        ("docs/made", 300, "CUDA programs"),
        ("shim", 1200, "demand paging"),
        ("daemon", 700, "until SIGTERM"),
        ("lab", 500, "out of memory"),
        ("scripts", 300, "C compiler"),
        ("examples", 300, "wait for the GPU"),
    ],
)
def test_the_texts_of_a_group_are_found(group: str, least: int, known: str) -> None:
    found = texts(group)
    assert sum(len(one.content.split()) for one in found) >= least
    assert any(known in one.content for one in found)


def test_each_group_is_among_those_whose_texts_are_known() -> None:
    marks = test_the_texts_of_a_group_are_found.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in marks[0].args[1]} == {*PAGES, *LITERALS}


def _at(one: Text) -> str:
    return f"{name(one.path)}:{one.line}"


@pytest.mark.parametrize("group", [*PAGES, *LITERALS])
def test_users_read_the_constructions_of_technical_english(group: str) -> None:
    found = texts(group)
    words = sum(len(one.content.split()) for one in found)
    bad = [f"{_at(one)}: '{hit}' in: {one.content}" for one in found for hit in hits(one.content)]
    share = 1000 * len(bad) / words
    assert share <= HITS_MAX, f"{share:.1f} in 1,000 of {words} words\n" + "\n".join(bad)


@pytest.mark.parametrize("group", [*PAGES, *LITERALS])
def test_no_sentence_that_users_read_is_too_long(group: str) -> None:
    long = [
        f"{_at(one)}: {len(sentence.split())} words: {sentence}"
        for one in texts(group)
        for sentence in sentences(one.content)
        if len(sentence.split()) > SENTENCE_MAX
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("group", [*PAGES, *LITERALS])
def test_sentences_that_users_read_are_short_in_the_mean_of_a_page(group: str) -> None:
    lengths = defaultdict(list)
    for one in texts(group):
        page = name(one.path) if group in PAGES else group
        lengths[page] += [len(sentence.split()) for sentence in sentences(one.content)]
    means = {page: sum(counts) / len(counts) for page, counts in lengths.items()}
    assert {page: round(mean, 1) for page, mean in means.items() if mean > MEAN_MAX} == {}
