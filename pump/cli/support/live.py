"""Figures and rates of the user's running jobs, at repeated looks.

A look asks each job's own pumpd (pump/control.py), and the system service for the other jobs
that this user may see. Rates are differences between two looks; those of one look alone are
rates since the client began.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psutil

from pump import nvml
from pump.cli import jobs
from pump.cli.support import registered
from pump.cli.support.lines import checked
from pump.config.values import seconds
from pump.control import ClientState, Control, DeviceState
from pump.nvml import Card
from pump.service import JobState

INTERVAL_MOST_S = 3600
CARDS_S = 0.5
"""Between two questions to NVML."""


class Seen(NamedTuple):
    """One job at one moment. error: why there are no clients, or ""."""

    job: jobs.Job
    clients: list[ClientState]
    error: str


class Look(NamedTuple):
    """All jobs at one moment (time.monotonic, seconds)."""

    at_s: float
    seen: list[Seen]
    registered: Sequence[JobState] = ()
    """The system service's jobs: this user's, and others that it may see."""
    untrusted: str = ""
    """Why a service was not trusted, or ""."""
    cards: Sequence[Card] = ()
    """NVML's latest figures of this machine's GPUs."""


def add_interval(parser: argparse.ArgumentParser, least_s: float, usual_s: float, of: str) -> None:
    """Add --interval, in seconds, from `least_s` to an hour. of: what it lies between, for the
    help text."""
    parser.add_argument(
        "--interval",
        metavar="S",
        type=checked(lambda text: seconds(text, least_s, INTERVAL_MOST_S)),
        default=usual_s,
        help=f"seconds between {of} (default: {usual_s:g})",
    )


class Cards:
    """Asks NVML every CARDS_S, in a thread that nothing waits for: a call may never return.

    last: the latest figures of the GPUs; none where there is no NVML.
    """

    def __init__(self) -> None:
        self.last: Sequence[Card] = ()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="nvml", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # no module, no library or no card: no figures
            handles = nvml.handles()
            while not self._closed.is_set():
                self.last = [nvml.card(uuid, handle) for uuid, handle in handles.items()]
                self._closed.wait(CARDS_S)
        self.last = ()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()


class Watch:
    """Looks at all jobs of the user, over one connection to each and one to the service. cards:
    whether NVML is asked, too."""

    def __init__(self, *, cards: bool = False) -> None:
        self._controls: dict[str, Control] = {}
        self._service = registered.Registered()
        self._cards = Cards() if cards else None

    def look(self) -> Look:
        """Ask every job for its figures. One that does not answer has an error."""
        there = list(jobs.found())
        for path in set(self._controls) - {job.socket for job in there}:
            self._controls.pop(path).close()
        told = self._service.jobs()
        seen = jobs.of_each(there, self._ask)
        cards = self._cards.last if self._cards else ()
        return Look(time.monotonic(), seen, told, self._service.untrusted, cards)

    def _ask(self, job: jobs.Job) -> Seen:
        control = self._controls.setdefault(job.socket, Control(job.socket))
        return Seen(job, *jobs.answer_of(job, control))

    def close(self) -> None:
        """Close all connections."""
        for control in self._controls.values():
            control.close()
        self._controls.clear()
        self._service.close()
        if self._cards:
            self._cards.close()


class Rates(NamedTuple):
    """Growth of a client's counters over `seconds`. hit_rate: 0 to 1; None where no block was
    used."""

    seconds: float
    hit_rate: float | None
    operations_per_s: float
    to_gpu_bytes_per_s: float
    to_host_bytes_per_s: float
    late_per_s: float
    unseen_per_s: float
    no_room_per_s: float
    policy_per_s: float


_COUNTS = (
    ("shim", "operations"),
    ("shim", "moved_to_gpu_bytes"),
    ("shim", "moved_to_host_bytes"),
    ("worker", "miss_late"),
    ("worker", "miss_unseen"),
    ("worker", "miss_no_room"),
    ("worker", "miss_policy"),
)


def rates(before: ClientState | None, after: ClientState, seconds: float) -> Rates:
    """Rates between two states of a client; without a first one, since the client began."""
    used = grown(before, after, "worker", "blocks_used")
    hit = grown(before, after, "worker", "blocks_hit")
    span = max(1e-3, seconds)
    return Rates(
        seconds,
        hit / used if used else None,
        *(grown(before, after, part, name) / span for part, name in _COUNTS),
    )


def grown(before: ClientState | None, after: ClientState, part: str, name: str) -> int:
    """Growth of a counter between two states of a client; without a first one, its value.

    part: "shim" or "worker". A worker that was replaced counts from zero again.
    """
    count = _count(after, part, name)
    if before is None or (
        part == "worker" and _count(before, part, "ticks") > _count(after, part, "ticks")
    ):  # the client has another worker
        return count
    return max(0, count - _count(before, part, name))


def _count(state: ClientState, part: str, name: str) -> int:
    return int(getattr(state, part).get(name, 0))


class Gpu(NamedTuple):
    """A GPU as the user's jobs see it together; bytes are sums over their clients."""

    uuid: str
    total_bytes: int
    budget_bytes: int
    allocated_bytes: int
    resident_bytes: int
    arriving_bytes: int
    leaving_bytes: int
    clients: int


