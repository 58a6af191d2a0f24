"""As root, pump writes to no folder that the owner of HOME controls."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.base import folders
from pump.cli import main
from pump.config import trust
from pumpd.worker.learned_files import Folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="plays root: run the tests as root")

OTHER = 10001


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes the home of another user, whose links lead to `target`, a folder of root."""
    found, target = tmp_path / "home", tmp_path / "target"
    target.mkdir()
    for link in (
        *(".config/pump", ".config/systemd/user", ".config/environment.d"),
        *(".local/share/jupyter/kernels", ".local/state/pump", ".cache/pump"),
    ):
        (found / link).parent.mkdir(parents=True, exist_ok=True)
        (found / link).symlink_to(target)
    for folder, names, files in os.walk(found):
        for name in (".", *names, *files):
            os.chown(Path(folder) / name, OTHER, OTHER, follow_symlinks=False)
    monkeypatch.setenv("HOME", str(found))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.delenv("JUPYTER_DATA_DIR", raising=False)
    yield found
    assert list(target.iterdir()) == [], "root has written where another user's links lead"


@pytest.mark.parametrize("words", ["enable", "install kernel", "service install --user"])
def test_root_with_anothers_home_writes_nothing_there(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pump", *words.split()])
    assert main.main() == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{home} belongs to user {OTHER}" in line and "run it as that user" in line


def test_root_with_anothers_home_keeps_neither_trust_nor_what_it_learned_there(home: Path) -> None:
    with pytest.raises(trust.TrustError, match=f"belongs to user {OTHER}"):
        trust.change("/pump.toml", b"", os.environ)
    with pytest.raises(PermissionError):
        Folder(str(home / ".cache/pump/learned"))


REMOVING = ("disable", "install kernel --remove", "service uninstall --user")


@pytest.mark.parametrize("words", REMOVING)
def test_root_with_anothers_home_removes_nothing_there(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target = home.parent / "target"
    marks = "# written by pump enable\n# written by pump service install\n"
    files = [target / "profile.sh", target / "pumpd.service", target / "pump/kernel.json"]
    files[2].parent.mkdir()
    for file in files:
        file.write_text('{"metadata": {"pump": true}}' if file.suffix == ".json" else marks)
    monkeypatch.setattr(sys, "argv", ["pump", *words.split()])
    assert main.main() == 2
    assert f"belongs to user {OTHER}" in capfd.readouterr().err
    for file in files:
        file.unlink()
    files[2].parent.rmdir()


def test_a_folder_is_sound_where_only_root_and_the_user_lead(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    folders.make(str(link / "a" / "b"), 0o700)
    assert (real / "a" / "b").stat().st_mode & 0o777 == 0o700
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(folders.ForeignError, match=f"link belongs to user {OTHER}"):
        folders.make(str(link / "c"))


def test_below_a_folder_that_was_named_its_owners_folders_are_sound_and_links_are_not(
    tmp_path: Path,
) -> None:
    top, target = tmp_path / "top", tmp_path / "target"
    for folder in (top, top / "etc", target):
        folder.mkdir()
        os.chown(folder, OTHER, OTHER)
    folders.make(str(top / "etc/pump"), below=str(top))
    (top / "usr").symlink_to(target)
    os.chown(top / "usr", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(folders.ForeignError):
        folders.make(str(top / "usr/lib"), below=str(top))
    os.chown(top / "etc", OTHER + 1, OTHER)
    with pytest.raises(folders.ForeignError):
        folders.make(str(top / "etc/other"), below=str(top))


def test_a_user_below_a_folder_of_a_third_one_makes_folders_of_its_own(tmp_path: Path) -> None:
    """An example is a home on a group's file server: only root examines the path."""
    group = tmp_path / "group"
    (group / "mine").mkdir(parents=True)
    os.chown(group, OTHER + 1, OTHER + 1)
    os.chown(group / "mine", OTHER, OTHER)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    os.seteuid(OTHER)
    try:
        folders.make(str(group / "mine/a"))
        with pytest.raises(folders.ForeignError):
            folders.make(str(group / "b"))
    finally:
        os.seteuid(0)
