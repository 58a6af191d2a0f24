"""Copies of a folder for runs: their contents, and that no change in them reaches the original."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from pump.measure import folders
from pump.measure.folders import Left, Original


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "code.py").write_text("code")
    (folder / "ckpt.pt").write_text("precious")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "state").write_text("precious")
    (folder / "venv").mkdir()
    (folder / "venv" / "pyvenv.cfg").touch()
    return folder


def copied(here: Path, original: Original | None = None) -> Path:
    target = here.parent / "copy"
    (original or Original(str(here))).copy(str(target), lambda: False)
    return target


def contents(folder: Path) -> dict[str, tuple[object, ...]]:
    """Returns all that a run may change: kinds, modes, times, links and bytes."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held: object = path.readlink() if path.is_symlink() else None
        if path.is_file():
            held = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_nlink, held)
    return found


def test_nothing_done_in_a_copy_changes_the_original(here: Path) -> None:
    outside = here.parent / "outside"
    outside.mkdir()
    (outside / "last.pt").write_text("precious")
    (here / "checkpoints").symlink_to(outside)
    (here / "latest").symlink_to("ckpt.pt")
    (here / "absolute").symlink_to(here / "ckpt.pt")
    os.link(here / "ckpt.pt", here / "again.pt")
    before = contents(here.parent)
    copy = copied(here)
    for path in (*copy.rglob("*"), copy / "checkpoints" / "last.pt"):
        if path.is_file() and "venv" not in path.parts:
            path.chmod(0o600)
            path.write_text("of a run")
    (copy / "ckpt.pt").unlink()
    (copy / ".cache" / "new").touch()
    shutil.rmtree(copy / "package")
    folders.remove(str(copy))
    assert contents(here.parent) == before


def test_a_copy_has_the_bytes_modes_times_and_links_of_the_original(here: Path) -> None:
    (here / "ckpt.pt").chmod(0o640)
    os.utime(here / "ckpt.pt", (1, 2))
    os.link(here / "ckpt.pt", here / "again.pt")
    (here / "latest").symlink_to("ckpt.pt")
    (here / "package" / "up").symlink_to(here / "ckpt.pt")
    (here / "package").chmod(0o555)
    copy = copied(here)
    status = (copy / "ckpt.pt").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime, status.st_nlink) == (0o640, 2, 2)
    assert (copy / "again.pt").samefile(copy / "ckpt.pt")
    assert (copy / "latest").readlink() == Path("ckpt.pt")
    assert (copy / "package" / "up").resolve() == copy / "ckpt.pt"
    assert stat.S_IMODE((copy / "package").stat().st_mode) == 0o555
    assert (copy / "package" / "code.py").read_text() == "code"
    folders.remove(str(copy))
    assert not copy.exists()


def test_holes_stay_holes_and_count_for_nothing(here: Path) -> None:
    with (here / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"middle")
    original = Original(str(here))
    assert original.bytes < 1 << 20
    copy = copied(here, original) / "sparse"
    assert (copy.stat().st_size, copy.stat().st_blocks < 1024) == (1 << 40, True)
    with copy.open("rb") as file:
        file.seek(1 << 39)
        assert file.read(6) == b"middle"


def test_what_is_too_large_is_named_and_the_rest_copied(here: Path) -> None:
    (here / "data.bin").write_bytes(b"d" * (1 << 20))
    original = Original(str(here))
    original.bound(1 << 19)
    assert original.left == [Left("data.bin", 1 << 20)]
    copy = copied(here, original)
    assert (copy / "data.bin").is_symlink()
    assert not (copy / "ckpt.pt").is_symlink()


def test_a_folder_with_too_many_entries_is_named_as_a_whole(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ENTRIES_MOST", 10)
    for number in range(9):
        (here / "package" / str(number)).touch()
    assert Original(str(here)).left == [Left("package", None)]


def test_links_in_circles_and_to_folders_above_are_not_followed(here: Path) -> None:
    (here / "self").symlink_to(".")
    (here / "up").symlink_to("..")
    (here / "round").symlink_to("round")
    (here / "gone").symlink_to("/nonexistent/file")
    original = Original(str(here))
    assert original.left == [Left("up", None)]
    copy = copied(here, original)
    assert (copy / "self").resolve() == copy
    assert (copy / "gone").readlink() == here / "gone"


def test_sockets_and_pipes_lead_to_their_owners_and_block_nothing(here: Path) -> None:
    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(str(here / "socket"))
    copy = copied(here)
    assert (copy / "pipe").is_fifo()
    assert (copy / "socket").is_socket()


def test_environments_of_python_and_what_the_user_shares_are_not_copied(here: Path) -> None:
    copy = copied(here, Original(str(here), "", {"package"}))
    assert {path.name for path in copy.iterdir() if path.is_symlink()} == {"venv", "package"}


def test_the_folder_of_the_runs_is_no_part_of_the_copy(here: Path) -> None:
    (here / "runs").mkdir()
    Original(str(here), str(here / "runs")).copy(str(here / "runs" / "one"), lambda: False)
    assert not (here / "runs" / "one" / "runs").exists()
    assert (here / "runs" / "one" / "ckpt.pt").exists()


def test_a_file_that_goes_while_copies_are_made_is_left_out(here: Path) -> None:
    original = Original(str(here))
    (here / "ckpt.pt").unlink()
    assert not (copied(here, original) / "ckpt.pt").exists()


def test_copying_ends_when_the_user_stops_it(here: Path) -> None:
    target = here.parent / "copy"
    Original(str(here)).copy(str(target), lambda: True)
    assert not (target / "ckpt.pt").exists()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{here}/ckpt.pt", "{copy}/ckpt.pt"),
        ("--out={here}/new", "{copy}/new"),
        ("{here}", "{copy}"),
        ("{here}/venv/python", "{here}/venv/python"),
        ("{here}er/ckpt.pt", "{here}er/ckpt.pt"),
        ("{here}/../outside", "{here}/../outside"),
        ("ckpt.pt", "ckpt.pt"),
    ],
)
def test_a_path_in_the_command_becomes_that_of_the_copy(
    here: Path, word: str, expected: str
) -> None:
    original = Original(str(here))
    copy = copied(here, original)
    found = original.moved(word.format(here=here), str(copy))
    assert found.removeprefix("--out=") == expected.format(here=here, copy=copy)
