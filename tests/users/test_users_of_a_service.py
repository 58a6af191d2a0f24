"""Several users together attack others at the service. More than one user attacks each row of
docs/security.md, beyond each bound, and another user must get the same as without them."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields, replace
from service_client import GPU, Played, Service, closing, connect, until
from service_messages import MESSAGES, mutated
from supervisor_client import eventually
from users import (
    ALICE,
    ATTACKERS,
    BOB,
    CLONE_NEWUSER,
    Say,
    User,
    as_user,
    needs_root,
    plays,
    public_folder,
    together,
    unshare,
)

from pump.service import ServiceClient
from pump.wire import service as wire
from pump.wire.strict import FrameError
from pumpd.service.registry import GPUS_MOST

pytestmark = needs_root

JOBS_EACH = 5
"""Together these jobs name more GPUs than a user may."""


@pytest.fixture
def service() -> Iterator[Service]:
    """Starts root's service, open to all. Its limit of jobs is low, so that tests reach it fast."""
    with public_folder() as folder:
        config = folder / "config.toml"
        config.write_text(f"[service]\njobs_per_user = {JOBS_EACH}\n")
        made = Service(folder, "--beat", "0.5", "--settle", "0.05", "--config", str(config))
        yield made
        made.kill()


def all_are_answered(service: Service, *, users: tuple[int, ...] = (ALICE, 0)) -> None:
    """Checks answers within the time that a client waits for them (pump.service.TIMEOUT_S)."""
    for user in users:
        assert as_user(user, questions, str(service.socket)) == 10


def questions(path: str) -> int:
    """Sends queries over ten connections in turn; returns 10. Raises if one gets no answer."""
    for _ in range(10):
        with ServiceClient(path) as client:
            client.state()
            client.jobs()
    return 10


# ---- visible jobs ----


def has_jobs(say: Say, service: Service) -> None:
    jobs = [Played(service, name=f"{os.getuid()}{number}") for number in range(3)]
    say("joined")
    with ServiceClient(str(service.socket)) as client:
        say(sorted(job.name for job in client.jobs()))
    plays(say, *jobs)


def test_three_users_see_each_their_own_jobs_and_root_sees_them_all(service: Service) -> None:
    with together(has_jobs, service) as people:
        for one in people:
            assert one.hear() == [f"{one.user}{number}" for number in range(3)]
        with service.ask() as client:
            assert len({(job.name, job.user) for job in client.jobs()}) == 9
        assert as_user(ALICE, jobs_seen, service) == []


def jobs_seen(service: Service) -> list[str]:
    """Returns the jobs that a client sees if it trusts any service."""
    with connect(service) as peer:
        peer.send(wire.pack_hello())
        wire.check_welcome(peer.recv(64))
        peer.send(wire.encode(wire.AskJobs(0)))
        answer = wire.decode(peer.recv(wire.REPLY_BYTES), wire.FROM_SERVICE)
    assert isinstance(answer, wire.Jobs)
    return [job.name for job in answer.jobs]


def test_root_of_a_user_namespace_sees_no_more_than_its_user(service: Service) -> None:
    def from_inside() -> list[str]:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {BOB} 1")
        assert os.geteuid() == 0, "root, as it sees itself"
        return jobs_seen(service)

    with closing(Played(service, name="of root")):
        try:
            assert as_user(BOB, from_inside) == []
        except AssertionError as error:
            if "unshare" in str(error):
                pytest.skip("this machine gives users no user namespaces")
            raise


# ---- floods ----


def floods_with_frames(say: Say, service: Service) -> None:
    peers = []
    for _ in range(JOBS_EACH):
        peer = connect(service)
        peer.send(wire.pack_hello())
        peer.recv(64)
        peer.send(wire.encode(wire.Join()))
        peer.setblocking(False)
        peers.append(peer)
    say("floods")
    beat = wire.encode(wire.Beat())
    while True:
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.send(beat)


def takes_no_answers(say: Say, service: Service) -> None:
    deaf = []
    for _ in range(JOBS_EACH):
        peer = connect(service)
        peer.send(wire.pack_hello())
        peer.recv(64)
        peer.setblocking(False)
        deaf.append(peer)
    say("deaf")
    ask = wire.encode(wire.AskJobs(0))
    while True:
        for peer in deaf:
            with contextlib.suppress(OSError):
                peer.send(ask)


def sends_rubbish(say: Say, service: Service) -> None:
    source = random.Random(os.getuid())
    frames = [wire.encode(message) for message, kinds in MESSAGES if kinds is wire.FROM_CLIENTS]
    for turn in range(1_000_000):
        with contextlib.suppress(OSError), connect(service) as peer:
            peer.send(wire.pack_hello())
            for _ in range(4):
                peer.send(mutated(source.choice(frames), source) or b"{")
        if turn == 50:
            say("rubbish")


