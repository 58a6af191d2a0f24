"""Several users together send the service things that it must not accept: descriptors, paths to
open, names that break lines. Each attacker goes beyond the tests with one user."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from service_client import Played, Service
from supervisor_client import eventually
from test_users_of_a_service import all_are_answered, is_closed_after, service
from users import ATTACKERS, Say, User, as_user, needs_root, plays

from pump.service import JobState, ServiceClient
from pump.wire import service as wire

__all__ = ["service"]  # the fixture

pytestmark = needs_root

FRAMES = 40
DESCRIPTORS = 50
"""Descriptors in each frame; the kernel allows 253."""
PWN = "'\"$(touch pwned)`touch pwned`;touch pwned #"
"""Printable, so a job may have this name."""
EVIL = ("a\nb", "a\x1b[2J\x1b[31m", "a\x07", "\u202eb")


def baits(say: Say, service: Service, trap: str) -> None:
    job = Played(service, name="bait", socket=trap, wanted_mib=10)
    job.report()
    with socket.socketpair()[0] as one:
        for _ in range(FRAMES):
            socket.send_fds(job.socket, [wire.encode(wire.Beat())], [one.fileno()] * DESCRIPTORS)
            job.turn()
    out_of_bounds = wire.Report(0, -1, 0, 0, ())
    assert is_closed_after(Played(service, name=PWN), out_of_bounds), "which is logged"
    for name in EVIL:
        with pytest.raises((OSError, AssertionError)):  # the service closes the connection
            Played(service, name=name)
    say("done")
    plays(say, job)


def shown(path: str) -> list[JobState]:
    with ServiceClient(path) as client:
        return client.jobs()


def test_what_three_users_hand_over_is_neither_kept_nor_opened_nor_shown_nor_run(
    service: Service, tmp_path: Path
) -> None:
    trap = Path(service.socket).parent / "trap"
    all_are_answered(service)  # the service has opened its own files
    before = len(service.descriptors())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(trap))
        trap.chmod(0o777)
        listener.listen(64)
        listener.settimeout(0.5)
        users = [User(user, baits, service, str(trap)) for user in ATTACKERS]
        try:
            assert [one.hear() for one in users] == ["done"] * len(users)
            all_are_answered(service)
            jobs = as_user(0, shown, str(service.socket))
            assert {job.user for job in jobs} == set(ATTACKERS)
            assert all(job.name == "bait" and job.socket == str(trap) for job in jobs)
            with pytest.raises(TimeoutError):
                listener.accept()
            log = service.log.read_text()
            assert "touch pwned" in log, "the log shows the baits"
            for line in log.splitlines():
                subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, check=False)
            assert not list(tmp_path.iterdir())
            kept = before + len(users)  # a connection per job
            eventually(lambda: len(service.descriptors()) <= kept, "no descriptor is kept")
        finally:
            for one in users:
                one.close()
