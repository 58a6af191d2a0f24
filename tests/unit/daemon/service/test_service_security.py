"""The guarantees of docs/security.md for the system service, with a test for each line there."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from places import ROOT
from service_client import MIB, Played, Service, closing, connect, is_closed, until
from service_messages import MESSAGES, mutated
from supervisor_client import eventually

from pump.service import ServiceClient, ServiceError
from pump.wire import control
from pump.wire import service as wire
from pump.wire.strict import FrameError
from pumpd.lease.lease_client import JobFacts, LeaseClient
from pumpd.service.owners import Identity
from pumpd.service.registry import Registry

OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


def with_quotas(folder: Path, config: str = "", **quotas: int) -> Service:
    """Starts a service with these small quotas."""
    code = (
        "import functools, sys; from pumpd import main; from pumpd.service import serve\n"
        f"serve.Quotas = functools.partial(serve.Quotas, **{quotas!r})\n"
        "sys.exit(main.main())"
    )
    (folder / "config.toml").write_text(config)
    words = ["--beat", "1", "--settle", "0.05", "--config", str(folder / "config.toml")]
    return Service(folder, *words, command=[sys.executable, "-c", code, "serve"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, "--beat", "1", "--settle", "0.05")
    yield made
    made.kill()


def as_other_user(service: Service, code: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` as another user, with `client` connected to the service."""
    service.socket.parent.chmod(0o755)
    line = (
        "import os; from pump.service import ServiceClient; from pump.wire import service as w\n"
        "os.setgid(65534); os.setuid(65534)\nclient = ServiceClient('service')\n" + code
    )
    folder = service.socket.parent
    return subprocess.run(
        [sys.executable, "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'daemon'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---- what users may see and do ----


@needs_root
def test_users_see_their_own_jobs_and_root_sees_all(service: Service) -> None:
    with closing(Played(service, name="of root")):
        done = as_other_user(
            service,
            "client._socket.send(w.encode(w.Join('mine', 0)))\n"
            "client._socket.recv(4096)\n"
            "print([(job.name, job.user) for job in client.jobs()])",
        )
        assert done.stdout.splitlines()[0] == f"[('mine', {OTHER_USER})]", done.stderr
        with service.ask() as root:
            assert "of root" in [job.name for job in root.jobs()]


@needs_root
@pytest.mark.parametrize("who", ["nobody", "@nogroup"])
def test_observers_see_the_jobs_of_all_users(tmp_path: Path, who: str) -> None:
    try:
        known = pwd.getpwnam("nobody"), grp.getgrnam("nogroup")
    except KeyError:
        pytest.skip("this machine has no user nobody or no group nogroup")
    assert known[0].pw_uid == OTHER_USER and known[0].pw_gid == known[1].gr_gid
    config = tmp_path / "config.toml"
    config.write_text(f'[service]\nobservers = ["no-such-user", "{who}"]\n')
    service = Service(tmp_path, "--beat", "1", "--config", str(config))
    try:
        with closing(Played(service, name="of root")):
            done = as_other_user(service, "print([job.name for job in client.jobs()])")
            assert done.stdout.splitlines() == ["['of root']"], done.stderr
            assert "there is no user no-such-user" in service.log.read_text()
            config.write_text("")
            service.process.send_signal(signal.SIGHUP)
            eventually(
                lambda: "reloaded" in service.log.read_text(), "the configuration to be read"
            )
            done = as_other_user(service, "print([job.name for job in client.jobs()])")
            assert done.stdout.splitlines() == ["[]"], done.stderr
    finally:
        service.kill()


def test_the_kernel_decides_which_user_a_peer_is(service: Service) -> None:
    with closing(Played(service, job_pid=1)), service.ask() as client:
        (job,) = client.jobs()
        assert (job.user, job.pid) == (os.geteuid(), os.getpid())


# ---- floods and slow peers ----


def test_a_user_that_floods_waits_and_others_are_answered(service: Service) -> None:
    code = (
        "import socket, sys; from pump.wire import service as w\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
        "s.send(w.pack_hello()); s.recv(64); s.send(w.encode(w.Join()))\n"
        "beat = w.encode(w.Beat())\nprint('floods', flush=True)\n"
        "while True: s.send(beat)\n"
    )
    flooders = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(service.socket)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        for one in flooders:
            assert one.stdout is not None and one.stdout.readline() == "floods\n"
        with service.ask() as client:
            eventually(lambda: client.state().slowed_down > 0, "a peer to be slowed down")
            before = client.state().frames
            begin = time.monotonic()
            for _ in range(20):
                client.state()
            took_s = time.monotonic() - begin
            assert took_s < 10, "others are answered"
            heard = client.state().frames - before - 21
            assert heard <= len(flooders) * 50 * (took_s + 2.5), "more than the rate lets through"
    finally:
        for one in flooders:
            one.kill()
            one.wait()


def test_connections_of_one_user_are_bounded(tmp_path: Path) -> None:
    service = with_quotas(tmp_path, user_connections=5)
    try:
        jobs = [Played(service) for _ in range(5)]
        with pytest.raises(ServiceError, match="it has too many connections"):
            service.ask()
        jobs.pop().close()
        eventually(lambda: _answers(service), "room after one has left")
        for job in jobs:
            job.close()
    finally:
        service.kill()


def _answers(service: Service) -> bool:
    try:
        with service.ask() as client:
            client.state()
        return True
    except ServiceError:
        return False


def test_jobs_of_one_user_are_bounded(tmp_path: Path) -> None:
    service = with_quotas(tmp_path, "[service]\njobs_per_user = 3\n")
    try:
        with closing(*(Played(service) for _ in range(3))):
            with pytest.raises(AssertionError, match="already has 3 jobs"):
                Played(service)
            assert _answers(service)
        eventually(lambda: _joins(service), "room after they have left")
    finally:
        service.kill()


def _joins(service: Service) -> bool:
    with contextlib.suppress(AssertionError):
        Played(service).close()
        return True
    return False


@pytest.mark.parametrize("quota", ["handshakes", "user_handshakes"])
def test_connections_without_a_hello_are_few_and_do_not_stay(tmp_path: Path, quota: str) -> None:
    service = with_quotas(tmp_path, **{quota: 4})
    try:
        silent = [connect(service) for _ in range(4)]
        fifth = connect(service)
        assert wire.HELLO.unpack(fifth.recv(64))[2] == wire.BUSY
        eventually(lambda: all(is_closed(one) for one in silent), "the end of the silent ones")
        assert _answers(service)
        for one in (*silent, fifth):
            one.close()
    finally:
        service.kill()


def test_a_peer_that_takes_no_answers_is_disconnected_and_costs_little(tmp_path: Path) -> None:
    code = (
        "from pumpd import main; from pumpd.service import service, peers\n"
        "service.SLOW_S = 0.5; main.main()"
    )
    service = Service(tmp_path, "--beat", "1", command=[sys.executable, "-c", code, "serve"])
    try:
        before = psutil.Process(service.process.pid).memory_info().rss
        deaf = connect(service)
        deaf.send(wire.pack_hello())
        assert wire.check_welcome(deaf.recv(64))
        deaf.settimeout(0.2)
        ask = wire.encode(wire.AskService())
        ended = False
        deadline = time.monotonic() + 60
        while not ended and time.monotonic() < deadline:
            try:
                deaf.send(ask)
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended, "its connection is closed"
        assert psutil.Process(service.process.pid).memory_info().rss - before < 4 * MIB
        assert _answers(service)
        deaf.close()
    finally:
        service.kill()


def test_out_of_descriptors_it_pauses_and_goes_on(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
        "from pumpd import main; main.main()"
    )
    service = Service(tmp_path, command=[sys.executable, "-c", code, "serve"])
    try:
        many = [connect(service) for _ in range(40)]
        time.sleep(0.2)
        assert service.process.poll() is None, service.log.read_text()
        for one in many:
            one.close()
        eventually(lambda: _answers(service), "an answer after they have left")
        assert len(service.descriptors()) < 16
    finally:
        service.kill()


# ---- contents of messages ----


def _let_in(service: Service) -> ServiceClient:
    """Connects, once the rate of connects lets this user in again."""
    give_up = time.monotonic() + 5.0
    while True:
        try:
            return service.ask()
        except ServiceError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("seed", range(2))
def test_hostile_frames_cost_their_sender_alone_the_connection(service: Service, seed: int) -> None:
    print("seed", seed)
    source = random.Random(seed)
    frames = [wire.encode(m) for m, kinds in MESSAGES if kinds is wire.FROM_CLIENTS]
    with closing(Played(service, wanted_mib=10)) as (honest,):
        honest.report()
        until(lambda: honest.granted, "a grant", honest)
        for _ in range(150):
            one = connect(service)
            hello = wire.pack_hello()
            with contextlib.suppress(OSError):  # the user may connect too fast, and be refused
                one.send(mutated(hello, source) or b"x" if source.random() < 0.2 else hello)
                one.recv(64)  # a welcome of any kind
                for _ in range(source.randrange(1, 6)):
                    one.send(mutated(source.choice(frames), source) or b"{")
                one.shutdown(socket.SHUT_WR)
                while one.recv(wire.REPLY_BYTES):
                    pass
            one.close()
            honest.turn()
        assert not is_closed(honest.socket)
        with _let_in(service) as client:
            state = client.state()
            assert state.refused_frames > 50 and service.process.poll() is None
            eventually(lambda: client.state().jobs == 1, "only the honest job to be left")


def test_descriptors_that_are_passed_along_are_not_kept(service: Service) -> None:
    with closing(Played(service)) as (job,):
        before = len(service.descriptors())
        for _ in range(20):
            socket.send_fds(job.socket, [wire.encode(wire.Beat())], [0, 1, 2])
        with service.ask() as client:
            client.state()
        eventually(lambda: len(service.descriptors()) <= before, "no more descriptors than before")


def test_a_path_that_a_job_names_is_not_opened(service: Service, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(trap))
        listener.listen(1)
        listener.settimeout(1.0)
        with closing(Played(service, socket=str(trap), wanted_mib=10)) as (job,):
            job.report()
            until(lambda: job.granted, "a grant", job)
            with service.ask() as client:
                assert client.jobs()[0].socket == str(trap), "it is passed on"
            with pytest.raises(TimeoutError):
                listener.accept()


def test_a_name_cannot_break_a_line_or_steer_a_terminal() -> None:
    for name in ("a\nb", "a\x1b[31m", "a\x07", "\u202eb"):
        with pytest.raises(FrameError):
            wire.decode(wire.encode(wire.Join(name)), wire.FROM_CLIENTS)
        assert wire.fitting(name).isprintable()


def test_reports_that_cannot_be_leave_the_registry_sound() -> None:
    source = random.Random(3)
    for _ in range(120):
        registry = Registry()
        jobs = [
            registry.add(Identity(0, 0, 0), wire.Join(), 10, 0.0)
            for _ in range(source.randrange(1, 5))
        ]
        for turn in range(20):
            job = source.choice(jobs)
            entries = tuple(
                wire.GpuReport(
                    source.choice(("aa", "bb")) * 16,
                    *(source.choice((0, 1, MIB, 1 << 34, wire.BYTES_MOST)) for _ in range(5)),
                    source.randrange(wire.USE_MOST + 1),
                )
                for _ in range(source.randrange(4))
            )
            registry.take_report(job, wire.Report(source.randrange(9), 1, 0, 0, entries), turn)
            registry.settling = turn <= 5
            for told in registry.rearrange(turn):
                wire.encode(registry.grant_of(told, 1000))
                wire.decode(wire.encode(registry.grant_of(told, 1000)), wire.FROM_SERVICE)
            for one in jobs:
                shown = wire.Jobs(0, (registry.state_of(one, turn),))
                assert wire.decode(wire.encode(shown), wire.FROM_SERVICE) == shown


# ---- the job's side ----


@pytest.mark.parametrize("seed", range(3))
def test_a_hostile_service_costs_a_job_its_leases_only(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    path = tmp_path / "service"
    frames = [wire.encode(m) for m, kinds in MESSAGES if kinds is wire.FROM_SERVICE]
    asked: list[control.Request] = []

    def inquire(request: control.Request, done) -> None:
        asked.append(request)
        done([])

    with (
        selectors.DefaultSelector() as selector,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        listener.bind(str(path))
        listener.listen(8)
        listener.settimeout(5)
        holder = LeaseClient(selector, inquire, JobFacts(paths=[str(path)]))
        for _ in range(60):
            holder._state.due = 0.0
            holder.on_time(time.monotonic())
            peer, _ = listener.accept()
            peer.recv(64)
            welcome = wire.pack_welcome(wire.OK, wire.VERSION)
            peer.send(mutated(welcome, source) or b"x" if source.random() < 0.3 else welcome)
            _listen(holder, selector)
            with contextlib.suppress(OSError):
                for _ in range(4):
                    peer.send(mutated(source.choice(frames), source) or b"x")
                    _listen(holder, selector)
            peer.close()
            for _ in range(8):
                _listen(holder, selector)
        assert all(request.ask == control.STATE for request in asked), "nothing was set"
        holder.close()


def _listen(holder: LeaseClient, selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(0):
        key.data()
    holder.on_time(time.monotonic())


# ---- the page itself ----


def test_each_line_of_the_page_names_tests_that_are_there() -> None:
    page = (ROOT / "docs/security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert named and named <= there, f"no such tests: {sorted(named - there)}"
    tables = [table.splitlines() for table in page.split("\n\n") if "| Test |" in table]
    rows = [row for table in tables for row in table[2:]]
    assert rows and all("`test_" in row for row in rows), "a line without a test"


def test_each_line_of_the_page_is_attacked_by_several_or_says_why_not() -> None:
    attacks = (ROOT / "docs/security.md").read_text().partition("## E. ")[0]
    several = {
        name
        for folder in ("users", "service")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for row in attacks.splitlines():
        if row.startswith("| ") and "| Test" not in row:
            named = set(re.findall(r"`(test_\w+)`", row))
            counted = [name for name in named if re.search(r"_(three|two|users|pods)_", name)]
            assert named & several or counted or "; no second attacker: " in row, row
