"""service install starts no code that others can replace, or that the service cannot read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from weak_installation import SITE, WEAK, made, refusal

from pump.cli.support import service_code

__all__ = ["made"]  # the fixture

BIN = Path(sys.executable).parent
OTHER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")


def test_an_installation_of_roots_is_taken_below_a_sticky_folder(made: Path) -> None:
    assert made.parent.stat().st_mode & 0o1002 == 0o1002
    assert refusal(made, user=True) == ""
    if os.geteuid() == 0:
        assert refusal(made) == ""


@needs_root
@pytest.mark.parametrize("user", [False, True])
@pytest.mark.parametrize("weak", WEAK)
def test_a_part_that_another_user_can_replace_is_named(made: Path, weak: str, user: bool) -> None:
    path = made / weak
    path.chmod(path.stat().st_mode | 0o002)
    told = refusal(made, user=user)
    assert f" {path} can be written by all users" in told, told
    assert ("chmod go-w" if user else "/opt/pump") in told
    path.chmod(path.stat().st_mode & ~0o002)
    os.chown(path, OTHER, OTHER)
    assert f" {path} belongs to user {OTHER}" in refusal(made, user=user)


@needs_root
def test_another_user_replaces_the_interpreter_where_that_is_refused(made: Path) -> None:
    """The attack itself: files that are refused can be replaced, accepted ones cannot."""
    folder = made / "base/bin"
    attack = ["sh", "-c", "mv python3.11 away && echo evil >python3.11"]
    done = subprocess.run(attack, cwd=folder, user=OTHER, capture_output=True, check=False)
    assert done.returncode != 0 and refusal(made) == ""
    folder.chmod(0o777)
    assert str(folder) in refusal(made)
    subprocess.run(attack, cwd=folder, user=OTHER, check=True)
    assert (folder / "python3.11").read_text() == "evil\n"


@needs_root
def test_the_pump_that_the_unit_of_metrics_starts_is_looked_at(made: Path) -> None:
    (made / "venv/bin/pump").chmod(0o757)
    assert f" {made}/venv/bin/pump can be written by all users" in refusal(made)
    assert refusal(made, user=True) == "", "a user has no such unit"


@needs_root
def test_a_link_on_the_way_that_another_user_can_replace_is_named(made: Path) -> None:
    (made / "open").mkdir()
    (made / "open").chmod(0o777)
    (made / "open/python").symlink_to(made / "base/bin/python3.11")
    (made / "venv/bin/python3").unlink()
    (made / "venv/bin/python3").symlink_to(made / "open/python")
    assert f" {made}/open can be written by all users" in refusal(made)


@needs_root
@pytest.mark.parametrize(
    "closed",
    ["base", "base/bin", "base/bin/python3.11", SITE, f"{SITE}/pump/__init__.py", "venv/bin/pumpd"],
)
def test_a_part_that_the_services_user_cannot_read_is_named(made: Path, closed: str) -> None:
    """Examples are an interpreter below /root, and an installation under umask 077."""
    path = made / closed
    path.chmod(path.stat().st_mode & 0o700)
    told = refusal(made)
    assert f"execute {path}, so the service's user cannot start it" in told, told
    assert "/opt/pump" in told
    assert refusal(made, user=True) == "", "its owner can read it"


@pytest.mark.parametrize(
    "line", ["#!{python}", "#!{python} -E", "#!/bin/sh", "#!/usr/bin/env python", ""]
)
def test_the_lines_that_installers_write_are_understood(made: Path, line: str) -> None:
    python = f"{made}/venv/bin/python"
    (made / "venv/bin/pump-start").write_text(line.format(python=python) + "\n")
    assert service_code._interpreter(str(made / "venv/bin/pumpd")) == python


def test_a_pumpd_of_another_kind_names_its_interpreter_itself(made: Path) -> None:
    (made / "venv/bin/pump-start").unlink()
    (made / "venv/bin/pumpd").write_text("#!/usr/lib/pump/bin/python -I\n")
    assert service_code._interpreter(str(made / "venv/bin/pumpd")) == "/usr/lib/pump/bin/python"


def install_own(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "pump"), "service", "install", "--user"],
        env={**os.environ, "XDG_CONFIG_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_users_own_units_are_known_again_and_written_anew(tmp_path: Path) -> None:
    for _ in range(2):
        done = install_own(tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("written  ") == 2
    unit = tmp_path / "systemd/user/pumpd.service"
    text = unit.read_text()

    # the form of an earlier release
    broken = text.replace(
        "# written by pump service install", "# written by\n# pump install-service"
    )
    assert broken != text
    unit.write_text(broken)
    assert install_own(tmp_path).returncode == 0
    assert unit.read_text() == text
    unit.write_text("[Service]\n")
    assert "pump did not write it; move it away" in install_own(tmp_path).stderr
