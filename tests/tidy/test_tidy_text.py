"""House rules about the text of every file."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from tidy_sources import ROOT, files, name, python_files, text

LINES_MAX = 500
FILES_MAX = 25
CODE = {".py", ".c", ".h", ".S", ""}
LONGER: dict[str, int] = {}
"""Files that are still too long, with their line counts; this list may only become shorter."""
FULLER: dict[str, int] = {}
"""Folders that still have too many files, with their number; this list may only become shorter."""


def test_there_is_something_to_check() -> None:
    names = {name(path) for path in files()}
    assert {
        "pyproject.toml",
        "shim/include/pump_abi.h",
        "pump/__init__.py",
        "scripts/test",
    } <= names
    assert ROOT / "scripts/test" not in python_files()


def test_no_source_file_is_too_long_to_read_at_once() -> None:
    long = {
        name(path): lines
        for path in files()
        if path.suffix in CODE and (lines := text(path).count("\n")) > LINES_MAX
    }
    grown = {one: lines for one, lines in long.items() if lines > LONGER.get(one, LINES_MAX)}
    assert not grown, f"longer than {LINES_MAX} lines, or than before: {grown}"
    assert set(LONGER) <= set(long), f"short enough, unlist: {set(LONGER) - set(long)}"


def test_no_folder_holds_more_code_than_a_list_one_reads() -> None:
    counts = Counter(name(path.parent) for path in files() if path.suffix in CODE)
    full = {folder: count for folder, count in counts.items() if count > FILES_MAX}
    grown = {one: count for one, count in full.items() if count > FULLER.get(one, FILES_MAX)}
    assert not grown, f"more than {FILES_MAX} files of code, or than before: {grown}"
    assert set(FULLER) <= set(full), f"small enough, unlist: {set(FULLER) - set(full)}"


def test_every_source_file_begins_by_saying_what_it_is() -> None:
    silent = []
    for path in files():
        start = re.sub(r"\A#!/(usr/bin/env bash|bin/sh|usr/bin/make -f)\n", "", text(path))
        if not start:
            continue
        if path in python_files():
            spoken = ast.get_docstring(ast.parse(text(path))) is not None
        elif path.suffix in {".c", ".h", ".S"}:
            spoken = start.startswith(("/*", "//"))
        elif path.suffix == "" and text(path).startswith("#!"):
            spoken = start.startswith("# ")
        else:
            continue
        if not spoken:
            silent.append(name(path))
    assert not silent, f"no opening comment: {silent}"


def test_nothing_names_a_place_on_a_developers_machine() -> None:
    place = re.compile(r"(?<![\w.<}$*-])/(home|root|Users|work|mnt)/\w|/tmp/dev\b")
    found = [
        f"{name(path)}:{number}"
        for path in files()
        if path.name != "test_tidy_text.py"
        for number, line in enumerate(text(path).splitlines(), 1)
        if place.search(line)
    ]
    assert not found, f"machine paths: {found}"


def test_each_todo_names_who_does_it() -> None:
    unsigned = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\([a-z])")
    found = [
        f"{name(path)}:{number}"
        for path in files()
        if path.name not in {"test_tidy_text.py", "CONTRIBUTING.md"}
        for number, line in enumerate(text(path).splitlines(), 1)
        if unsigned.search(line)
    ]
    assert not found, f"TODO without an owner, write TODO(name): {found}"


def test_text_is_plain_no_tabs_no_trailing_blanks_one_line_break_at_the_end() -> None:
    blanks = re.compile(r"[\t\r]| +$", re.MULTILINE)
    found = [
        name(path)
        for path in files()
        if (content := text(path))
        and (blanks.search(content) or not content.endswith("\n") or content.endswith("\n\n"))
    ]
    assert not found, f"tabs, trailing blanks or a ragged end: {found}"


@pytest.mark.parametrize(
    ("readme", "folder"), [("lab", "lab/driver"), ("tests/loader", "tests/loader")]
)
def test_a_folders_readme_names_each_of_its_sources(readme: str, folder: str) -> None:
    told = text(ROOT / readme / "README.md")
    sources = [p for p in files() if p.is_relative_to(ROOT / folder) and p.suffix == ".c"]
    assert len(sources) > 5
    assert [p.name for p in sources if f"`{p.name}`" not in told] == []


def test_scripts_can_be_executed() -> None:
    for path in files():
        if path.suffix == "" and text(path).startswith("#!"):
            assert path.stat().st_mode & 0o111, f"chmod +x {name(path)}"


def test_test_names_are_sentences() -> None:
    short = [
        f"{name(path)}: {node.name}"
        for path in python_files("tests/")
        for node in ast.walk(ast.parse(text(path)))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and len(node.name.split("_")) < 4
    ]
    assert not short, f"say what holds: {short}"


def test_test_files_have_names_of_their_own() -> None:
    # pytest imports these files by their bare name; acceptance is a package.
    shared = {"conftest.py", "__init__.py"}
    bare = [path for path in python_files("tests/") if name(path).split("/")[1] != "acceptance"]
    names = [path.name for path in bare if path.name not in shared]
    twice = {one for one in names if names.count(one) > 1}
    assert not twice, f"two files with one name: {twice}"


GONE = re.compile(
    r"\b(nobody|somebody|anybody|whoever|someone|doomed|likeness|strays|leavers"
    r"|foreseen|untold|vague_seq|leaseholder|contenders|model_apply|model_look"
    r"|pump_tell_worker|pump_tell_launch|pump_words|observe_words|pump_bracket|pump_hush"
    r"|pump_inside|pump_set_of|pump_sets_wake|pump_command_judge|pump_command_sane"
    r"|hangs? up|hung up|hungry|farewell|guinea pigs?"
    r"|planned_bytes|plans_dropped|judge_hello|Strange(?:Server|Service)Error"
    r"|formerly|until lately|used to be"
    r"|pool_asleep|pool_woken|pump_act_\w+|(?:act|observe)_\w+\.[ch])\b",
    re.IGNORECASE,
)
"""Blocks and processes are not persons, and each thing has one name (the glossary is in
shim/include/pump_abi.h). The past belongs in docs/decisions and the change log."""
NAME_OF_A_USER = re.compile(r"""["'=/(]nobody\b|\bNOBODY\b|user nobody|nobody's ids""")


def is_gone(line: str) -> bool:
    """Returns whether a word of the line, or a part of a name in it, was replaced."""
    line = NAME_OF_A_USER.sub("", line)
    return bool(GONE.search(line) or GONE.search(line.replace("_", " ")))


def test_words_that_were_replaced_do_not_come_back() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files()
        if path.suffix in {".c", ".h", ".py", ".md"}
        and not name(path).startswith(("docs/decisions/", "CHANGELOG", "tests/tidy/"))
        for number, line in enumerate(text(path).splitlines(), 1)
        if is_gone(line)
    ]
    assert not found, "\n".join(found)