def reports_what_cannot_be(say: Say, service: Service) -> None:
    """Sends extreme values in two lasting jobs, with a GPU named twice. Other jobs report each
    value beyond its bounds, and the service closes their connections."""
    absurd = [Played(service), Played(service)]
    for job, figure in zip(absurd, (0, wire.BYTES_MOST), strict=True):
        job.adopts = False
        gpus = (GPU, GPU, *new_gpus(wire.GPUS - 2))
        entries = tuple(
            wire.GpuReport(gpu, *5 * (figure,), wire.USE_MOST, used=True, ready=True)
            for gpu in gpus
        )
        job.say(wire.Report(wire.COUNT_MOST, 1, figure, figure, entries))
    for turn in range(1_000_000):
        for wrong in reports_out_of_bounds():
            with contextlib.suppress(FrameError, OSError):  # later rounds connect too often
                assert is_closed_after(Played(service), wrong), wrong
            for job in absurd:
                job.turn()
        if turn == 0:
            say("reports")


def new_gpus(count: int) -> list[str]:
    return [os.urandom(16).hex() for _ in range(count)]


def reports_out_of_bounds() -> Iterator[wire.Report]:
    sound = wire.GpuReport(GPU, *5 * (1000 << 20,), 0)
    report = wire.Report(0, 1, 0, 0, (sound,))
    for kind in (wire.Report, wire.GpuReport):
        for name in (one.name for one in fields(kind) if one.name not in ("gpu", "gpus")):
            flag = isinstance(getattr(sound if kind is wire.GpuReport else report, name), bool)
            for value in (-1, 1 if flag else True, 1 << 63):
                if kind is wire.Report:
                    yield replace(report, **{name: value})
                else:
                    yield replace(report, gpus=(replace(sound, **{name: value}),))
    yield replace(report, gpus=(replace(sound, gpu="xy" * 16),))
    yield replace(report, gpus=tuple(replace(sound, gpu=gpu) for gpu in new_gpus(wire.GPUS + 1)))


def is_closed_after(job: Played, report: wire.Report) -> bool:
    """Returns whether the service closes the connection after this report instead of answering."""
    with closing(job), contextlib.suppress(OSError):
        job.say(report)
        job.say(wire.AskService())
        while data := job.socket.recv(wire.REPLY_BYTES):
            if isinstance(wire.decode(data, wire.FROM_SERVICE), wire.ServiceState):
                return False
    return True


@pytest.mark.parametrize(
    "attack",
    [floods_with_frames, takes_no_answers, sends_rubbish, reports_what_cannot_be],
    ids=lambda one: one.__name__,
)
def test_three_users_together_keep_no_other_from_an_answer(
    service: Service, attack: Callable[..., None]
) -> None:
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(User(ALICE, keeps_a_lease, service))
        assert honest.hear() == "leased"
        stack.enter_context(together(attack, service))
        all_are_answered(service)
        honest.end()
        assert honest.hear() == "has it still"


def keeps_a_lease(say: Say, service: Service) -> None:
    """Plays a job that wants half of a GPU; reports at the end that it still has its lease."""
    with closing(Played(service, wanted_mib=500)) as (job,):
        job.report()
        until(lambda: job.granted, "a grant", job)
        say("leased")
        plays(say, job)
        assert job.granted
        say("has it still")


# ---- bounds ----


def takes_all_jobs(say: Say, service: Service) -> None:
    jobs: list[Played] = []
    with contextlib.suppress(AssertionError, OSError):
        while True:
            jobs.append(Played(service))
    say(len(jobs))
    plays(say, *jobs)


def test_users_at_their_bound_of_jobs_take_no_other_users_place(service: Service) -> None:
    with together(takes_all_jobs, service, users=(*ATTACKERS, ALICE)) as people:
        assert [one.said for one in people] == [JOBS_EACH] * 4
        all_are_answered(service)


def names_new_gpus(say: Say, service: Service) -> None:
    jobs = [Played(service) for _ in range(JOBS_EACH)]
    for job in jobs:
        job.adopts = False
        entries = (wire.GpuReport(gpu, *5 * (1 << 30,), 0) for gpu in new_gpus(wire.GPUS))
        job.say(wire.Report(0, 1, 0, 0, tuple(entries)))
    say("named")
    plays(say, *jobs)


def test_users_at_their_bound_of_gpus_keep_no_other_from_a_lease(service: Service) -> None:
    with together(names_new_gpus, service), service.ask() as client:
        eventually(lambda: sum(job.clients for job in client.jobs()) == 3 * JOBS_EACH, "reports")
        named = Counter(job.user for job in client.jobs() for _ in job.gpus)
        assert named == dict.fromkeys(ATTACKERS, GPUS_MOST)
        with User(ALICE, keeps_a_lease, service) as honest:
            assert honest.hear() == "leased"
