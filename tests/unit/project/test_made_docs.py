"""Pages made from the code are current, and pages name only things that exist."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess

import make_docs
import man_pages
import pytest
from places import DOCS

from pump.report import advice


def test_the_pages_made_from_the_code_are_current() -> None:
    for path, text in make_docs.pages().items():
        assert path.exists() and path.read_text(encoding="utf-8") == text, (
            f"{path.name} is out of date: python docs/made/make_docs.py"
        )


@pytest.mark.parametrize("name", sorted(man_pages.pages()))
def test_a_man_page_is_sound_to_the_formatter(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff: apt-get install groff")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z"],
        input=man_pages.pages()[name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""


def test_every_kind_of_advice_has_its_heading_in_the_page_that_it_names() -> None:
    keys = set(re.findall(r'Advice\(\s*"([a-z-]+)"', inspect.getsource(advice)))
    headings = set(re.findall(r"^### ([a-z-]+)$", (DOCS / "guides" / "why.md").read_text(), re.M))
    assert keys == headings


def test_the_man_page_of_pump_run_has_every_option_and_its_meaning() -> None:
    page = man_pages.pages()["pump-run.1"].replace("\\-", "-")
    for option in ("--budget", "--config", "--record", "--keep-device", "-v"):
        assert f"\\fB{option}\\fR" in page
    assert "GPU memory that each process may keep resident" in page


def test_each_man_page_is_installed() -> None:
    text = (DOCS.parent / "CMakeLists.txt").read_text()
    (pages,) = re.findall(r"install\(FILES ((?:docs/man/\S+ )+)", text)
    there = {f"docs/man/{path.name}" for path in (DOCS / "man").iterdir()}
    assert set(pages.split()) == there
