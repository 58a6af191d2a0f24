"""Files that pump writes for people: whole or absent, and never over files of another kind."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import select
from pathlib import Path

import pytest

from pump.base import outputs, schemas
from pump.base.names import one_line, quoted
from pump.cli.support.options import writable_log
from pumpd.common.loglines import FileHandler, Formatter

TEXT = schemas.dump("simulate", {"trace": 1}) + "\n"


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("compare", outputs.COMPARISON),
        ("fit", outputs.FITTED),
        ("report", outputs.REPORT),
        ("simulate", outputs.SIMULATED),
    ],
)
def test_json_is_known_again_by_its_schema_which_comes_first(
    schema: str, kind: outputs.Kind
) -> None:
    written = schemas.dump(schema, {"a": 1})
    assert kind.fits(written.encode())
    assert list(json.loads(written).items()) == [("schema", f"pump.{schema}/1"), ("a", 1)]
    assert not kind.fits(b'{\n "a": 1}\n')


def test_only_its_own_kind_is_replaced_and_a_refusal_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for there in ("", TEXT):
        path.write_text(there)
        outputs.write(str(path), TEXT, outputs.SIMULATED)
        assert path.read_text() == TEXT
    for there in ('{"name": "package"}', "x", "\x93PUMPTR\n"):
        path.write_text(there)
        with pytest.raises(OSError, match="it is not a result of pump simulate"):
            outputs.write(str(path), TEXT, outputs.SIMULATED)
        assert path.read_text() == there
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "f"
    for refuse in (outputs.may_replace, lambda path, kind: outputs.write(path, TEXT, kind)):
        with pytest.raises(FileNotFoundError, match="a folder' does not exist; create it first"):
            refuse(str(path), outputs.SIMULATED)
    assert not list(tmp_path.iterdir())


def test_a_link_is_never_followed_and_a_leftover_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "f"
    victim.write_text("")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        outputs.write(str(path), TEXT, outputs.SIMULATED)
    path.unlink()
    words = iter([b"\0\0\0\0", b"\0\0\0\1"])
    monkeypatch.setattr(os, "urandom", lambda _: next(words))
    (tmp_path / "f.part-00000000").symlink_to(victim)  # an attacker's guess, or a leftover
    outputs.write(str(path), TEXT, outputs.SIMULATED)
    assert (path.read_text(), victim.read_text()) == (TEXT, "")


def test_a_failure_leaves_what_was_there_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text(TEXT)
    with pytest.raises(RuntimeError), outputs.replacing(str(path), outputs.SIMULATED) as out:
        out.write("half")
        raise RuntimeError
    assert path.read_text() == TEXT
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_what_is_written_keeps_the_mode_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text(TEXT)
    path.chmod(0o640)
    outputs.write(str(path), TEXT, outputs.SIMULATED)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("number", "without_locks"),
    [
        (errno.ENOLCK, True),
        (errno.EOPNOTSUPP, True),
        (errno.ENOSYS, True),
        (errno.EBADF, False),
        (errno.EACCES, False),
    ],
)
def test_only_a_file_system_without_locks_lets_a_lock_pass(
    number: int, without_locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int, _kind: int) -> None:
        raise OSError(number, os.strerror(number))

    with (tmp_path / "f").open("w") as file:
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert outputs.is_free(file.fileno())
        if without_locks:
            assert outputs.lock(file.fileno())
        else:
            with pytest.raises(OSError, match=os.strerror(number)):
                outputs.lock(file.fileno())


def test_a_lock_is_one_process_s_until_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("w") as second:
        with path.open("w") as first:
            assert outputs.lock(first.fileno())
            assert not outputs.is_free(second.fileno())
            assert not outputs.lock(second.fileno())
        assert outputs.is_free(second.fileno())
        assert outputs.lock(second.fileno())


# ---- names ----


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/a/b-c_1.pump", "/a/b-c_1.pump"),
        ("/a/größe", "/a/größe"),
        ("", "''"),
        ("a b", "'a b'"),
        ("$(touch x)", "'$(touch x)'"),
        ("it's", "'it\\x27s'"),
        ("a\nb\x1b[0m\\", "'a\\x0ab\\x1b[0m\\\\'"),
        ("\udcff\u202e\ud800", "'\\xff\\xe2\\x80\\xae\\xed\\xa0\\x80'"),
    ],
)
def test_a_name_is_one_plain_word_or_stands_in_quotes(name: str, shown: str) -> None:
    assert quoted(name) == shown
    assert one_line(quoted(name)) == quoted(name)


def test_a_log_line_stays_one_line_whatever_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = FileHandler(str(path))
    handler.setFormatter(Formatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("a %s", "b\nERROR forged\x1b[2J\udcff")
    try:
        raise ValueError("c\nERROR forged")
    except ValueError:
        logger.exception("d")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["WARNING a b", "| ERROR forged\\x1b[2J\\xff", "ERROR d"]
    assert all(line.startswith("| ") for line in lines[3:])


def test_a_log_file_that_is_a_pipe_keeps_nothing_waiting_and_its_reader_reads(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    assert writable_log(str(pipe)) == str(pipe)
    handler = FileHandler(str(pipe))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("not read")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        writable_log(str(pipe))
        assert not select.select([reader], [], [], 0)[0]  # the check writes no end of file
        logger.warning("read")
        assert os.read(reader, 100) == b"read\n"
        for _ in range(10_000):
            logger.warning("more than a pipe holds")
    finally:
        os.close(reader)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("sources", "there", "umask", "mode"),
    [
        ((0o600,), None, 0o022, 0o600),
        ((0o600,), 0o644, 0o022, 0o600),  # an older page, readable by all users
        ((0o644,), None, 0o022, 0o644),
        ((0o644,), None, 0o077, 0o600),
        ((0o644, 0o640), None, 0o000, 0o640),
        ((0o644, 0o600), None, 0o000, 0o600),
        ((0o644,), 0o640, 0o022, 0o640),
        ((0o400,), None, 0o022, 0o600),
        ((), None, 0o022, 0o644),
    ],
)
def test_what_is_made_from_a_file_is_open_to_no_more_users_than_that(
    tmp_path: Path, sources: tuple[int, ...], there: int | None, umask: int, mode: int
) -> None:
    path, made_from = tmp_path / "f", []
    if there is not None:
        path.write_text(TEXT)
        path.chmod(there)
    for number, one in enumerate(sources):
        source = tmp_path / f"{number}"
        source.touch()
        source.chmod(one)
        made_from.append(str(source))
    before = os.umask(umask)
    try:
        outputs.write(str(path), TEXT, outputs.SIMULATED, sources=made_from)
    finally:
        os.umask(before)
    assert mode_of(path) == mode


def test_what_is_made_from_a_missing_file_or_a_stream_is_the_users_alone(tmp_path: Path) -> None:
    for source in (str(tmp_path / "missing"), "/dev/null", "a\0b"):
        assert outputs.mode_most([source]) == 0o600


def test_a_group_reads_what_is_made_from_its_file_only_if_the_new_file_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.touch()
    source.chmod(0o640)
    assert outputs.mode_most([str(source)]) == 0o640
    other = source.stat().st_gid + 1
    monkeypatch.setattr(os, "getegid", lambda: other)
    assert outputs.mode_most([str(source)]) == 0o600


def test_a_pipe_without_a_reader_is_refused_and_one_with_a_reader_gets_the_text(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="nothing reads from this pipe"):
        outputs.write(str(path), TEXT, outputs.SIMULATED)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    outputs.write(str(path), TEXT, outputs.SIMULATED)
    assert os.read(reader, 100) == TEXT.encode()
    os.close(reader)
