"""The project's addresses: one file sets them, packaging/release/stamp writes them everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from jobs import BIN
from places import ROOT

SETTINGS = ROOT / "packaging" / "release" / "project.toml"
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
STAMPED = (
    *("pyproject.toml", "packaging/debian/control", "mkdocs.yml", "SECURITY.md"),
    ".github/ISSUE_TEMPLATE/config.yml",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copies the files that contain an address."""
    for name in STAMPED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def stamp(tree: Path, text: str) -> subprocess.CompletedProcess[str]:
    settings = tree / "project.toml"
    settings.write_text(text)
    return subprocess.run(
        [str(ROOT / "packaging" / "release" / "stamp"), str(tree), str(settings)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def every_address() -> str:
    """Returns the settings with each of their examples set."""
    return re.sub(r"(?m)^# (?=\w+ = )", "", SETTINGS.read_text())


def test_every_address_is_written_once_also_over_an_older_one(tree: Path) -> None:
    assert stamp(tree, every_address().replace("example.org", "old.example.org")).returncode == 0
    done = stamp(tree, every_address())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    urls = tomllib.loads(every_address())["urls"]
    assert project["urls"] == urls and len(urls) == 3
    control = (tree / "packaging/debian/control").read_text()
    assert control.count("@example.org>\n") == 1 and f"\nHomepage: {urls['Source']}\n" in control
    assert f"\nsite_url: {urls['Documentation']}\n" in (tree / "mkdocs.yml").read_text()
    assert "(mailto:security@example.org)" in (tree / "SECURITY.md").read_text()
    (link,) = yaml.safe_load((tree / STAMPED[-1]).read_text())["contact_links"]
    assert link["url"] == "mailto:security@example.org"
    assert not [name for name in STAMPED if "old.example" in (tree / name).read_text()]


def test_addresses_that_are_not_set_are_listed_and_change_nothing(tree: Path) -> None:
    done = stamp(tree, "")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 5
    for name in STAMPED:
        assert (tree / name).read_text() == (ROOT / name).read_text(), name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[urls]\nSuorce = 'https://example.org'", "urls.Suorce"),
        ("[urls]\nSource = 'http://example.org'", "urls.Source"),
        ("security = 'at home'", "security"),
        ("maintainer = 'user@example.org'", "maintainer"),
        ("security", "project.toml"),
    ],
)
def test_an_address_that_cannot_be_is_named_in_one_line(tree: Path, text: str, named: str) -> None:
    done = stamp(tree, text)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and named in line
    assert (tree / "pyproject.toml").read_text() == (ROOT / "pyproject.toml").read_text()


def test_the_template_for_problems_asks_for_what_pump_can_write() -> None:
    text = (TEMPLATES / "problem.md").read_text()
    for command, option in (("pump doctor", "--json"), ("pump-run", "--record")):
        assert f"`{command} {option}" in text
        words = [str(BIN / command.split()[0]), *command.split()[1:], "--help"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        assert option in done.stdout
    assert "SECURITY.md" in text
    for path in TEMPLATES.glob("*.md"):
        head = yaml.safe_load(path.read_text().split("---\n")[1])
        assert head["name"] and head["about"]
