"""Several users take all that the service allows: connections, handshakes, shrink budgets, shares.

The bounds are small here, so that three users reach them soon; their proportions are the same.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_client import MIB, Played, Service, closing, connect, settle, until
from users import (
    ALICE,
    BOB,
    CAROL,
    TIMEOUT_S,
    Say,
    User,
    as_user,
    needs_root,
    plays,
    public_folder,
    together,
)

from pump.service import ServiceClient
from pump.wire import service as wire
from pump.wire.strict import FrameError

pytestmark = needs_root

NOBODY = 65534
SHORT_S = 1.0
"""The service's shrink budget in these tests."""
SHARE_S = 8.0
"""Time limit for an honest job's share while two other users use up that budget."""
SUBORDINATE = {BOB: range(210_000, 210_015), CAROL: range(310_000, 310_015)}
USABLE_BYTES = 970 * MIB
SMALL = {
    "connections": 64,
    "reserved": 4,
    "user_connections": 40,
    "handshakes": 16,
    "user_handshakes": 8,
}


def served(folder: Path, settings: str, config: str, beat_s: float = 0.5) -> Service:
    """Starts `pumpd serve` with some of its constants changed."""
    code = "import functools, sys; from pumpd import main\n"
    code += f"from pumpd.service import owners, serve, shrink_budget\n{settings}\n"
    (folder / "config.toml").write_text(config)
    words = ["--beat", f"{beat_s:g}", "--settle", "0.05", "--config", str(folder / "config.toml")]
    command = [sys.executable, "-c", f"{code}sys.exit(main.main())", "serve"]
    return Service(folder, *words, command=command)


@pytest.fixture
def service() -> Iterator[Service]:
    with public_folder() as folder:
        settings = f"serve.Quotas = functools.partial(serve.Quotas, **{SMALL!r})"
        made = served(folder, settings, '[service]\nobservers = ["nobody"]\n')
        yield made
        made.kill()


# ---- connections ----


def holds_connections(say: Say, service: Service) -> None:
    """Keeps as many connections as possible and replaces each lost one."""
    held: list[socket.socket] = []
    for turn in range(1 << 30):
        with contextlib.suppress(OSError, FrameError):
            one = connect(service)
            one.send(wire.pack_hello())
            wire.check_welcome(one.recv(64))
            held.append(one)
        if len(held) > SMALL["user_connections"]:
            held.pop(0).close()
        if turn == 2 * SMALL["user_connections"]:
            say("holds")


def says_nothing(say: Say, service: Service) -> None:
    silent: list[socket.socket] = []
    said = False
    while True:
        with contextlib.suppress(OSError):
            silent.append(connect(service))
        if len(silent) > 2 * SMALL["user_handshakes"]:
            silent.pop(0).close()
            if not said:
                said = True
                say("silent")


def comes_and_goes(say: Say, service: Service) -> None:
    for turn in range(1 << 30):
        with contextlib.suppress(OSError):
            connect(service).close()
        if turn == 200:
            say("has connected 200 times")


def keeps_a_lease(say: Say, service: Service) -> None:
    """Plays a job that retries while the queue of connections is full, like a job's pumpd."""
    until_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            job = Played(service, wanted_mib=500)
            break
        except (BlockingIOError, FrameError) as error:
            assert time.monotonic() < until_s, f"not in for {TIMEOUT_S} s: {error}"
            time.sleep(0.05)
    with closing(job):
        job.report()
        until(lambda: job.granted, "a grant", job)
        say("leased")
        plays(say, job)
        say(bool(job.granted))


def questions(service: Service) -> int:
    """Sends queries, each over its own connection and within pump.service.TIMEOUT_S."""
    for _ in range(5):
        with ServiceClient(str(service.socket)) as client:
            client.state()
    return 5


@pytest.mark.parametrize(
    "attack", [holds_connections, says_nothing, comes_and_goes], ids=lambda one: one.__name__
)
def test_users_who_take_all_places_keep_out_no_newcomer_no_observer_and_not_root(
    service: Service, attack: Callable[..., None]
) -> None:
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(User(ALICE, keeps_a_lease, service))
        assert early.hear() == "leased"
        stack.enter_context(together(attack, service))
        for user in (0, NOBODY, ALICE + 100):
            assert as_user(user, questions, service) == 5, f"user {user}"
        late = stack.enter_context(User(ALICE + 101, keeps_a_lease, service))
        assert late.hear() == "leased"
        for one in (early, late):
            one.end()
            assert one.hear() is True, "a lease lasts while others fight for places"


# ---- shares ----


@pytest.fixture
def sharing() -> Iterator[Service]:
    """Starts a service with a shrink budget of SHORT_S, and gives two users subordinate ids."""
    with public_folder() as folder:
        lines = [f"{user}:{ids[0]}:{len(ids)}\n" for user, ids in SUBORDINATE.items()]
        (folder / "subuid").write_text("".join(lines))
        settings = (
            f"shrink_budget.SHRINK_S = {SHORT_S}\n"
            f"owners.SUBORDINATE_IDS = {str(folder / 'subuid')!r}"
        )
        made = served(folder, settings, "")
        yield made
        made.kill()


def holds_all(service: Service) -> Played:
    """Makes a job that claims all of the memory and returns nothing."""
    job = Played(service, wanted_mib=1000)
    job.adopted = job.resident = job.usable
    job.adopts = False
    job.report()
    return job


def holds_on(say: Say, service: Service) -> None:
    job = holds_all(service)
    say("holds")
    plays(say, job)


def takes_turns(say: Say, service: Service) -> None:
    """Replaces its job repeatedly: the next claims all before the last leaves, within SHORT_S."""
    job = holds_all(service)
    say("holds")
    while True:
        settle(service, job, seconds=SHORT_S / 3)
        another = holds_all(service)
        job.close()
        job = another


def wants_much(say: Say, service: Service) -> None:
    with closing(Played(service, wanted_mib=1000)) as (job,):
        job.report()
        say("wants")
        plays(say, job)


def gets(say: Say, service: Service, least_bytes: int) -> None:
    """Reports the final grant."""
    end = time.monotonic() + SHARE_S
    with closing(Played(service, wanted_mib=1000)) as (job,):
        job.adopted = 20 * MIB
        job.report()
        while (job.granted or 0) < least_bytes and time.monotonic() < end:
            settle(service, job, seconds=0.05)
        say(job.granted)


@pytest.mark.parametrize("attack", [holds_on, takes_turns], ids=lambda one: one.__name__)
def test_two_liars_on_one_gpu_keep_no_third_from_its_share(
    sharing: Service, attack: Callable[[Say, Service], Any]
) -> None:
    least = USABLE_BYTES // 4
    with (
        together(attack, sharing, users=(BOB, CAROL)),
        User(ALICE, gets, sharing, least) as alice,
    ):
        assert alice.hear() >= least


def test_two_users_with_fifteen_subordinate_ids_each_are_two_to_the_service(
    sharing: Service,
) -> None:
    users = [user for ids in SUBORDINATE.values() for user in ids]
    # Thirty-one users would get a thirty-first each. These are three, except for 8 MiB per job.
    least = USABLE_BYTES // 5
    with together(wants_much, sharing, users=users), User(ALICE, gets, sharing, least) as alice:
        assert alice.hear() >= least
