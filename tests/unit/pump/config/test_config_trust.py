"""An attacker's pump.toml in a folder: the settings that apply, and the places of recordings."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pump.config import checks, files, folder, layers, trust
from pump.config.settings import AT_ONCE, JOB, NEVER, TRUSTED, Setting
from pump.trace import place

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
PUMP = [sys.executable, "-c", "import sys; from pump.cli.main import main; sys.exit(main())"]


class Clone:
    """A cloned folder, which is the working folder of the test, and its user's home."""

    def __init__(self, base: Path) -> None:
        self.home, self.folder = base / "home", base / "clone"
        self.file = self.folder / "pump.toml"
        self.home.mkdir()
        self.folder.mkdir()
        self.environ = {"HOME": str(self.home)}

    def write(self, job: str) -> None:
        self.file.write_text(f"[job]\n{job}\n")

    def resolve(self, **options: object) -> layers.Resolved:
        return layers.resolve(options, self.environ, layers.places(None, self.environ))

    def pump_config(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PUMP, "config", *words],
            cwd=self.folder,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def trust(self) -> None:
        trust.change(folder.absolute("pump.toml"), self.file.read_bytes(), self.environ)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    made = Clone(tmp_path)
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv("HOME", str(made.home))
    return made


# ---- settings that apply ----


def test_every_setting_is_classified_and_those_that_name_files_never_apply_unseen() -> None:
    assert {setting.folder for setting in JOB.values()} == {AT_ONCE, TRUSTED, NEVER}
    for key, setting in JOB.items():
        if setting.check is checks.file_name:
            assert setting.folder != AT_ONCE, key


def test_a_setting_without_a_permission_never_applies(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(clone.home.iterdir()) == set()
    monkeypatch.setitem(JOB, "budget", Setting("A new setting.", "1GiB", checks.amount))
    clone.write('budget = "1GiB"\npriority = 3')
    for _ in range(2):
        resolved = clone.resolve()
        assert resolved.values == {"priority": 3}
        assert "ignoring budget (line 2): set budget with an option" in resolved.notes[0]
        clone.trust()


def test_settings_without_paths_apply_without_trust_and_say_nothing(clone: Clone) -> None:
    clone.write('budget = "1GiB"\npolicy = "demand"\npriority = 3\nkeep_device = ["library=x"]')
    resolved = clone.resolve()
    assert resolved.values["budget"] == str(1 << 30)
    assert set(resolved.values) == {"budget", "policy", "priority", "keep_device"}
    assert resolved.notes == []
    assert not list(clone.home.iterdir())


@pytest.mark.parametrize("record", ["~/thesis.tex", "../x", "run.pump", "/etc/motd", "a/../../x"])
def test_a_clones_recording_applies_only_after_trust_and_only_beneath_it(
    clone: Clone, record: str
) -> None:
    clone.write(f'budget = "1GiB"\nrecord = "{record}"')
    resolved = clone.resolve()
    assert resolved.values == {"budget": str(1 << 30)}
    (note,) = resolved.notes
    assert "ignoring record (line 3)" in note
    assert "pump config trust" in note
    clone.trust()
    resolved = clone.resolve()
    if record == "run.pump":
        assert resolved.values["record"] == str(clone.folder / "run.pump")
        assert resolved.record_beneath == str(clone.folder)
        assert resolved.notes == []
    else:
        assert "record" not in resolved.values
        assert "record must be in" in resolved.notes[0]


def test_a_clones_log_file_never_applies(clone: Clone) -> None:
    clone.write('log_file = "~/.bashrc"')
    for _ in range(2):
        resolved = clone.resolve()
        assert resolved.values == {}
        assert "ignoring log_file (line 2): set log_file with an option" in resolved.notes[0]
        clone.trust()


def test_what_a_clone_may_not_set_leaves_the_users_own_choice_in_force(clone: Clone) -> None:
    own = clone.home / ".config" / "pump" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[job]\nrecord = "/own"\nrecord_command = false\nlog_file = "/log"\n')
    clone.write('record = "x"\nrecord_command = true\nlog_file = "y"')
    resolved = clone.resolve()
    expected = {"record": "/own", "record_command": False, "log_file": "/log"}
    assert resolved.values == expected
    assert resolved.record_beneath == ""


def test_a_file_that_is_named_is_trusted(clone: Clone) -> None:
    clone.write('record = "../x"')
    places = layers.places("pump.toml", clone.environ)
    assert layers.resolve({}, clone.environ, places).values["record"] == str(
        clone.folder.parent / "x"
    )


# ---- trust ----


def test_trust_ends_when_the_file_changes_or_moves_and_when_it_is_revoked(clone: Clone) -> None:
    clone.write('record = "a"')
    clone.trust()
    assert clone.resolve().values["record"] == str(clone.folder / "a")
    clone.write('record = "b"')
    assert "record" not in clone.resolve().values
    clone.trust()
    assert "record" in clone.resolve().values
    trust.change(folder.absolute("pump.toml"), None, clone.environ)
    assert "record" not in clone.resolve().values
    clone.trust()
    clone.folder.rename(clone.folder.with_name("elsewhere"))
    os.chdir(clone.folder.with_name("elsewhere"))
    assert "record" not in clone.resolve().values


def test_the_command_shows_what_it_trusts_and_what_is_ignored(clone: Clone) -> None:
    clone.write('record = "a\\nb"\nlog_file = "z"')
    assert "# pump.toml: ignoring log_file (line 3), record (line 2)" in (
        clone.pump_config("show").stdout
    )
    done = clone.pump_config("trust")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f'{clone.file}: trusted with its current content: record = "{clone.folder}/a\\U0000000ab", '
        "log_file never applies\n"
    )
    store = clone.home / ".local" / "state" / "pump" / "trusted.json"
    assert store.stat().st_mode & 0o777 == 0o600
    assert "ignores record" not in clone.pump_config("show").stdout
    assert clone.pump_config("trust", "--revoke").stdout == f"{clone.file}: not trusted\n"
    assert clone.pump_config("trust", "other.toml").returncode == 2


