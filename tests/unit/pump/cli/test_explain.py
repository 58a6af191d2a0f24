"""pump explain: what it prints from the guide and from the settings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pump.cli.support import guide

CODE = "import sys; from pump.cli.main import main; sys.exit(main())"

PAGE = """\
# Title

## Causes

### late

The link was *slow*: see *host*.

- One of
  `two three`.

      command --now

### host

| word | meaning |
|---|---|
| `busy` | Wait for `it`. |

## Messages

| message | meaning |
|---|---|
| `lost ... of memory` | See *late*. |
| `failed ... times` | Nothing. |
"""
ENTRIES = list(guide.parse(PAGE))


def explain(*words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", CODE, "explain", *words],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": str(columns)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_sections_and_rows_are_entries_and_only_messages_are_lines_of_output() -> None:
    keys = [entry.key for entry in ENTRIES]
    assert keys == ["Causes", "late", "host", "busy", "Messages", *keys[5:]]
    assert [e.key for e in ENTRIES if e.is_message] == ["lost ... of memory", "failed ... times"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("LATE", ["late"]),
        ("pump: [a] lost 3 GiB  of\nmemory: late", ["lost ... of memory"]),
        ("lost it of memory; failed 3 times", ["lost ... of memory", "failed ... times"]),
        ("memory", ["lost ... of memory"]),  # in a key
        ("link", ["late"]),  # in a text
        ("lost 3 GiB of memory2", []),
        ("almost 3 GiB of memory", []),
        ("busy?", ["busy"]),
        ("-?", []),
    ],
)
def test_a_key_comes_before_a_printed_line_and_a_part_of_one(
    words: str, expected: list[str]
) -> None:
    assert [entry.key for entry in guide.find(words, ENTRIES)] == expected


def test_markdown_becomes_wrapped_text_in_which_references_are_commands() -> None:
    keys = [entry.key for entry in ENTRIES]
    assert list(guide.plain(ENTRIES[1].text, keys, 24)) == [
        "The link was slow: see",
        "`pump explain host`.",
        "",
        "- One of `two three`.",
        "",
        "      command --now",
    ]
    assert list(guide.plain("By `one two`.", (), 10)) == ["By", "`one two`."]
    assert list(guide.plain(ENTRIES[2].text, keys, 12)) == ["busy: Wait", "    for", "    `it`."]


@pytest.mark.parametrize("words", [["--budget"], ["PUMP_BUDGET"], ["budget"]])
def test_a_setting_is_explained_by_each_of_its_names(words: list[str]) -> None:
    done = explain(*words)
    assert done.returncode == 0
    assert done.stdout.startswith("budget (setting of [job])\n  The GPU memory that each process")
    example = 'budget = "20GiB" in [job]'
    for fact in ("--budget SIZE", "PUMP_BUDGET", example, "the memory that is free"):
        assert fact in done.stdout
    assert "setting of [limits]" in done.stdout


@pytest.mark.lab
def test_an_option_that_is_no_setting_is_explained_by_its_help() -> None:
    assert explain("--virtual").stdout.startswith("--virtual PROFILE (pump-run)\n  run on a")


def test_a_printed_line_need_not_be_quoted() -> None:
    done = explain("pump:", "no", "process of this job used CUDA,", "so pump did nothing:", "x")
    assert done.returncode == 0 and "pump doctor" in done.stdout


@pytest.mark.parametrize("columns", [40, 300])
def test_lines_fit_on_the_terminal_and_are_no_longer_than_can_be_read(columns: int) -> None:
    lines = explain("time-lost", columns=columns).stdout.splitlines()
    prose = [line for line in lines if not line.startswith("      ")]
    assert len(prose) > 5 and max(map(len, prose)) <= min(columns, 88)


def test_a_word_in_many_entries_lists_them() -> None:
    lines = explain("the").stdout.splitlines()
    assert lines[0] == "'the' appears in these; explain one of them:" and len(lines) > 5


def test_without_a_word_it_lists_causes_questions_and_settings() -> None:
    done = explain()
    assert done.returncode == 0
    for known in ("no-room", "dormant", "Are results the same?", "keep_device", "--config FILE"):
        assert known in done.stdout


@pytest.mark.parametrize(
    ("word", "hint"), [("lte", "did you mean 'late'?"), ("--budgt", "did you mean 'budget'?")]
)
def test_an_unknown_word_gets_one_line_with_the_nearest(word: str, hint: str) -> None:
    done = explain(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and word in done.stderr and hint in done.stderr
