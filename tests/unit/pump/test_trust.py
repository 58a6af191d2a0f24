"""The users that can replace the file at a path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.base import trust

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OTHER = 12345
ME = (os.geteuid(),)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """Makes tree/in/file; every folder above it is sound."""
    folder = tmp_path / "tree"
    (folder / "in").mkdir(parents=True)
    (folder / "in/file").write_text("")
    for path in (folder, folder / "in"):
        path.chmod(0o755)
    (folder / "in/file").chmod(0o644)
    assert trust.weakness(str(folder / "in/file"), ME) is None
    return folder


@pytest.mark.parametrize("weak", ["", "in", "in/file"])
def test_what_all_users_can_write_to_is_named(tree: Path, weak: str) -> None:
    at = tree / weak
    at.chmod(at.stat().st_mode | 0o002)
    found = trust.weakness(str(tree / "in/file"), ME)
    assert found == (str(at), "can be written by all users")


def test_a_sticky_folder_is_sound_on_the_way_and_not_at_the_end(tree: Path) -> None:
    (tree / "in").chmod(0o1777)
    assert trust.weakness(str(tree / "in/file"), ME) is None
    assert trust.weakness(str(tree / "in"), ME) == (
        str(tree / "in"),
        "can be written by all users",
    )


@needs_root
def test_what_belongs_to_another_in_a_sticky_folder_is_named(tree: Path) -> None:
    (tree / "in").chmod(0o1777)
    os.chown(tree / "in/file", OTHER, OTHER)
    assert trust.weakness(str(tree / "in/file")) == (
        str(tree / "in/file"),
        f"belongs to user {OTHER}",
    )
    assert trust.weakness(str(tree / "in/file"), (OTHER,)) is None


@needs_root
def test_a_group_may_write_if_it_is_roots_or_the_users_own(tree: Path) -> None:
    at = tree / "in"
    at.chmod(0o775)
    assert trust.weakness(str(at)) is None
    os.chown(at, 0, OTHER)
    assert trust.weakness(str(at)) == (str(at), f"can be written by group {OTHER}")
    os.chown(at, OTHER, OTHER)
    assert trust.weakness(str(at), (OTHER,)) is None
    os.chown(at, OTHER, 100)
    assert trust.weakness(str(at), (OTHER,)) == (str(at), "can be written by group 100")


def test_each_link_on_the_way_and_where_it_leads_are_looked_at(tree: Path) -> None:
    (tree / "open").mkdir()
    (tree / "open/link").symlink_to("../in")
    path = str(tree / "open/link/file")
    names = [at for at, _ in trust.components(path)]
    assert names[-4:] == [str(tree / one) for one in ("open", "open/link", "in", "in/file")]
    assert trust.weakness(path, ME) is None
    (tree / "open").chmod(0o777)
    found = trust.weakness(path, ME)
    assert found is not None and found.path == str(tree / "open")
    (tree / "open/link").unlink()
    (tree / "open/link").symlink_to(tree / "open/link")
    (tree / "open").chmod(0o755)
    with pytest.raises(OSError, match="Too many levels"):
        trust.weakness(path, ME)


@needs_root
def test_a_group_by_which_an_acl_lets_others_write_is_not_taken_for_roots(tree: Path) -> None:
    at = tree / "in"
    # version 2; user::rwx user:12345:rwx group::r-x mask::rwx other::r-x
    entries = ((1, 7, -1), (2, 7, OTHER), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    value = b"\2\0\0\0" + b"".join(
        tag.to_bytes(2, "little")
        + mode.to_bytes(2, "little")
        + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, mode, who in entries
    )
    try:
        os.setxattr(at, trust.ACL, value)
    except OSError as error:
        pytest.skip(f"this file system keeps no ACLs: {error.strerror}")
    assert at.stat().st_mode & 0o777 == 0o775
    assert trust.weakness(str(at)) == (str(at), "can be written by users that its ACL names")
