"""The documentation builds as a site: strictly, offline, with nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import site_hooks
from places import DOCS, ROOT

OFFLINE = """
import socket, sys
def refuse(*_):
    raise OSError("the build asked for the network")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli()
"""
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)|<link\b[^>]*\bhref=\"([^\"]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site. A warning, such as of a dead link, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = ["build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, *command],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_docs_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    manual = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.glob("man/*.1")}
    assert manual and {page for page in pages | manual if not (site / page).exists()} == set()
    # mkdocs warns of a page outside the navigation; a strict build makes that an error.
    assert "nav:\n" in (ROOT / "mkdocs.yml").read_text()


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = {a or b for page in pages for a, b in LOADED.findall(page.read_text())}
    assert any(name.endswith(".css") for name in loaded)
    assert {name for name in loaded if re.match(r"(?:\w+:)?//", name)} == set()


def test_names_of_pages_are_links_with_titles_and_those_of_other_files_are_not(site: Path) -> None:
    page = (site / "internals.html").read_text()
    assert re.search('<a href="guides/steering.html">[^<]+</a>', page)
    assert "<code>shim/driver/functions.h</code>" in page


def test_a_man_page_becomes_headings_terms_and_commands() -> None:
    head, term = ".TH PUMP 1\n.SH EXIT STATUS\n", ".TP\n\\fB\\-\\-x\\fR \\fIN\\fR\na <b>\n"
    made = site_hooks.markdown_of(head + term + ".EX\npump \\-\\-x\n.EE\n")
    assert made.startswith("# pump\n") and "## EXIT STATUS" in made
    assert "**--x** *N*  \na &lt;b>" in made and "```sh\npump --x\n```" in made
