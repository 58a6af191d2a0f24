"""The supervisor as a process, with clients in Python and a fake worker.

A client must be answered at once, be served by a worker of its own, and learn of that worker's
death. If any other process is killed, the remaining parts keep running.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import supervisor_client
from supervisor_client import Client, alive, eventually

from pumpd.common import link
from pumpd.common.jobwatch import JobWatch
from pumpd.common.settings import WorkerSettings
from pumpd.job import supervisor

SCRIPT = Path(supervisor_client.__file__)


class Scene:
    """Runs a job (a sleeping process) and its supervisor, and cleans up after both."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "socket"
        self.log = folder / "log"
        self.job = subprocess.Popen(["sleep", "600"])
        self.command = [sys.executable, str(SCRIPT), str(self.socket), str(self.job.pid)]
        self.command += ["--log", str(self.log), *options]
        self.start()

    def start(self) -> None:
        self.supervisor = subprocess.Popen(self.command)
        eventually(lambda: link.answers(str(self.socket)), "the supervisor to listen")

    def client(self, hello: bytes | None = None) -> Client:
        return Client(self.socket, hello)

    def warm_pids(self) -> list[int]:
        children = Path(f"/proc/{self.supervisor.pid}/task/{self.supervisor.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def descriptors(self) -> list[str]:
        return os.listdir(f"/proc/{self.supervisor.pid}/fd")  # noqa: PTH208

    def end_job(self) -> None:
        self.job.kill()
        self.job.wait()

    def close(self) -> None:
        self.end_job()
        self.supervisor.kill()
        self.supervisor.wait()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def connect_silently(scene: Scene) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(10)
    one.connect(str(scene.socket))
    return one


def test_each_client_gets_a_mapping_and_a_worker_of_its_own(scene: Scene) -> None:
    with scene.client() as first, scene.client() as second:
        for client in (first, second):
            assert client.status == link.WELCOME_OK
            assert client.magic == link.HELLO_MAGIC
            assert client.shm_bytes == link.SHM_BYTES
            assert client.word(24) == os.getpid()
        assert first.worker_pid() != second.worker_pid()


def test_a_client_is_answered_while_the_worker_is_still_being_imported(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--load-s", "2")
    try:
        start = time.monotonic()
        with scene.client() as client:
            assert client.status == link.WELCOME_OK
            assert time.monotonic() - start < 1.0
            assert client.word(28) == 0
            assert client.worker_pid()
            assert not client.closed()
    finally:
        scene.close()


def test_a_warm_process_that_cannot_be_started_is_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        one = supervisor.Supervisor(
            listener, JobWatch(os.getpid()), WorkerSettings("window", "debug", None, 0)
        )
        monkeypatch.setattr(socket, "socketpair", refused)
        pauses = []
        for _ in range(4):
            one._warm.start()
            assert one._warm.due is not None
            pauses.append(round(one._warm.due - time.monotonic(), 1))
        one._close()
    assert pauses == [0.1, 0.2, 0.4, 0.8]


def test_a_workers_death_closes_its_clients_socket_and_a_new_one_serves(scene: Scene) -> None:
    with scene.client() as bystander:
        bystander.worker_pid()
        for _ in range(5):
            with scene.client() as client:
                os.kill(client.worker_pid(), signal.SIGKILL)
                eventually(client.closed, "end of file after the worker's death")
        assert alive(bystander.worker_pid())
        assert not bystander.closed()


def test_when_the_warm_process_dies_workers_go_on_and_new_clients_are_served(scene: Scene) -> None:
    with scene.client() as old:
        worker = old.worker_pid()
        for _ in range(2):
            (warm,) = scene.warm_pids()
            os.kill(warm, signal.SIGKILL)
            eventually(
                lambda warm=warm: scene.warm_pids() not in ([], [warm]), "a new warm process"
            )
            with scene.client() as new:
                assert new.status == link.WELCOME_OK
                assert new.worker_pid() != worker
        assert alive(worker)
        assert not old.closed()


def test_when_the_supervisor_dies_workers_serve_on_and_end_with_their_clients(scene: Scene) -> None:
    client = scene.client()
    worker = client.worker_pid()
    (warm,) = scene.warm_pids()
    scene.supervisor.kill()
    scene.supervisor.wait()
    eventually(lambda: not alive(warm), "the warm process to end with its supervisor")
    assert alive(worker)
    assert not client.closed()
    scene.start()  # a new supervisor replaces the stale socket
    with scene.client() as new:
        assert new.worker_pid() != worker
    client.close()
    eventually(lambda: not alive(worker), "the worker to end with its client")


def test_it_ends_when_the_job_has_ended_and_the_last_client_has_left(scene: Scene) -> None:
    client = scene.client()
    worker = client.worker_pid()
    (warm,) = scene.warm_pids()
    scene.end_job()
    time.sleep(0.3)
    assert scene.supervisor.poll() is None
    with scene.client() as late:  # from a process of the job that outlives the first one
        assert late.worker_pid()
    client.close()
    assert scene.supervisor.wait(10) == 0
    eventually(lambda: not alive(worker) and not alive(warm), "worker and warm process to end")
    assert not scene.socket.exists()


def test_a_stopped_worker_does_not_keep_it_after_the_jobs_end(scene: Scene) -> None:
    client = scene.client()
    worker = client.worker_pid()
    os.kill(worker, signal.SIGSTOP)
    client.close()
    scene.end_job()
    assert scene.supervisor.wait(10) == 0
    eventually(lambda: not alive(worker), "the worker to end")


def test_without_pidfds_the_end_of_the_job_is_seen_as_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--no-pidfd")
    try:
        scene.end_job()
        assert scene.supervisor.wait(10) == 0
    finally:
        scene.close()


def test_a_job_that_ended_while_unreaped_counts_as_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--no-pidfd")
    try:
        scene.job.kill()  # not waited for: a zombie keeps its number
        assert scene.supervisor.wait(10) == 0
    finally:
        scene.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once_and_in_order(number: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        with scene.client() as client:
            client.worker_pid()
            scene.supervisor.send_signal(number)
            assert scene.supervisor.wait(10) == 0
            assert not scene.socket.exists()
    finally:
        scene.close()


def test_another_build_of_the_shim_is_told_so_and_closed(scene: Scene) -> None:
    fields = list(link.HELLO.unpack(link.pack_hello(1)))
    for position in (1, 3):
        changed = fields.copy()
        changed[position] += 1
        with scene.client(link.HELLO.pack(*changed)) as client:
            assert client.status == link.WELCOME_VERSION
            assert client.version == link.ABI_VERSION
            assert client.memfd is None
            eventually(client.closed, "the connection to be closed")


def test_a_client_too_many_is_told_to_come_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--max-clients", "2")
    try:
        with scene.client() as first, scene.client() as second:
            assert first.worker_pid() != second.worker_pid()
            with scene.client() as third:
                assert third.status == link.WELCOME_BUSY
                assert third.memfd is None
        eventually(lambda: try_once(scene) == link.WELCOME_OK, "room after the others have left")
    finally:
        scene.close()


def try_once(scene: Scene) -> int:
    with scene.client() as client:
        return client.status


def test_silent_connections_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--max-handshakes", "3")
    try:
        assert try_once(scene) == link.WELCOME_OK  # by then the first probe is done
        start = time.monotonic()
        silent = [connect_silently(scene) for _ in range(3)]
        extra = connect_silently(scene)
        assert link.WELCOME.unpack(extra.recv(256))[2] == link.WELCOME_BUSY
        for one in silent:
            assert one.recv(1) == b"", "no client may stay silent"
        assert 1.5 < time.monotonic() - start < 6.0
        assert try_once(scene) == link.WELCOME_OK
    finally:
        scene.close()


def test_garbage_is_refused_and_harms_no_client(scene: Scene) -> None:
    source = random.Random(11)
    with scene.client() as bystander:
        worker = bystander.worker_pid()
        for _ in range(300):
            one = connect_silently(scene)
            # Descriptors that are sent along must not pile up in the supervisor.
            fds = [0] * source.randrange(3)
            data = source.randbytes(source.randrange(1, 300))
            socket.send_fds(one, [data], fds)
            if source.random() < 0.5:
                assert link.WELCOME.unpack(one.recv(256))[2] == link.WELCOME_REFUSED
            one.close()
        assert try_once(scene) == link.WELCOME_OK
        assert alive(worker)
        assert not bystander.closed()


def test_clients_that_come_and_go_leave_no_descriptor_behind(scene: Scene) -> None:
    with scene.client() as client:
        client.worker_pid()
    eventually(lambda: "worker of client" in scene.log.read_text(), "the worker to end")
    before = len(scene.descriptors())
    for number in range(30):
        with scene.client() as client:
            if number % 2:
                client.worker_pid()
    eventually(lambda: len(scene.descriptors()) == before, "descriptors to be closed")
    (warm,) = scene.warm_pids()
    assert len(os.listdir(f"/proc/{warm}/fd")) <= before  # noqa: PTH208


def test_a_worker_that_cannot_be_loaded_is_tried_again_ever_more_slowly(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "--broken")
    try:
        eventually(lambda: scene.log.read_text().count("loading") >= 3, "more than one attempt")
        time.sleep(1.0)
        attempts = scene.log.read_text().count("loading")
        assert attempts <= 5
        eventually(lambda: try_once(scene) == link.WELCOME_BUSY, "clients to be turned away")
        assert re.search("broken on purpose", scene.log.read_text())
    finally:
        scene.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_is_refused(scene: Scene) -> None:
    scene.socket.chmod(0o777)
    scene.socket.parent.chmod(0o711)
    code = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"  # a relative path needs no access to parent folders
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.connect('socket')\n"
        "sys.exit(s.recv(256)[12])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=scene.socket.parent, timeout=20, check=False
    )
    assert done.returncode == link.WELCOME_REFUSED
