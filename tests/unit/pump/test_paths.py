"""The job's private folder, and the search for libraries."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

import pump
from pump.base import paths
from pump.cli import jobs
from pump.cli.support import launch


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a home of the user's own. It and the folder of temporary files have short names,
    because a socket's path has to fit below them."""
    with (
        tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="temporary-", dir="/tmp") as temporary,
    ):
        monkeypatch.setenv("HOME", folder)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr(paths, "TEMPORARY", temporary)
        yield Path(folder)


def state_base(home: Path) -> str:
    start = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]
    return f"{home}/.local/state/pump/run-{start}"


def test_a_runtime_folder_is_used_if_it_is_ours_and_short_else_one_below_the_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = "/proc/self/cwd"  # a short name for the user's folder
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", good)
    assert paths.runtime_bases() == [f"{good}/pump"], "a choice stands alone"
    for bad in ("", "relative", "/nonexistent", "/etc/passwd", f"{good}/{'./' * 40}"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", bad)
        assert paths.runtime_bases()[-1] == state_base(home)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert paths.runtime_bases()[-1] == state_base(home)
    monkeypatch.setenv("XDG_STATE_HOME", f"{home}/state")
    assert paths.runtime_bases()[-1].startswith(f"{home}/state/pump/run-")


def test_a_runtime_folder_that_cannot_be_written_to_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/self/cwd")
    assert paths.runtime_base() == "/proc/self/cwd/pump"
    monkeypatch.setattr(os, "access", lambda *_: False)  # root could write anywhere
    assert paths.runtime_base() == state_base(home)


def test_a_session_and_cron_find_each_others_jobs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of them has XDG_RUNTIME_DIR; the session may have begun later."""
    monkeypatch.setattr(paths, "SESSIONS", "/proc/self/cwd")
    monkeypatch.chdir(tmp_path)
    session = Path("/proc/self/cwd") / str(os.geteuid())
    session.mkdir(mode=0o700)
    bases = [state_base(home), paths.make_temporary_base(), f"{session}/pump"]
    sockets = {f"{paths.make_job_directory(base, os.getpid())}/socket" for base in bases}
    for one in sockets:
        Path(one).touch()
    for environ in (str(session), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", environ)
        assert paths.runtime_bases() == [f"{session}/pump", state_base(home)]
        assert {job.socket for job in jobs.found()} == sockets


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_what_others_could_have_put_there_is_no_jobs_folder(home: Path) -> None:
    for where in (Path(state_base(home)), Path(paths.TEMPORARY) / f"pump-{'0' * 16}"):
        where.mkdir(parents=True, mode=0o700)
        assert str(where) in paths.job_bases()
        os.chown(where, 12345, 12345)
        assert str(where) not in paths.job_bases()
    home.chmod(0o777)  # others could replace its contents
    assert state_base(home) not in paths.runtime_bases()
    home.chmod(0o755)
    os.chown(home, 12345, 12345)  # as after sudo, which may keep HOME
    assert state_base(home) not in paths.runtime_bases()


def test_a_home_that_is_too_long_for_sockets_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{home}/{'x' * 60}")
    assert not any(base.startswith(str(home)) for base in paths.runtime_bases())
    monkeypatch.setattr(paths, "SESSIONS", "/nonexistent")
    with pytest.raises(paths.UnsafeDirectoryError, match="set XDG_RUNTIME_DIR"):
        paths.user_service_socket()


def test_a_file_system_that_takes_no_sockets_is_passed_over(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems with homes refuse sockets."""

    class Picky(socket.socket):
        def bind(self, path: str) -> None:
            if path.startswith(str(home)):
                raise PermissionError(1, "Operation not permitted")
            super().bind(path)

    monkeypatch.setattr(launch.socket, "socket", Picky)
    monkeypatch.setattr(paths, "SESSIONS", "/nonexistent")
    monkeypatch.setattr(paths, "TEMPORARY", "/proc/self/cwd")
    monkeypatch.chdir(tmp_path)
    listener, path = launch._listen(77)
    listener.close()
    assert paths.TEMPORARY_BASE.fullmatch(Path(path).parents[1].name)
    assert not list(Path(state_base(home)).iterdir()), "nothing is left where it was tried"
    launch._remove(path)
    assert not list(tmp_path.iterdir())


def test_folders_of_earlier_starts_of_the_machine_are_removed_if_empty(home: Path) -> None:
    now = Path(state_base(home))
    for name in ("run-0123456789ab", "run-ba9876543210/1-00000000", "other"):
        (now.parent / name).mkdir(parents=True)
    paths.make_job_directory(str(now), 1)
    assert sorted(path.name for path in now.parent.iterdir()) == sorted(
        ["run-ba9876543210", "other", now.name]
    )


def test_a_folder_for_one_job_goes_with_the_job(home: Path) -> None:
    first, second = paths.make_temporary_base(), paths.make_temporary_base()
    assert first != second and Path(first).stat().st_mode & 0o777 == 0o700
    directory = paths.make_job_directory(first, 1)
    assert set(paths.job_bases()) >= {first, second}
    paths.remove_job_directory(directory)
    assert not Path(first).exists() and Path(second).exists()


def test_a_jobs_folder_is_private_and_new_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = "/proc/self/cwd/base"
    monkeypatch.chdir(tmp_path)
    first, second = (Path(paths.make_job_directory(base, 77)) for _ in range(2))
    assert first != second
    for folder in (first, second, first.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert first.name.startswith("77-")


def test_a_umask_that_takes_from_the_owner_closes_no_folder(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        folder = Path(paths.make_job_directory(str(tmp_path / "base"), 77))
    finally:
        os.umask(before)
    for made in (folder, folder.parent):
        assert made.stat().st_mode & 0o777 == 0o700


def test_a_base_that_others_could_reach_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "mine").mkdir(mode=0o700)
    for name, reason in (
        ("link", "symbolic link"),
        ("file", "not a folder"),
        ("open", "chmod 700"),
        ("closed", "chmod 700"),
    ):
        with pytest.raises(paths.UnsafeDirectoryError, match=reason):
            paths.make_job_directory(str(tmp_path / name), 1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(paths.UnsafeDirectoryError, match="belongs to user"):
        paths.make_job_directory(str(tmp_path / "mine"), 1)


def test_a_path_too_long_for_a_socket_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    base = tmp_path / ("x" * 100)
    with pytest.raises(paths.UnsafeDirectoryError, match="too long"):
        paths.make_job_directory(str(base), 1)
    assert list(base.iterdir()) == []


def test_all_folders_of_an_editable_installation_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUMP_LIB_DIR", raising=False)
    monkeypatch.setattr(pump, "__path__", [str(tmp_path / "source"), str(tmp_path / "site")])
    with pytest.raises(paths.MissingFileError, match=r"libpump\.so is missing.*reinstall pump"):
        paths.library("libpump.so")
    (tmp_path / "site/_lib").mkdir(parents=True)
    (tmp_path / "site/_lib/libpump.so").touch()
    assert paths.library("libpump.so") == str(tmp_path / "site/_lib/libpump.so")
    assert any(Path(word).is_file() for word in paths.isolated("pumpd")[1:])


def test_the_ledger_is_the_machines_where_root_has_made_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "runtime_base", lambda: str(tmp_path / "pump"))
    own = str(tmp_path / "pump-host")
    common = tmp_path / "common"
    monkeypatch.setattr(paths, "LEDGER", str(common))
    assert paths.ledger_folder() == own
    assert Path(own).stat().st_mode & 0o777 == 0o700
    common.mkdir()
    shared = str(common)
    for mode, wanted in ((0o755, shared), (0o775, own), (0o777, own), (0o1777, own)):
        common.chmod(mode)
        expected = wanted if common.stat().st_uid == 0 else own
        assert paths.ledger_folder() == expected, oct(mode)
    link = tmp_path / "link"
    link.symlink_to(common)
    monkeypatch.setattr(paths, "LEDGER", str(link))
    assert paths.ledger_folder() == own
    Path(own).chmod(0o755)
    with pytest.raises(paths.UnsafeDirectoryError, match="open to others"):
        paths.ledger_folder()
