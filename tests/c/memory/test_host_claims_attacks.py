"""Tests the host ledger with hostile users: real user ids, namespaces, full disks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_build import build
from test_host_claims import EDGE_GIB, Process, eventually
from test_shim_limit import GIB, SAN, Host, big_host

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="plays several users, which takes root: run the tests as root"
)

ATTACKER, VICTIM, STRANGER = 10001, 10002, 10003
OTHERS = (10004, 10005)
"""Users that attack together with the attacker."""
WRITE_LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
ENTRY_BYTES = 192  # cards follow them in the file
READ_LOCK = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")


def becoming(user: int) -> tuple[str, ...]:
    """Returns arguments that run a command as that user."""
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


class Machine:
    """A host and a common ledger that all users can reach, as set up by an administrator."""

    def __init__(self, root: Path) -> None:
        self.ledger = root / "ledger"
        self.host: Host = big_host(root / "host")
        self.ledger.mkdir()
        for user in (0, ATTACKER, VICTIM, *OTHERS):
            self.folder(user).mkdir()
            os.chown(self.folder(user), user, user)
        for folder in (root, self.ledger, build(SAN).parent):
            folder.chmod(0o755)

    def folder(self, user: int) -> Path:
        return self.ledger / str(user)

    @contextlib.contextmanager
    def process(self, user: int, **options: object) -> Iterator[Process]:
        one = Process(self.host, self.ledger, user=user, **options)  # type: ignore[arg-type]
        try:
            yield one
        finally:
            one.kill()

    def seen(self) -> int:
        """Returns the GiB that another process finds claimed."""
        with self.process(0) as one:
            return round(EDGE_GIB + 0.8 - one.left() / GIB)


@pytest.fixture
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="pump-ledger-", dir="/dev/shm"))
    try:
        yield Machine(root)
    finally:
        shutil.rmtree(root)


@contextlib.contextmanager
def acting(user: int, act: Callable[[], None]) -> Iterator[None]:
    """Runs `act` in a process of that user, which keeps its open files until the end."""
    done, begun = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(done)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            act()
            os.write(begun, b"1")
            signal.pause()
        except BaseException as error:
            os.write(begun, repr(error).encode())
        finally:
            os._exit(1)
    os.close(begun)
    try:
        with os.fdopen(done, "rb") as pipe:
            assert (said := pipe.read(1)) == b"1", said + pipe.read()
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def hold(path: Path, flags: int, lock: bytes) -> None:
    """Locks the file for as long as this process lives."""
    fcntl.fcntl(os.open(path, flags | os.O_CREAT, 0o644), fcntl.F_OFD_SETLK, lock)


def as_claim(entry: bytes, claimed_bytes: int, levels: int | None = None) -> bytes:
    """Returns an entry with another claim, and the matching checksum."""
    words = list(struct.unpack(f"<{ENTRY_BYTES // 8}Q", entry[:ENTRY_BYTES]))
    words[4] = claimed_bytes
    words[7] = words[7] if levels is None else levels
    check = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(words) - 2}Q", *words[2:]):
        check = (check ^ byte) * 0x100000001B3 % (1 << 64)
    words[1] = check
    return struct.pack(f"<{len(words)}Q", *words) + entry[ENTRY_BYTES:]


def entry_of(machine: Machine, user: int) -> Path:
    (found,) = (path for path in machine.folder(user).iterdir() if path.name.isdigit())
    return found


@pytest.mark.parametrize("files", [4200, pytest.param(100_000, marks=pytest.mark.long)])
def test_thousands_of_files_of_one_user_hide_no_claim_of_another(
    machine: Machine, files: int
) -> None:
    def fill() -> None:
        for i in range(files):
            (machine.folder(ATTACKER) / f"{i}").touch()
        with contextlib.suppress(PermissionError):
            (machine.ledger / "1").mkdir()
            raise AssertionError("a user makes folders beside those of others")

    with machine.process(VICTIM) as victim:
        assert victim.admit(39 * GIB)
        with (
            acting(ATTACKER, fill),  # after the claim: the newest names are read first
            machine.process(0) as other,
            machine.process(ATTACKER) as attacker,
        ):
            assert victim.admit(GIB)
            assert not other.admit(20 * GIB) and other.admit(10 * GIB)
            assert not attacker.admit(10 * GIB)
            other.say(f"return {10 * GIB}")
            assert other.left() > 0  # the return is complete
            assert machine.seen() == 40


def test_locks_of_other_users_neither_keep_a_dead_claim_alive_nor_a_new_one_away(
    machine: Machine,
) -> None:
    with machine.process(VICTIM) as victim:
        assert victim.admit(40 * GIB)
        path = entry_of(machine, VICTIM)

        def try_locks() -> None:
            for flags, lock in ((os.O_RDONLY, READ_LOCK), (os.O_RDWR, WRITE_LOCK)):
                with contextlib.suppress(PermissionError, BlockingIOError):
                    hold(path, flags, lock)
                    raise AssertionError("a lock on the entry of another")
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)

        with acting(ATTACKER, try_locks):
            assert machine.seen() == 40

    def lock_the_dead() -> None:
        for each in machine.folder(VICTIM).iterdir():
            with contextlib.suppress(PermissionError):  # "turn" is closed to others
                file = os.open(each, os.O_RDONLY)
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, READ_LOCK)
                fcntl.flock(file, fcntl.LOCK_EX)

    with acting(ATTACKER, lock_the_dead):
        assert machine.seen() == 0
        with machine.process(VICTIM) as again:
            assert again.admit(40 * GIB)
            assert machine.seen() == 40


def test_three_users_who_fill_their_folders_and_lock_entries_together_hide_no_claim(
    machine: Machine,
) -> None:
    with machine.process(VICTIM) as victim:
        assert victim.admit(40 * GIB)
        path = entry_of(machine, VICTIM)

        def attack() -> None:
            for i in range(2000):
                (machine.folder(os.geteuid()) / f"{i}").touch()
            for _ in range(200):
                file = os.open(path, os.O_RDONLY)
                with contextlib.suppress(BlockingIOError):  # the owner's lock conflicts
                    fcntl.fcntl(file, fcntl.F_OFD_SETLK, READ_LOCK)
                fcntl.flock(file, fcntl.LOCK_SH)

        with (
            acting(ATTACKER, attack),
            acting(OTHERS[0], attack),
            acting(OTHERS[1], attack),
            machine.process(0) as other,
        ):
            assert not other.admit(20 * GIB)
            assert machine.seen() == 40
            assert victim.admit(GIB)
        victim.kill()
        assert machine.seen() == 0


def test_what_a_user_puts_into_the_own_folder_counts_for_no_other(machine: Machine) -> None:
    with machine.process(VICTIM) as victim:
        assert victim.admit(20 * GIB)
        path, mine = entry_of(machine, VICTIM), machine.folder(ATTACKER)
        sound = path.read_bytes()

        def rubbish() -> None:
            (mine / "0").symlink_to(path)
            os.mkfifo(mine / "1")
            (mine / "2").mkdir()
            with contextlib.suppress(PermissionError):
                os.link(path, mine / "3")
            with (mine / "4").open("wb") as huge:
                huge.truncate(1 << 40)
            (mine / "5").write_bytes(sound)
            hold(mine / "6", os.O_RDWR, WRITE_LOCK)  # alive, and empty
            for name, levels in (("7", 9), ("8", (1 << 64) - 1)):
                (mine / name).write_bytes(as_claim(sound, GIB, levels))
                hold(mine / name, os.O_RDWR, WRITE_LOCK)
            (mine / "turn").mkdir()

        with acting(ATTACKER, rubbish):
            assert machine.seen() == 20
            with machine.process(ATTACKER) as attacker:
                assert attacker.admit(8 * GIB), "what is no entry is replaced"


def test_a_lie_about_all_of_the_host_is_named_and_ends_with_the_liar(machine: Machine) -> None:
    with machine.process(VICTIM) as victim, machine.process(0) as other:
        assert victim.admit(20 * GIB)
        sound = entry_of(machine, VICTIM).read_bytes()

        def lie() -> None:
            for i in range(256):
                path = machine.folder(ATTACKER) / f"{i}"
                path.write_bytes(as_claim(sound, (1 << 64) - 1))
                hold(path, os.O_RDWR, WRITE_LOCK)

        with acting(ATTACKER, lie):
            assert not other.admit(GIB)
        assert other.admit(GIB)
        assert f", user {ATTACKER})" in other.end()


def test_a_user_without_a_folder_gets_an_eighth_and_counts_the_others(machine: Machine) -> None:
    with machine.process(VICTIM) as victim, machine.process(STRANGER) as stranger:
        assert victim.admit(40 * GIB)
        assert not stranger.admit(3 * GIB) and stranger.admit(2 * GIB)
        said = stranger.end()
        assert f"install -d -o {STRANGER} {machine.folder(STRANGER)}" in said
        assert "(Permission denied)" in said and "an eighth" in said


def test_a_name_that_another_user_has_taken_is_refused(machine: Machine) -> None:
    machine.ledger.chmod(0o1777)  # a possible mistake of an administrator
    squat = acting(ATTACKER, lambda: machine.folder(STRANGER).mkdir())
    with squat, machine.process(STRANGER) as stranger:
        assert not stranger.admit(8 * GIB) and stranger.admit(6 * GIB)
        assert "(Operation not permitted)" in stranger.end()


def test_a_user_whose_places_are_all_taken_gets_an_eighth(machine: Machine) -> None:
    def take_all() -> None:
        for i in range(256):
            hold(machine.folder(VICTIM) / f"{i}", os.O_RDWR, WRITE_LOCK)

    with acting(VICTIM, take_all), machine.process(VICTIM) as one:
        assert not one.admit(8 * GIB) and one.admit(6 * GIB)
        assert "fewer GPU processes of this user" in one.end()


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


SQUATS: dict[str, Callable[[Path], None]] = {
    "locked": lambda path: hold(path, os.O_RDWR, WRITE_LOCK),
    "folders": _full_folder,
    "links": lambda path: path.symlink_to("/nonexistent"),
    "pipes": os.mkfifo,
}
"""Objects that another user can put in place of an entry."""


@pytest.mark.parametrize("squat", SQUATS)
def test_a_folder_that_another_user_filled_before_it_was_given_away_is_the_owners(
    machine: Machine, squat: str
) -> None:
    """systemd-tmpfiles gives an existing folder to its user and leaves the content."""
    folder = machine.folder(VICTIM)
    os.chown(folder, ATTACKER, ATTACKER)

    def fill() -> None:
        for name in (*map(str, range(256)), "turn", "new"):
            SQUATS[squat](folder / name)

    with acting(ATTACKER, fill):
        os.chown(folder, VICTIM, VICTIM)
        with machine.process(VICTIM) as first, machine.process(VICTIM) as second:
            assert first.admit(20 * GIB) and second.admit(20 * GIB)
            assert machine.seen() == 40


def test_a_folder_that_others_may_write_to_is_closed_to_them(machine: Machine) -> None:
    machine.folder(VICTIM).chmod(0o777)
    with machine.process(VICTIM) as victim:
        assert victim.admit(20 * GIB)
        assert machine.folder(VICTIM).stat().st_mode & 0o777 == 0o755


def test_a_claim_of_another_pid_namespace_counts_until_its_process_dies(machine: Machine) -> None:
    with machine.process(0) as other:
        with machine.process(0, before=NAMESPACE) as one:
            assert one.admit(40 * GIB) and not other.admit(20 * GIB)
        assert eventually(lambda: other.admit(20 * GIB))
        assert "in another container, user 0" in other.end()


def test_claims_of_three_users_in_pid_namespaces_of_their_own_count_until_they_die(
    machine: Machine,
) -> None:
    """Each process is process 1 of its own namespace."""
    with contextlib.ExitStack() as stack:
        for user, claimed_gib in zip((ATTACKER, *OTHERS), (10, 15, 20), strict=True):
            one = stack.enter_context(machine.process(0, before=(*NAMESPACE, *becoming(user))))
            assert one.admit(claimed_gib * GIB)
        with machine.process(VICTIM) as victim:
            assert not victim.admit(15 * GIB) and victim.admit(10 * GIB)
    assert eventually(lambda: machine.seen() == 0)


def test_of_users_that_ask_at_once_no_more_get_it_than_there_is_room_for(
    machine: Machine,
) -> None:
    size = 13 * GIB  # four times this size is within the 56.8 GiB
    with contextlib.ExitStack() as stack:
        users = 2 * (ATTACKER, VICTIM, *OTHERS)
        many = [stack.enter_context(machine.process(user)) for user in users]
        for one in many:
            assert one.left() > size  # it has started
        for one in many:
            one.say(f"admit {size}")
        answers = [one.answer() for one in many]
        assert answers.count("0") <= 4, "more than the host can take"
        assert answers.count("0") + sum(one.admit(size) for one in many) == 4


def test_three_users_who_fill_the_file_system_leave_a_fourth_an_eighth(machine: Machine) -> None:
    users = (ATTACKER, *OTHERS)
    lines = ['mount -t tmpfs -o size=256k,mode=755 pump "$0"']
    lines += [f'install -d -o {user} -g {user} "$0/{user}"' for user in (VICTIM, *users)]
    for user in users:
        fill = f'dd if=/dev/zero of="$0/{user}/0" bs=4k count=99 status=none'
        lines.append(f"{shlex.join(becoming(user))} {fill} 2>&- || true")
    script = " && ".join([*lines, 'exec "$@"'])
    inside = ("unshare", "--mount", "sh", "-c", script, str(machine.ledger), *becoming(VICTIM))
    with machine.process(0, before=inside) as one:
        assert not one.admit(8 * GIB) and one.admit(6 * GIB)
        assert "(No space left on device)" in one.end()


def test_a_full_file_system_refuses_beyond_the_share_and_says_so(machine: Machine) -> None:
    mount = 'mount -t tmpfs -o size=8k pump "$0" && mkdir "$0/0"'
    fill = '! dd if=/dev/zero of="$0/full" bs=4k count=9 status=none 2>&- && exec "$@"'
    inside = ("unshare", "--mount", "sh", "-c", f"{mount} && {fill}", str(machine.ledger))
    with machine.process(0, before=inside) as one:
        assert not one.admit(8 * GIB) and one.admit(6 * GIB)
        said = one.end()
        assert "(No space left on device)" in said and "free space there" in said


def test_a_program_that_becomes_another_user_claims_as_that_one(machine: Machine) -> None:
    with machine.process(0) as one:
        assert one.admit(20 * GIB)
        one.ask(f"user {VICTIM}")
        assert eventually(lambda: machine.seen() == 20 and any(machine.folder(VICTIM).glob("0")))
        assert one.admit(10 * GIB)
        assert machine.seen() == 30


assert sys.maxsize > 1 << 32, "struct flock as packed above"
