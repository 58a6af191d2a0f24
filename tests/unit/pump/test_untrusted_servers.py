"""Servers of other users: a client trusts only servers that root allowed.

The tests use real user ids and a real user namespace: they fork, become other users, and attack.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_users import ATTACKER, VICTIM, as_user, needs_root, serving
from places import ROOT

from pump.base import paths
from pump.cli.support import launch
from pump.control import Control, ControlError
from pump.service import ServiceClient, ServiceError
from pump.wire import server
from pumpd.lease.lease_client import JobFacts, LeaseClient

BIN = Path(sys.executable).parent
pytestmark = needs_root


@pytest.fixture
def folder() -> Iterator[Path]:
    """Makes a folder that all users can reach, and only root can change."""
    with tempfile.TemporaryDirectory(prefix="pump-untrusted-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def ask(path: Path) -> str:
    with ServiceClient(str(path)):
        return "believed"


# ---- a false server ----


def test_a_service_of_another_user_is_not_believed_and_one_line_says_why(folder: Path) -> None:
    folder.chmod(0o1777)
    path = folder / "service"
    with serving(path, ATTACKER):
        told = as_user(VICTIM, lambda: ask(path))
        assert told.startswith("UntrustedServiceError: ") and f"user {ATTACKER} serves it" in told
        assert f"{folder} can be written by all users" in told and "\n" not in told
        with pytest.raises(ServiceError, match=f"user {ATTACKER} serves it"):
            ask(path)
        assert as_user(ATTACKER, lambda: ask(path)) == "believed", "it is its own"
        with pytest.raises(ControlError, match=f"user {ATTACKER} serves it"):
            Control(str(path)).state()


def test_a_service_that_root_gave_a_user_is_believed(folder: Path) -> None:
    """A client trusts another user's socket if only root can put it there, as in /run/pump."""
    path = folder / "service"
    folder.chmod(0o1777)
    with serving(path, ATTACKER):
        folder.chmod(0o755)
        assert as_user(VICTIM, lambda: ask(path)) == "believed"
        os.chown(path, VICTIM, VICTIM)
        with pytest.raises(ServiceError, match="another user owns the socket"):
            ask(path)
        os.chown(path, ATTACKER, ATTACKER)
        os.chown(folder, ATTACKER, ATTACKER)
        with pytest.raises(ServiceError, match=f"{folder} belongs to user {ATTACKER}"):
            ask(path)