def test_a_list_of_trust_that_is_open_to_others_is_not_believed(clone: Clone) -> None:
    clone.write('record = "a"')
    clone.trust()
    store = Path(trust.store_path(clone.environ))
    store.chmod(0o620)
    resolved = clone.resolve()
    assert "record" not in resolved.values
    assert "other users can change" in resolved.notes[0]
    store.chmod(0o600)
    for content in ("[" * 100_000, "{}x", '{"a": 1}', "[]", "\x00"):
        store.write_text(content)
        assert "record" not in clone.resolve().values
    store.unlink()
    os.mkfifo(store)
    assert "record" not in clone.resolve().values
    store.unlink()
    store.mkdir()
    assert "record" not in clone.resolve().values


# ---- owners ----


@ROOT
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_a_file_that_another_user_left_in_a_shared_folder_is_ignored(
    clone: Clone, mode: int
) -> None:
    clone.folder.chmod(0o1777)
    clone.write('budget = "1GiB"')
    clone.file.chmod(mode)
    os.chown(clone.file, 12345, 12345)
    resolved = clone.resolve(policy="demand")
    assert resolved.values == {"policy": "demand"}
    assert "ignored: pump.toml belongs to user 12345" in resolved.notes[0]


def test_what_is_no_file_or_open_to_all_is_ignored_and_nothing_waits(clone: Clone) -> None:
    os.mkfifo(clone.file)
    assert "not a regular file" in clone.resolve().notes[0]
    clone.file.unlink()
    clone.file.mkdir()
    assert "Is a directory" in clone.resolve().notes[0]
    clone.file.rmdir()
    clone.file.symlink_to("pump.toml")
    assert "cannot read pump.toml" in clone.resolve().notes[0]
    clone.file.unlink()
    clone.write('budget = "1GiB"')
    clone.file.chmod(0o666)
    assert "can be written by all users" in clone.resolve().notes[0]
    clone.file.chmod(0o664)  # a group's file is as foreign as a cloned one
    assert clone.resolve().values == {"budget": str(1 << 30)}


def test_a_hard_link_to_another_file_counts_only_where_no_other_can_have_made_it(
    clone: Clone,
) -> None:
    other = clone.home / "other.toml"
    other.write_text('[job]\nbudget = "1GiB"\n')
    clone.file.hardlink_to(other)
    assert clone.resolve().values == {"budget": str(1 << 30)}
    clone.folder.chmod(0o1777)
    resolved = clone.resolve()
    assert resolved.values == {}
    assert "has a second hard link" in resolved.notes[0]


