"""Attacks of other users on a job and its pumpd: read, control, disturb or impersonate it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jobs import Job, host_kernels
from supervisor_client import eventually
from users import (
    ALICE,
    ATTACKERS,
    TIMEOUT_S,
    Say,
    User,
    as_user,
    needs_root,
    public_folder,
    together,
)

import pumpd.worker.recorder
import pumpd.worker.worker  # noqa: F401  # reads the modules of the victim's processes as root
from pump.base import paths
from pump.control import Control, ControlError
from pump.service import ServiceClient, ServiceError
from pump.wire import control
from pumpd import main
from pumpd.common import link

pytestmark = needs_root

PTRACE_ATTACH = 16
LIBC = ctypes.CDLL(None, use_errno=True)
REFUSED = (errno.EACCES, errno.EPERM)


class Victim:
    """Alice's recorded job, its pumpd, and a client that keeps its mapping open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "alice"
        self.folder.mkdir(mode=0o755)
        os.chown(self.folder, ALICE, ALICE)
        self.socket = self.folder / "socket"
        self.log = self.folder / "log"
        self.record = self.folder / "recording"
        self.pumpd = User(ALICE, self._serve)
        assert self.pumpd.hear() == "serves"
        self.client = User(ALICE, self._hold)
        assert self.client.hear() == "served"

    def _serve(self, say: Say) -> None:
        os.umask(0o077)  # as under pump-run
        files = ["--log-file", str(self.log), "--record", str(self.record), "--log-level", "info"]
        os.setpgid(0, 0)
        listener = link.bind_listener(str(self.socket), 8)
        say("serves")
        job = ["--job-pid", str(os.getppid()), "--fd", str(listener.detach())]
        status = main.main(["job", "--socket", str(self.socket), *job, *files])
        say(f"ended with {status}")

    def _hold(self, say: Say) -> None:
        status, files = -1, []
        while status != link.WELCOME_OK:  # the warm process may still be starting
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(str(self.socket))
            connection.send(link.pack_hello(os.getpid()))
            data, files, _, _ = socket.recv_fds(connection, link.WELCOME.size, 4)
            status = link.WELCOME.unpack(data)[2]
        with mmap.mmap(files[0], link.SHM_BYTES):
            say("served")
            signal.pause()

    def processes(self) -> list[psutil.Process]:
        supervisor = psutil.Process(self.pumpd.pid)
        return [supervisor, *supervisor.children(recursive=True), psutil.Process(self.client.pid)]

    def close(self) -> None:
        self.client.close()
        self.pumpd.close()


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with public_folder() as folder:
        made = Victim(folder)
        yield made
        made.close()


def attempt(action: Callable[[], Any]) -> str:
    """Returns the result of an action; "" if the system refused it."""
    try:
        return f"got {action()!r}"
    except OSError as error:
        return "" if error.errno in REFUSED else f"errno {error.errno}"


def traced(pid: int) -> int:
    """Attaches as a tracer; returns 0. Raises OSError if that is refused."""
    if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return 0


def looked_into(pids: list[int]) -> list[str]:
    """Returns the successful attempts of this user to read, signal or trace processes."""
    got = []
    for pid in pids:
        for name in ("environ", "mem", "maps", "fd", "cwd", "root", "exe", "io"):
            path = Path(f"/proc/{pid}/{name}")
            look = path.readlink if name in ("cwd", "root", "exe") else path.read_bytes
            action = (lambda p=path: os.listdir(p)) if name == "fd" else look  # noqa: PTH208
            got.append((f"{pid} {name}", attempt(action)))
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, 0):
            got.append((f"{pid} signal {number}", attempt(lambda p=pid, n=number: os.kill(p, n))))
        got.append((f"{pid} ptrace", attempt(lambda p=pid: traced(p))))
        for fd in range(32):
            path = Path(f"/proc/{pid}/fd/{fd}")
            got.append((str(path), attempt(lambda p=path: p.open("rb"))))
    return [f"{what}: {said}" for what, said in got if said]


def test_no_user_looks_into_anothers_pumpd_nor_its_client_nor_ends_them(victim: Victim) -> None:
    def all_there() -> bool:
        return {one.name() for one in victim.processes()} >= {"pumpd-warm", "pumpd-worker"}

    eventually(all_there, "a worker")
    processes = victim.processes()
    pids = [one.pid for one in processes]
    environment = Path(f"/proc/{pids[0]}/environ")
    assert as_user(ALICE, attempt, environment.read_bytes) != "", "Alice can read her own pumpd"
    for user in ATTACKERS:
        assert as_user(user, looked_into, pids) == []
    assert all(one.is_running() for one in processes)
    assert all(one.status() != psutil.STATUS_STOPPED for one in processes)


def test_no_user_reads_anothers_recording_or_log(victim: Victim) -> None:
    for user in ATTACKERS:
        for path in (victim.log, *victim.folder.glob("*recording*")):
            assert as_user(user, attempt, path.read_bytes) == "", path
            assert as_user(user, attempt, lambda p=path: p.open("ab")) == "", path
        assert as_user(user, attempt, (victim.folder / "mine").touch) == ""


