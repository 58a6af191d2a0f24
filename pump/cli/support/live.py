"""Polls the user's running jobs for metrics and rates.

A poll asks each job's own pumpd (pump/control.py), and asks the system service for other jobs that
this user may see. Rates are differences between two polls; rates from a single poll are averages
since the client began.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pump.base import nvml
from pump.base.names import one_line
from pump.base.nvml import Card, Identity
from pump.base.processes import age_s
from pump.cli import jobs
from pump.cli.support import registered
from pump.cli.support.lines import checked
from pump.config.values import seconds
from pump.control import ClientState, Control, DeviceState
from pump.service import JobState

INTERVAL_MOST_S = 3600
CARDS_S = 0.5
"""Interval between two polls of NVML."""
FIRST_ANSWER_S = 3.0
"""Longest wait for the names of GPUs from NVML."""


class Seen(NamedTuple):
    """One job in one poll. error: why there are no clients, or ""."""

    job: jobs.Job
    clients: list[ClientState]
    error: str


class Poll(NamedTuple):
    """The result of one poll of all jobs. at_s: when (time.monotonic)."""

    at_s: float
    seen: list[Seen]
    registered: Sequence[JobState] = ()
    """The system service's jobs: this user's jobs, and others that this user may see."""
    warning: str = ""
    """Why a service was not trusted or did not answer in time, or ""."""
    cards: Sequence[Card] = ()
    """NVML's latest metrics of this machine's GPUs."""
    identities: Mapping[str, Identity] = {}
    """Names of GPUs by plain UUID, from NVML or from a virtual GPU's profile."""
    no_card: str = ""
    """Why NVML reports no GPU, or ""."""
    no_service: str = ""
    """Why no service answers, or ""."""


def add_interval(parser: argparse.ArgumentParser, least_s: float, usual_s: float, of: str) -> None:
    """Adds --interval, in seconds, from `least_s` to an hour. of: the repeated event, for the help
    text."""
    parser.add_argument(
        "--interval",
        metavar="S",
        type=checked(lambda text: seconds(text, least_s, INTERVAL_MOST_S)),
        default=usual_s,
        help=f"seconds between {of} (default: {usual_s:g})",
    )


class Cards:
    """Asks NVML for GPUs in a thread that nothing waits for, because a call may never return.

    `polls_metrics`: whether to poll metrics, too, every CARDS_S. `last`: the latest metrics.
    `identities`: the names of the GPUs. `trouble`: why there are no metrics.
    """

    def __init__(self, *, polls_metrics: bool = True) -> None:
        self.last: Sequence[Card] = ()
        self.identities: Mapping[str, Identity] = {}
        self.trouble = ""
        self._polls_metrics = polls_metrics
        self._closed = threading.Event()
        self._answered = threading.Event()
        threading.Thread(target=self._run, name="nvml", daemon=True).start()

    def _run(self) -> None:
        try:
            handles = nvml.handles()
            self.identities = {uuid: nvml.identity(handle) for uuid, handle in handles.items()}
            self.trouble = "" if handles else "it lists no GPU"
            self._answered.set()
            while self._polls_metrics and not self._closed.is_set():
                self.last = [nvml.card(uuid, handle) for uuid, handle in handles.items()]
                self._closed.wait(CARDS_S)
        except Exception as error:  # no module, no library or no GPU: no metrics
            self.trouble = one_line(str(error)) or type(error).__name__
        self.last = ()
        self._answered.set()

    def wait(self) -> None:
        """Waits for the identities, at most FIRST_ANSWER_S and only once."""
        if not self._answered.wait(FIRST_ANSWER_S):
            self.trouble = "NVML does not answer"
            self._answered.set()

    def close(self) -> None:
        """Stops polling."""
        self._closed.set()


class Watch:
    """Polls all jobs of the user, over one connection to each job and one to the service. cards:
    whether to poll NVML for metrics, too."""

    def __init__(self, *, cards: bool = False) -> None:
        self._controls: dict[str, Control] = {}
        self._silent: dict[str, tuple[float, Seen]] = {}
        """Jobs that have not answered, and the times of the next attempts, by socket."""
        self._service = registered.Registered()
        self._cards = Cards(polls_metrics=cards)

    def poll(self) -> Poll:
        """Polls every job. A job that does not answer has an error."""
        there = list(jobs.found())
        sockets = {job.socket for job in there}
        for path in set(self._controls) - sockets:
            self._controls.pop(path).close()
        self._silent = {path: one for path, one in self._silent.items() if path in sockets}
        answered, seen = jobs.of_all(self._service, there, self._ask)
        self._cards.wait()
        return Poll(
            time.monotonic(),
            seen,
            answered,
            self._service.warning,
            self._cards.last,
            {**_virtual(seen), **self._cards.identities},
            self._cards.trouble,
            self._service.trouble,
        )

    def _ask(self, job: jobs.Job) -> Seen:
        due_s, silent = self._silent.get(job.socket, (0.0, None))
        if silent is not None and time.monotonic() < due_s:
            return silent
        control = self._controls.setdefault(job.socket, Control(job.socket))
        begun_s = time.monotonic()
        seen = Seen(job, *jobs.answer_of(job, control))
        now_s = time.monotonic()
        if seen.error:
            self._silent[job.socket] = (now_s + registered.SILENT_TIMES * (now_s - begun_s), seen)
        return seen

    def close(self) -> None:
        """Closes all connections."""
        for control in self._controls.values():
            control.close()
        self._controls.clear()
        self._service.close()
        self._cards.close()