def test_a_link_that_comes_while_a_file_is_opened_is_not_followed(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = clone.home / "other.toml"
    other.write_text('[job]\nbudget = "2GiB"\n')
    clone.write('budget = "1GiB"')
    look = os.lstat

    def swapped(path: str) -> os.stat_result:
        found = look(path)
        clone.file.unlink()
        clone.file.symlink_to(other)
        return found

    monkeypatch.setattr(files.os, "lstat", swapped)
    with pytest.raises(files.NotOursError, match=r"cannot read pump\.toml"):
        files.read("pump.toml", own=True, shown="pump.toml")


@ROOT
def test_anothers_file_in_the_users_own_place_is_ignored(clone: Clone) -> None:
    own = clone.home / ".config" / "pump" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[job]\nrecord = "/x"\n')
    os.chown(own, 12345, 12345)  # for example root with another HOME
    resolved = clone.resolve()
    assert resolved.values == {}
    assert "belongs to user 12345" in resolved.notes[0]


# ---- inside the folder ----


@pytest.fixture(params=["openat2", "component by component"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Selects one of the two ways to open a folder inside another, if the kernel has it."""

    def missing(_top: int, _path: str) -> int:
        raise OSError(errno.ENOSYS, "no openat2")

    if request.param != "openat2":
        monkeypatch.setattr(place, "_openat2", missing)
    else:
        try:
            os.close(place._openat2(os.open("/", os.O_PATH), "."))
        except OSError as error:
            pytest.skip(f"this kernel or sandbox has no openat2: {error.strerror}")
    return str(request.param)


def opened(path: Path, beneath: Path) -> Path:
    fd = place.open_folder(str(path), str(beneath))
    try:
        return Path(f"/proc/self/fd/{fd}").readlink()
    finally:
        os.close(fd)


def test_a_recording_beneath_a_folder_is_not_led_out_of_it(tmp_path: Path, way: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "within").symlink_to("a")
    (inside / "file").write_text("")
    assert opened(inside / "x", inside) == inside
    assert opened(inside / "a" / "b" / "x", inside) == inside / "a" / "b"
    for bad in ("link/x", "within/x", "a/../../out/x", "file/x", "../out/x"):
        with pytest.raises(OSError, match=r"its path contains|must be in") as caught:
            opened(inside / bad, inside)
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV), bad
    with pytest.raises(FileNotFoundError):
        opened(inside / "missing" / "x", inside)


def test_a_race_between_a_folder_and_a_link_never_leads_out(tmp_path: Path, way: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "a").mkdir(parents=True)
    outside.mkdir()
    (inside / "l").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one, two in (("a", "t"), ("l", "a"), ("a", "l"), ("t", "a")):
                (inside / one).rename(inside / two)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(500):
            try:
                found = opened(inside / "a" / "x", inside)
            except OSError:
                continue
            assert found.parent == inside, found
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("there", ["text", "link", "dangling", "pipe", "folder", "device"])
def test_what_is_no_recording_is_neither_claimed_nor_changed(tmp_path: Path, there: str) -> None:
    path, text = tmp_path / "t", tmp_path / "thesis.tex"
    text.write_text("years of work")
    target = {"link": text, "dangling": tmp_path / "new", "device": Path("/dev/null")}
    if there == "text":
        path.hardlink_to(text)
    elif there == "pipe":
        os.mkfifo(path)
    elif there == "folder":
        path.mkdir()
    else:
        path.symlink_to(target[there])
    where = place.open_folder(str(path))
    try:
        with pytest.raises(OSError, match=r"remove it|symbolic link|not a regular|folder"):
            place.claim("t", where)
    finally:
        os.close(where)
    assert text.read_text() == "years of work"
    assert not (tmp_path / "new").exists()


def test_a_recording_goes_where_its_folder_was_opened_whatever_comes_in_its_place(
    tmp_path: Path,
) -> None:
    """During the recording, the folder is moved away and a link takes its place."""
    folder_, victim = tmp_path / "runs", tmp_path / "victim"
    folder_.mkdir()
    victim.mkdir()
    (victim / "t").write_text("precious")
    where = place.open_folder(str(folder_ / "t"))
    draft = place.Draft("t", where)
    folder_.rename(tmp_path / "moved")
    folder_.symlink_to(victim)
    os.write(draft.fd, b"x")
    draft.publish()
    draft.close()
    os.close(where)
    assert (victim / "t").read_text() == "precious"
    assert (tmp_path / "moved" / "t").read_bytes() == b"x"


def test_a_file_that_comes_while_a_recording_goes_on_is_not_replaced(tmp_path: Path) -> None:
    where = place.open_folder(str(tmp_path / "t"))
    draft = place.Draft("t", where)
    (tmp_path / "t").unlink()
    (tmp_path / "t").write_text("precious")
    with pytest.raises(OSError, match=f"the recording is in {draft.part}"):
        draft.publish()
    draft.close()
    os.close(where)
    assert (tmp_path / "t").read_text() == "precious"
    assert (tmp_path / draft.part).exists()


def test_a_killed_writers_draft_is_found_and_blocks_no_later_recording(tmp_path: Path) -> None:
    path = tmp_path / "t"
    old = os.umask(0o777)
    try:
        where = place.open_folder(str(path))
        first = place.Draft("t", where)
        assert place.parts(str(path)) == [(str(tmp_path / first.part), True)]
        with pytest.raises(OSError, match="another job records") as caught:
            place.claim("t", where)
        assert caught.value.errno == errno.EBUSY
        first.close()  # as the kernel does for a killed process
        assert place.unfinished(str(path)) == [str(tmp_path / first.part)]
        second = place.Draft("t", where)
        fcntl.flock(second.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        second.publish()
        second.close()
        os.close(where)
    finally:
        os.umask(old)
    assert (tmp_path / first.part).exists()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_recording_that_is_published_between_the_look_and_the_lock_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock would be on the file that the publication has replaced."""
    (tmp_path / "run.pump").touch()
    locked = place.lock

    def lock(fd: int) -> None:
        (tmp_path / "draft").touch()
        (tmp_path / "draft").rename(tmp_path / "run.pump")
        locked(fd)

    monkeypatch.setattr(place, "lock", lock)
    folder_fd = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(OSError, match=place.BUSY):
            place.claim("run.pump", folder_fd)
    finally:
        os.close(folder_fd)


def test_a_draft_of_nothing_leaves_no_file_and_one_that_was_there_alone(tmp_path: Path) -> None:
    where = place.open_folder(str(tmp_path / "t"))
    place.Draft("t", where).discard()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "t").touch()
    place.Draft("t", where).discard()
    os.close(where)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