def test_a_socket_replaced_under_a_client_is_noticed_when_it_connects_again(folder: Path) -> None:
    folder.chmod(0o777)
    path = folder / "service"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mine:
        mine.bind(str(path))
        path.chmod(0o666)
        mine.listen(1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            server.check(client, str(path))
    assert as_user(ATTACKER, lambda: str(path.unlink())) == "None", "the folder lets it"
    with serving(path, ATTACKER), pytest.raises(ServiceError, match="serves it"):
        ask(path)


def test_a_job_passes_over_an_untrusted_service_and_says_so_once(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrusted, own = folder / "untrusted", folder / "own"
    folder.chmod(0o1777)
    monkeypatch.setattr(logging.getLogger("pumpd"), "propagate", True)
    with (
        serving(untrusted, ATTACKER),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        selectors.DefaultSelector() as selector,
    ):
        listener.bind(str(own))
        listener.listen(4)
        listener.settimeout(5)
        holder = LeaseClient(selector, lambda *_: None, JobFacts(paths=[str(untrusted), str(own)]))
        for _ in range(2):
            holder._state.due = 0.0
            holder.on_time(time.monotonic())
            peer, _ = listener.accept()
            assert peer.recv(64), "it says hello to its own"
            peer.close()
            holder._disconnect("the test's end")
        holder.close()
    told = [one for one in caplog.messages if "ignoring the untrusted service" in one]
    assert len(told) == 1 and f"user {ATTACKER} serves it" in told[0]


@pytest.mark.parametrize("verb", [("jobs",), ("top", "--once"), ("service", "metrics")])
def test_pump_says_why_a_service_is_not_believed(folder: Path, verb: tuple[str, ...]) -> None:
    folder.chmod(0o1777)
    path = folder / "service"
    with serving(path, ATTACKER):
        done = subprocess.run(
            [str(BIN / "pump"), *verb],
            env={**os.environ, "PUMP_SERVICE": str(path), "XDG_RUNTIME_DIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0
    assert f"user {ATTACKER} serves it" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ---- a squatted folder ----


def test_a_user_that_makes_the_folders_first_neither_stops_a_job_nor_serves_it(
    folder: Path,
) -> None:
    """The guessable names include /tmp/pump-UID, which earlier releases used."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, VICTIM, VICTIM)
    squatted = Path(f"/tmp/pump-{VICTIM}")
    assert as_user(ATTACKER, lambda: str(squatted.mkdir(mode=0o777))) == "None"

    def listen(here: Path) -> str:
        os.environ.update(HOME=str(here), XDG_RUNTIME_DIR="", XDG_STATE_HOME="")
        listener, path = launch._listen(os.getpid())
        listener.close()
        modes = [Path(path).parents[i].stat() for i in range(2)]
        assert all((one.st_uid, one.st_mode & 0o777) == (VICTIM, 0o700) for one in modes)
        launch._remove(path)
        return path

    try:
        assert str(home) in as_user(VICTIM, lambda: listen(home))
        path = Path(as_user(VICTIM, lambda: listen(Path("/nonexistent"))))
        assert paths.TEMPORARY_BASE.fullmatch(path.parents[1].name), path
        assert not path.parents[1].exists(), "it goes with the job"
    finally:
        squatted.rmdir()


# ---- a user namespace: root is an unknown user there ----

IN_NAMESPACE = """
import ctypes, os, socket, sys, tempfile
sys.path[:0] = [sys.argv[1]]
from pump.service import ServiceClient, ServiceError
from pump.wire import server
libc = ctypes.CDLL(None, use_errno=True)
folder, readonly, base = sys.argv[2], sys.argv[3] == "ro", 100000
pid = os.getpid()
go, ready = os.pipe(), os.pipe()
if os.fork() == 0:  # maps the namespace from outside, as a container runtime does
    os.read(ready[0], 1)
    for what in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{what}", "w") as file:
            file.write(f"0 {base} 65536")
    os.write(go[1], b"1")
    os._exit(0)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
def mount(source, target, flags):
    if libc.mount(source, target, None, flags, None):
        raise OSError(ctypes.get_errno(), "mount")
def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
unshare(0x20000)  # CLONE_NEWNS
mount(None, b"/", MS_REC | MS_PRIVATE)
if readonly:
    mount(folder.encode(), folder.encode(), MS_BIND)
    mount(None, folder.encode(), MS_BIND | MS_REMOUNT | MS_RDONLY)
unshare(0x10000000)  # CLONE_NEWUSER
os.write(ready[1], b"1")
os.read(go[0], 1)
os.setgid(int(sys.argv[4])); os.setuid(int(sys.argv[4]))
assert os.stat("/").st_uid == 65534, "root is unknown here"
with tempfile.TemporaryDirectory(dir="/tmp") as own:
    listener, client = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    listener.bind(own + "/socket")
    listener.listen(1)
    client.connect(own + "/socket")
    server.check(client, own + "/socket")  # its own user's, whatever its number
try:
    with ServiceClient(folder + "/service"):
        print("believed")
except ServiceError as error:
    print(error)
"""


def asked_inside(folder: Path, mount: str, user: int) -> str:
    words = [sys.executable, "-c", IN_NAMESPACE, str(ROOT), str(folder), mount, str(user)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    if "PermissionError" in done.stderr and "unshare" in done.stderr:
        pytest.skip("this machine allows no user namespaces")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("user", [0, 1000, 65534])
def test_in_a_user_namespace_only_a_socket_on_a_read_only_mount_is_believed(
    folder: Path, user: int
) -> None:
    with serving(folder / "service", 0):
        assert asked_inside(folder, "ro", user) == "believed"
        told = asked_inside(folder, "rw", user)
    assert "mount the folder of the service's socket read-only" in told


def test_in_a_user_namespace_services_of_three_users_are_not_believed(folder: Path) -> None:
    """In the namespace they appear as the same user as root."""
    for server_ in (ATTACKER, VICTIM, 65534):
        own = folder / str(server_)
        own.mkdir()
        own.chmod(0o777)
        with serving(own / "service", server_):
            told = asked_inside(own, "rw", 1000)
        assert "mount the folder of the service's socket read-only" in told