def gpus(look: Look) -> list[Gpu]:
    """The GPUs that the jobs use, by UUID."""
    by_uuid: dict[str, list[DeviceState]] = {}
    for device in devices_of(client for seen in look.seen for client in seen.clients):
        by_uuid.setdefault(device.uuid, []).append(device)
    return [_gpu(uuid, mine) for uuid, mine in sorted(by_uuid.items())]


def _gpu(uuid: str, devices: list[DeviceState]) -> Gpu:
    def total(name: str) -> int:
        return sum(int(getattr(device, f"{name}_bytes")) for device in devices)

    return Gpu(
        uuid,
        max(device.total_bytes for device in devices),
        budget_bytes=total("budget"),
        allocated_bytes=total("allocated"),
        resident_bytes=total("resident"),
        arriving_bytes=total("arriving"),
        leaving_bytes=total("leaving"),
        clients=len(devices),
    )


def devices_of(clients: Iterable[ClientState]) -> list[DeviceState]:
    """All devices of all clients."""
    return [device for client in clients for device in client.devices]


class Row(NamedTuple):
    """One client, for people and scripts."""

    seen: Seen
    client: ClientState
    rates: Rates


def others(look: Look) -> list[JobState]:
    """The jobs that this user sees through the service alone."""
    return registered.others(look.registered, (seen.job.socket for seen in look.seen))


def rows(look: Look, before: Look | None) -> list[Row]:
    """All clients that answered, with what has grown since the look before."""
    earlier = {
        (seen.job.socket, client.pid): client
        for seen in (before.seen if before else [])
        for client in seen.clients
        if client.error is None
    }
    found = []
    for seen in look.seen:
        for client in seen.clients:
            if client.error is None:
                then = earlier.get((seen.job.socket, client.pid))
                seconds = look.at_s - before.at_s if before and then else age_s(client.pid)
                found.append(Row(seen, client, rates(then, client, seconds)))
    return found


def age_s(pid: int) -> float:
    """Seconds since a process began; 1 where that cannot be read."""
    try:
        return max(1e-3, time.time() - float(psutil.Process(pid).create_time()))
    except psutil.Error:
        return 1.0


def as_json(look: Look, before: Look | None) -> dict[str, Any]:
    """A look for JSON: gpus, cards, jobs with their clients' figures and rates, others."""
    from dataclasses import asdict

    from msgspec import to_builtins

    by_job: dict[str, list[dict[str, Any]]] = {}
    for row in rows(look, before):
        told = {**asdict(row.client), "rates": row.rates._asdict()}
        by_job.setdefault(row.seen.job.socket, []).append(told)
    return {
        "gpus": [gpu._asdict() for gpu in gpus(look)],
        "cards": [card._asdict() for card in look.cards],
        "jobs": [
            {
                **seen.job._asdict(),
                "error": seen.error or None,
                "clients": by_job.get(seen.job.socket, []),
                "silent": [
                    {"pid": client.pid, "error": client.error}
                    for client in seen.clients
                    if client.error is not None
                ],
            }
            for seen in look.seen
        ],
        "others": to_builtins(others(look)),
    }