def _virtual(seen: Iterable[Seen]) -> dict[str, Identity]:
    """Returns the names of virtual GPUs in their profiles. Each process has one GPU, device 0."""
    return {
        device.uuid: Identity(0, None, one.job.virtual)
        for one in seen
        if one.job.virtual
        for device in devices_of(one.clients)
    }


class Rates(NamedTuple):
    """Growth of a client's counters over `seconds`. hit_rate: 0 to 1; None if no block was used."""

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
    """Returns the rates between two states of a client; without `before`, since its start."""
    used = grown(before, after, "worker", "blocks_used")
    hit = grown(before, after, "worker", "blocks_hit")
    span = max(1e-3, seconds)
    return Rates(
        seconds,
        hit / used if used else None,
        *(grown(before, after, part, name) / span for part, name in _COUNTS),
    )


def grown(before: ClientState | None, after: ClientState, part: str, name: str) -> int:
    """Returns the growth of a counter between two states of a client; without `before`, its value.

    part: "shim" or "worker". A new worker counts from zero again.
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
    """A GPU in use by the user's jobs; bytes are sums over their clients."""

    uuid: str
    number: int
    """The index in nvidia-smi; the lowest index in the jobs if NVML does not know the GPU."""
    model: str
    """The model's name; "" if unknown."""
    total_bytes: int
    budget_bytes: int
    allocated_bytes: int
    resident_bytes: int
    arriving_bytes: int
    leaving_bytes: int
    clients: int


def gpus_in_use(poll: Poll) -> list[Gpu]:
    """Returns the GPUs that the jobs use, sorted by number."""
    by_uuid: dict[str, list[DeviceState]] = {}
    for device in devices_of(client for seen in poll.seen for client in seen.clients):
        by_uuid.setdefault(device.uuid, []).append(device)
    found = [gpu_of(uuid, poll.identities.get(uuid), mine) for uuid, mine in by_uuid.items()]
    return sorted(found, key=lambda gpu: (gpu.number, gpu.uuid))


def gpu_of(uuid: str, identity: Identity | None, devices: list[DeviceState]) -> Gpu:
    """Combines the devices of several clients that are the same GPU."""

    def total(name: str) -> int:
        return sum(int(getattr(device, f"{name}_bytes")) for device in devices)

    number = identity.number if identity else None
    return Gpu(
        uuid,
        min(device.index for device in devices) if number is None else number,
        identity.model if identity else "",
        max(device.total_bytes for device in devices),
        budget_bytes=total("budget"),
        allocated_bytes=total("allocated"),
        resident_bytes=total("resident"),
        arriving_bytes=total("arriving"),
        leaving_bytes=total("leaving"),
        clients=len(devices),
    )


def devices_of(clients: Iterable[ClientState]) -> list[DeviceState]:
    """Returns all devices of all clients."""
    return [device for client in clients for device in client.devices]


class Row(NamedTuple):
    """One client, for people and scripts."""

    seen: Seen
    client: ClientState
    rates: Rates


def others(poll: Poll) -> list[JobState]:
    """Returns the jobs that this user sees only through the service."""
    return registered.others(poll.registered, (seen.job.socket for seen in poll.seen))


def rows(poll: Poll, before: Poll | None) -> list[Row]:
    """Returns all clients that answered, with their rates since the previous poll."""
    earlier = {
        (seen.job.socket, client.pid): client
        for seen in (before.seen if before else [])
        for client in seen.clients
        if client.error is None
    }
    found = []
    for seen in poll.seen:
        for client in seen.clients:
            if client.error is None:
                then = earlier.get((seen.job.socket, client.pid))
                seconds = poll.at_s - before.at_s if before and then else age_s(client.pid)
                found.append(Row(seen, client, rates(then, client, seconds)))
    return found


def lost(row: Row) -> tuple[float, float] | None:
    """Returns the seconds that a client lost to memory, as its worker estimates, and their share of
    the observed time. Returns None before there is an estimate."""
    of_ns = row.client.worker.get("lost_of_ns", 0)
    lost_ns = row.client.worker.get("lost_ns", 0)
    return (lost_ns / 1e9, lost_ns / of_ns) if of_ns else None


def predicted_share(client: ClientState) -> float | None:
    """Returns the share of a client's operations that were predicted; None without operations."""
    seen = grown(None, client, "worker", "operations")
    return grown(None, client, "worker", "predicted") / seen if seen else None


def as_json(poll: Poll, before: Poll | None) -> dict[str, Any]:
    """Converts a poll for JSON: gpus, cards, jobs with their clients' metrics and rates, others."""
    by_job: dict[str, list[dict[str, Any]]] = {}
    for row in rows(poll, before):
        client = {**jobs.client_json(row.client), "rates": row.rates._asdict()}
        by_job.setdefault(row.seen.job.socket, []).append(client)
    return {
        "gpus": [_with_uuid(gpu._asdict()) for gpu in gpus_in_use(poll)],
        "cards": [_with_uuid(card._asdict()) for card in poll.cards],
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
            for seen in poll.seen
        ],
        "others": registered.as_json(others(poll)),
    }


def _with_uuid(gpu: dict[str, Any]) -> dict[str, Any]:
    return {**gpu, "uuid": nvml.gpu_uuid(gpu["uuid"])}
