"""Control connections of a supervisor with simulated workers (supervisor_client.py)."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT
from supervisor_client import Client, alive, eventually
from test_supervisor_serving import Scene, connect_silently

from pump.control import Control, ControlError
from pump.wire import control as wire
from pumpd.job.control_server import SILENT_ANSWER_S


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture
def control(scene: Scene) -> Iterator[Control]:
    with Control.of_job(str(scene.socket)) as made:
        yield made


def served(scene: Scene) -> Client:
    client = scene.client()
    client.worker_pid()
    return client


def test_each_client_of_a_job_answers(scene: Scene, control: Control) -> None:
    assert control.state() == []
    with served(scene), served(scene):
        assert [one.policy for one in control.set("demand")] == ["demand", "demand"]
        assert len(control.state(client_pid=os.getpid())) == 2
        assert control.state(client_pid=1) == []
    with pytest.raises(ControlError, match="no such client"):
        eventually(lambda: control.state() == [], "the workers to end")
        control.set("demand")


@pytest.mark.parametrize("part", ["silent", "garble"])
def test_a_worker_that_does_not_answer_is_one_entry_with_an_error(
    scene: Scene, control: Control, part: str
) -> None:
    with served(scene) as client:
        start = time.monotonic()
        with pytest.raises(ControlError, match="did not answer within"):
            control.set(part)
        assert time.monotonic() - start < 6
        worker = client.worker_pid()
        assert alive(worker)
        os.kill(worker, signal.SIGSTOP)
        start = time.monotonic()
        (one,) = control.state()
        assert one.error is not None and "did not answer within" in one.error
        assert time.monotonic() - start < SILENT_ANSWER_S + 2, "it is not waited for again"
        os.kill(worker, signal.SIGCONT)
        eventually(lambda: control.state()[0].error is None, "an answer of one that runs again")


def test_a_worker_that_ends_meanwhile_is_told_at_once(scene: Scene, control: Control) -> None:
    with served(scene):
        start = time.monotonic()
        with pytest.raises(ControlError, match="its worker has ended") as error:
            control.set("die")
        assert time.monotonic() - start < 3
        assert [one.pid for one in error.value.clients] == [os.getpid()]


def test_clients_are_served_while_a_question_waits(scene: Scene) -> None:
    with served(scene):
        asker = greet(scene)
        asker.send(wire.encode_request(wire.Request("set", policy="silent")))
        time.sleep(0.1)
        start = time.monotonic()
        with served(scene) as client:
            assert alive(client.worker_pid())
        assert time.monotonic() - start < 2
        asker.close()  # pumpd stops waiting for the answer
    with Control.of_job(str(scene.socket)) as other:
        eventually(lambda: other.state() == [], "the workers to end")


def greet(scene: Scene) -> socket.socket:
    one = connect_silently(scene)
    one.send(wire.pack_hello())
    wire.check_welcome(one.recv(256))
    return one


def test_control_connections_are_bounded_in_number(scene: Scene) -> None:
    many = [greet(scene) for _ in range(16)]
    with pytest.raises(ControlError, match="too many connections"):
        Control.of_job(str(scene.socket)).state()
    many.pop().close()
    with Control.of_job(str(scene.socket)) as control:
        eventually(lambda: answers(control), "room after one has left")
    for one in many:
        one.close()


def answers(control: Control) -> bool:
    try:
        control.state()
    except ControlError:
        return False
    return True


def test_requests_are_bounded_in_their_rate(scene: Scene) -> None:
    asked = 60
    askers = [greet(scene) for _ in range(3)]
    data = wire.encode_request(wire.Request("state"))
    start = time.monotonic()
    for _ in range(asked // 3):
        for one in askers:
            one.send(data)
        for one in askers:
            assert wire.decode_reply(one.recv(65536)) == []
    assert time.monotonic() - start > asked * 0.005 * 0.9
    for one in askers:
        one.close()


@pytest.mark.parametrize("seed", range(3))
def test_hostile_peers_harm_neither_clients_nor_other_peers(scene: Scene, seed: int) -> None:
    print("seed", seed)
    source = random.Random(seed)
    with served(scene) as client:
        worker = client.worker_pid()
        for _ in range(60):
            hello = wire.pack_hello()
            if source.random() < 0.3:
                hello = hello[: source.randrange(8, 16)] + source.randbytes(source.randrange(40))
            one = connect_silently(scene)
            fds = [0] * source.randrange(3)
            socket.send_fds(one, [hello], fds)
            for _ in range(source.randrange(4)):
                good = wire.encode_request(wire.Request("state"))
                noise = source.randbytes(source.randrange(1, 6000))
                try:
                    socket.send_fds(one, [source.choice((good, noise))], fds)
                except OSError:
                    break
            one.close()
        with Control.of_job(str(scene.socket)) as control:
            eventually(lambda: answers(control), "an answer")
            assert control.state()[0].error is None
        assert alive(worker) and not client.closed()


def test_a_control_of_another_version_is_told_so(scene: Scene) -> None:
    one = connect_silently(scene)
    one.send(wire.pack_hello(version=9))
    with pytest.raises(wire.FrameError, match="one release"):
        wire.check_welcome(one.recv(256))
    one.close()


def test_a_connection_that_was_closed_for_its_silence_is_made_again(scene: Scene) -> None:
    with Control.of_job(str(scene.socket)) as control:
        assert control.state() == []
        assert control._socket is not None
        control._socket.shutdown(socket.SHUT_RDWR)
        assert control.state() == []


def test_a_server_that_never_answers_does_not_hold_a_client_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pump.control.TIMEOUT_S", 0.5)
    path = tmp_path / "mute"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(str(path))
        mute.listen(1)
        start = time.monotonic()
        with pytest.raises(ControlError, match="did not answer within"):
            Control.of_job(str(path)).state()
        assert time.monotonic() - start < 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_control_by_another_user_is_refused_in_one_line(scene: Scene) -> None:
    scene.socket.chmod(0o777)
    scene.socket.parent.chmod(0o711)
    code = (
        "import os, sys\n"
        "from pump.control import Control, ControlError\n"
        "os.setuid(65534)\n"  # a relative path needs no access to parent folders
        "try: Control.of_job('socket').state()\n"
        "except ControlError as error: print(error)\n"
    )
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=scene.socket.parent,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert "only the job's own user controls it" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