def test_no_user_steers_anothers_job_or_gets_a_mapping_of_its_pumpd(victim: Victim) -> None:
    def steers() -> bool:
        """Sends a request, ignoring refusals; returns whether there was a reply."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(5)
            connection.connect(str(victim.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(control.pack_hello())
                connection.recv(control.WELCOME_BYTES_MAX)
                connection.send(control.encode_request(control.Request("set", policy="demand")))
                return bool(connection.recv(control.REPLY_BYTES))
        return False

    for user in ATTACKERS:
        assert as_user(user, attempt, steers) == "", "its socket is its user's"
    victim.socket.chmod(0o777)  # an administrator may open the socket to all users
    for user in ATTACKERS:
        assert as_user(user, steers) is False
    assert as_user(ALICE, steers) is True
    for user in ATTACKERS:
        status, files = as_user(user, send_hello, str(victim.socket))
        assert (status, files) == (link.WELCOME_REFUSED, 0)
    status, files = as_user(ALICE, send_hello, str(victim.socket))
    assert (status, files) == (link.WELCOME_OK, 1)


def send_hello(path: str) -> tuple[int, int]:
    """Sends a hello to a pumpd; returns the status and the number of descriptors of its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        try:
            connection.send(link.pack_hello(os.getpid()))
            data, files, _, _ = socket.recv_fds(connection, link.WELCOME.size, 4)
        except (BrokenPipeError, ConnectionResetError):  # refused before any word
            return link.WELCOME_REFUSED, 0
        for file in files:
            os.close(file)
    return link.WELCOME.unpack(data)[2], len(files)


def holds_silent_connections(say: Say, path: str) -> None:
    held: list[socket.socket] = []
    for turn in range(1_000_000):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.connect(path)
        held.append(one)
        if len(held) > 200:
            held.pop(0).close()
        if turn == 300:
            say("holds")


def test_three_users_who_flood_a_jobs_socket_keep_no_client_from_it(victim: Victim) -> None:
    victim.socket.chmod(0o777)
    with together(holds_silent_connections, str(victim.socket)):
        for _ in range(5):
            assert as_user(ALICE, send_hello, str(victim.socket)) == (link.WELCOME_OK, 1)


# ---- folders and sockets ----


def squats(names: list[str]) -> None:
    """Creates the folders that another user's pump would make, before it does."""
    for number, name in enumerate(names):
        with contextlib.suppress(FileExistsError):
            if number % 2:
                Path(name).symlink_to("/etc")
            else:
                Path(name).mkdir(mode=0o777)


def test_thousands_of_folders_that_three_others_have_made_first_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with public_folder() as folder:
        folder.chmod(0o1777)
        monkeypatch.setattr(paths, "TEMPORARY", str(folder))
        monkeypatch.setenv("HOME", "/nonexistent")
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        taken = [str(folder / f"pump-{ALICE}"), str(folder / f"pump-{ALICE}-host")]
        taken += [str(folder / f"pump-{number:016x}") for number in range(1000)]
        for user in ATTACKERS:
            names = [f"pump-{user:08x}{number:08x}" for number in range(1000)]
            as_user(user, squats, [*taken, *(str(folder / name) for name in names)])

        def makes_its_own() -> tuple[str, bool, list[str]]:
            made = paths.make_temporary_base()
            return made, os.stat(made).st_mode & 0o77 == 0, paths.job_bases()  # noqa: PTH116

        made, private, seen = as_user(ALICE, makes_its_own)
        assert made not in taken and private
        assert seen == [made], "no folder of another's is looked into"


def serves_falsely(say: Say, path: Path) -> None:
    """Takes over the socket's path again and again; finally reports the received bytes."""
    heard: list[bytes] = []
    turn = 0
    while not say.told_to_end():
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        ):
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen(8)
            listener.settimeout(0.05)
            turn += 1
            if turn == 3:
                say("serves")
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(1)
                heard.append(connection.recv(4096))
    say([word for word in heard if word])


def asks(path: str) -> set[str]:
    """Returns the errors that clients of a service and of a job get if other users serve."""
    told = set()
    until_s = time.monotonic() + TIMEOUT_S / 2
    while len(told) < 2 * len(ATTACKERS) and time.monotonic() < until_s:
        for attempt in (ServiceClient, lambda path: Control(path).state()):
            try:
                attempt(path)
                return {"believed"}
            except (ServiceError, ControlError) as error:
                found = re.search(r"user (\d+) serves it", str(error))
                told |= {f"{type(error).__name__} {found[1]}"} if found else set()
    return told


def test_no_word_is_said_to_services_of_three_users_that_take_each_others_place() -> None:
    with public_folder() as folder:
        folder.chmod(0o777)
        with together(serves_falsely, folder / "socket") as people:
            told = as_user(ALICE, asks, str(folder / "socket"))
            for one in people:
                one.end()
            assert [one.hear() for one in people] == [[]] * len(people), "they have learnt nothing"
    assert "believed" not in told
    assert {one.split()[0] for one in told} == {"UntrustedServiceError", "ControlError"}


def test_no_shim_says_a_word_to_three_users_that_take_its_pumpds_place(tmp_path: Path) -> None:
    """The job's own pumpd is elsewhere; the program finds the socket of another user."""
    kernels = host_kernels("mix_kernels.c", tmp_path)
    words = ["--buffers=6", "--mib=8", "--steps=40", "--seed=5", "--sleep-ms=20"]
    job = Job(kernels, tmp_path)
    with public_folder() as folder:
        folder.chmod(0o777)
        command = job.command(*words, memory_mib=24)
        at = command.index("--") + 1
        command[at:at] = ["env", f"PUMP_SOCKET={folder / 'socket'}"]
        with together(serves_falsely, folder / "socket") as people:
            done = subprocess.run(
                command,
                env=job.environment(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            for one in people:
                one.end()
            assert [one.hear() for one in people] == [[]] * len(people), "they have learnt nothing"
    assert done.returncode == 0, done.stderr
    assert "is not served by this user or root" in job.log.read_text()
