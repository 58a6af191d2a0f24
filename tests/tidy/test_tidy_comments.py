"""Engineers read technical English: countable rules for comments and docstrings, by folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy_comments import WORDS_LEAST, comments, of_c, of_python
from tidy_english import hits, sentences
from tidy_sources import name
from tidy_texts import Text

HITS_MAX = 2.0
"""Allowed constructions per thousand words that technical English does not use."""
SENTENCE_MAX = 30
MEAN_MAX = 18


def _at(one: Text) -> str:
    return f"{name(one.path)}:{one.line}"


def test_comments_are_found_without_code() -> None:
    python = '"""A.\n\nB c\nd."""\nx = "# no"  # e\n# f\n# g\ny = 1\n"""h"""\n'
    assert [one.content for one in of_python(Path(), python)] == ["A.", "B c d.", "h", "e", "f g"]
    c = "/* A.\n *\n *   - b\n *     c\n */\nint x; /* d */\n"
    assert [one.content for one in of_c(Path(), c)] == ["A.", "- b c", "d"]


@pytest.mark.parametrize("folder", sorted(comments()))
def test_comments_have_the_constructions_of_technical_english(folder: str) -> None:
    found = comments()[folder]
    words = sum(len(one.content.split()) for one in found)
    bad = [f"{_at(one)}: '{hit}' in: {one.content}" for one in found for hit in hits(one.content)]
    share = 1000 * len(bad) / max(words, WORDS_LEAST)
    assert share <= HITS_MAX, f"{share:.1f} in 1,000 of {words} words\n" + "\n".join(bad)


@pytest.mark.parametrize("folder", sorted(comments()))
def test_sentences_of_comments_are_short(folder: str) -> None:
    found = [(one, part) for one in comments()[folder] for part in sentences(one.content)]
    lengths = [len(part.split()) for _, part in found]
    long = [
        f"{_at(one)}: {len(part.split())} words: {part}"
        for one, part in found
        if len(part.split()) > SENTENCE_MAX
    ]
    assert not long, "\n".join(long)
    assert sum(lengths) / len(lengths) <= MEAN_MAX
