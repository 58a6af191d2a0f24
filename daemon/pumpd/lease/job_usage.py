"""The GPU memory of a job's clients, and their budgets under the job's leases. No I/O.

The arbiter that shares a GPU between jobs also divides a job's lease between its clients. The order
is the same: budgets that shrink are set first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pump.config.values import amount_bytes
from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump.policy.arbiter import LEAST_BLOCKS, Claim, arbitrate
from pump.policy.leases import Lease, step
from pump.wire.control import ClientState, DeviceState
from pumpd.common import lazily

if TYPE_CHECKING:
    from pump.wire import service as wire
else:
    wire = lazily.module("pump.wire.service")

USE_MEMORY_S = 10.0
"""Time constant of the moving average of the busy share."""
ABSENT_S = 10.0
"""A client counts as holding nothing if its worker has not answered for this time."""
DUTY_MEMORY_S = 20.0
DUTY_LEAST = 0.6
"""Least duty of a job that takes turns with others. A job with work for a smaller share of the time
may be answering requests."""
USE_STEPS = 8
"""Steps of the reported use; a small change in use does not change a job's share."""
LEAST_BYTES = LEAST_BLOCKS * BLOCK_BYTES


class Held(NamedTuple):
    """One device of one client."""

    pid: int
    device: DeviceState

    @property
    def wanted_bytes(self) -> int:
        """Returns the live memory, converted or not."""
        return self.device.allocated_bytes + self.device.plain_bytes

    @property
    def usable_bytes(self) -> int:
        """Returns the largest budget that the shim chooses by itself (shim/memory/devices.c)."""
        free = self.device.free_at_start_bytes
        return without_reserve(free) // BLOCK_BYTES * BLOCK_BYTES

    @property
    def resident_bytes(self) -> int:
        """Returns resident, arriving, leaving and unconverted bytes; live memory for a dormant
        client, which does not report the first three."""
        device = self.device
        if not device.active:
            return self.wanted_bytes
        moving = device.arriving_bytes + device.leaving_bytes
        return device.resident_bytes + moving + device.plain_bytes


class Budget(NamedTuple):
    """A budget to set. `device`: the index of the device in the client."""

    pid: int
    device: int
    budget_bytes: int


class Ceilings:
    """The user's upper bounds on budgets: --budget, and budgets that were set for a running job."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._set: dict[tuple[int | None, int | None], int] = {}

    def steer(self, pid: int | None, device: int | None, budget_bytes: int) -> None:
        """Takes over a budget that a user has set. `pid`, `device`: None means all."""
        for key in list(self._set):
            if pid in (None, key[0]) and device in (None, key[1]):
                del self._set[key]
        self._set[pid, device] = budget_bytes

    def of(self, held: Held) -> int:
        """Returns the most bytes that a client may keep on a device: all of it if unbounded."""
        total = held.device.total_bytes
        for key in ((held.pid, held.device.index), (held.pid, None), (None, held.device.index)):
            if key in self._set:
                return min(total, self._set[key])
        if (None, None) in self._set:
            return min(total, self._set[None, None])
        return min(total, own_budget(self._text, total))


def own_budget(text: str, total_bytes: int) -> int:
    """Returns the bytes of `--budget text` on a GPU, in pump-run's form ("80%", "0.8x", bytes).
    Returns the GPU's memory for "", and for an invalid text, which the shim reports."""
    try:
        return max(0, amount_bytes(text, total_bytes))
    except (ValueError, OverflowError):
        return total_bytes


class Busy:
    """Tracks for each device of each client the recent share of time in which it was used.

    Its duty is the share of samples with work, without long pauses and waits for a turn."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, float, float]] = {}
        self._duties: dict[tuple[int, int], tuple[bool, float]] = {}

    def add_sample(self, held: Held, depth: int, now: float, absent: bool = False) -> float:
        """Adds a sample at time `now`; returns the share, 0 to 1. `depth`: operations in the
        client's window. A dormant client counts as busy, because it reports no operations.
        `absent`: the worker does not answer, so the use is unknown and the last share remains."""
        key = held.pid, held.device.index
        if absent and key in self._known:
            return self._known[key][1]
        used = held.device.blocks_used
        before, share, then = self._known.get(key, (used, 1.0, now))
        now_busy = not held.device.active or depth > 0
        waits = held.device.held_threads > 0
        busy = now_busy or waits or used != before
        _, duty = self._duties.get(key, (busy, 1.0))
        if busy and not waits:
            duty += (1.0 - math.exp(-(now - then) / DUTY_MEMORY_S)) * (now_busy - duty)
        self._duties[key] = busy, duty
        share += (1.0 - math.exp(-(now - then) / USE_MEMORY_S)) * (busy - share)
        self._known[key] = used, share, now
        return share

    def used(self, held: Held) -> bool:
        """Returns whether the device was in use between the last two samples, or waits for a
        turn."""
        return self._duties[held.pid, held.device.index][0]

    def ready(self, held: Held) -> bool:
        """Returns whether the device was in use, with a duty of at least DUTY_LEAST."""
        busy, duty = self._duties[held.pid, held.device.index]
        return busy and duty >= DUTY_LEAST

    def forget(self, pids: set[int]) -> None:
        """Drops all clients except these."""
        self._known = {key: value for key, value in self._known.items() if key[0] in pids}
        self._duties = {key: value for key, value in self._duties.items() if key[0] in pids}


def answered(clients: Sequence[ClientState]) -> list[ClientState]:
    """Returns the clients whose workers know their state; a new worker does not know it yet."""
    return [
        client
        for client in clients
        if client.error is None and (client.devices or client.worker.get("ticks", 1))
    ]


class Absent:
    """Clients whose workers do not answer, in their last known state.

    Without a worker a client keeps its budget and its memory, and soon gets another worker.
    `lives`: returns whether a process is running.
    """

    def __init__(self, lives: Callable[[int], bool]) -> None:
        self._lives = lives
        self._known: dict[int, tuple[ClientState, float]] = {}

    def among(self, sound: Sequence[ClientState], now: float) -> list[ClientState]:
        """Returns clients missing from `sound`, for up to ABSENT_S while their processes run."""
        present = {client.pid for client in sound}
        self._known |= {client.pid: (client, now) for client in sound}
        self._known = {
            pid: (client, then)
            for pid, (client, then) in self._known.items()
            if pid in present or (now - then < ABSENT_S and self._lives(pid))
        }
        return [client for pid, (client, _) in self._known.items() if pid not in present]


def by_gpu(clients: Sequence[ClientState]) -> dict[str, list[Held]]:
    """Returns the devices of all clients by GPU UUID, for at most wire.GPUS GPUs."""
    found: dict[str, list[Held]] = {}
    for client in clients:
        for device in client.devices:
            found.setdefault(device.uuid, []).append(Held(client.pid, device))
    return dict(list(found.items())[: wire.GPUS])


def report_of(
    clients: Sequence[ClientState],
    ceilings: Ceilings,
    busy: Busy,
    grant: int,
    now: float,
    *,
    absent: Container[int] = (),
) -> wire.Report:
    """Returns the report to the service. `grant`: number of the adopted grant. `absent`: process
    IDs of clients in their last known state."""
    depths = {client.pid: client.worker.get("window_depth", 0) for client in clients}
    busy.forget(set(depths))
    gpus = []
    for gpu, held in by_gpu(clients).items():
        use = max(busy.add_sample(one, depths[one.pid], now, one.pid in absent) for one in held)
        total = max(one.device.total_bytes for one in held)
        wanted = sum(min(one.wanted_bytes, ceilings.of(one)) for one in held)
        gpus.append(
            wire.GpuReport(
                gpu=gpu,
                total_bytes=total,
                usable_bytes=max(one.usable_bytes for one in held),
                wanted_bytes=min(wanted, total),
                adopted_bytes=sum(one.device.budget_bytes for one in held),
                resident_bytes=sum(one.resident_bytes for one in held),
                use=round(use * USE_STEPS) * wire.USE_MOST // USE_STEPS,
                used=any(busy.used(one) for one in held),
                ready=any(busy.ready(one) for one in held),
                least_bytes=min(sum(one.device.least_bytes for one in held), total),
            )
        )
    every = [device for client in clients for device in client.devices]
    return wire.Report(
        grant=grant,
        clients=len(clients),
        converted_bytes=sum(device.allocated_bytes for device in every),
        host_bytes=sum(device.host_bytes for device in every if device.active),
        gpus=tuple(gpus),
    )


def budgets_for(
    clients: Sequence[ClientState], granted: Mapping[str, int], ceilings: Ceilings
) -> list[Budget]:
    """Returns the budgets to set now to bring the job to its grants (bytes by GPU).

    More budgets may follow when these are adopted: a budget grows only after others have shrunk.
    """
    found = []
    for gpu, held in by_gpu(clients).items():
        if gpu not in granted:
            continue
        caps = {one.pid: ceilings.of(one) for one in held}
        whole = min(granted[gpu], sum(caps.values())) // BLOCK_BYTES * BLOCK_BYTES
        claims = [Claim(one.pid, gpu, 0, min(one.wanted_bytes, caps[one.pid]), 1.0) for one in held]
        targets = {
            pid: max(LEAST_BYTES, min(budget, caps[pid] // BLOCK_BYTES * BLOCK_BYTES))
            for (pid, _), budget in arbitrate({gpu: whole}, claims).items()
        }
        leases = {
            one.pid: Lease(one.device.budget_bytes, 0, one.device.budget_bytes, one.resident_bytes)
            for one in held
        }
        by_pid = {one.pid: one for one in held}
        for pid, budget_bytes in step(whole, targets, leases).items():
            found.append(Budget(pid, by_pid[pid].device.index, _asked(by_pid[pid], budget_bytes)))
    return found


def _asked(held: Held, budget_bytes: int) -> int:
    """Returns the bytes to request from the shim. A request of 97 % of the GPU or more would mean
    "no budget" to the shim, which then uses only the memory that was free at its start."""
    whole = budget_bytes >= without_reserve(held.device.total_bytes)
    return (
        budget_bytes - BLOCK_BYTES if whole and held.usable_bytes < budget_bytes else budget_bytes
    )


def budgets_alone(clients: Sequence[ClientState], ceilings: Ceilings) -> list[Budget]:
    """Returns the budgets to set for a job without leases."""
    wanted = [
        (Budget(one.pid, one.device.index, ceilings.of(one)), one)
        for held in by_gpu(clients).values()
        for one in held
    ]
    return [
        budget
        for budget, one in wanted
        if budget.budget_bytes // BLOCK_BYTES != one.device.budget_bytes // BLOCK_BYTES
        and not (budget.budget_bytes >= one.device.total_bytes and not one.device.emulated)
    ]


def settled(clients: Sequence[ClientState], granted: Mapping[str, int]) -> bool:
    """Returns whether budgets and resident bytes on each GPU fit into the job's lease (grant)."""
    return all(
        sum(one.device.budget_bytes for one in held) <= granted[gpu]
        and sum(one.resident_bytes for one in held) <= granted[gpu]
        for gpu, held in by_gpu(clients).items()
        if gpu in granted
    )


def adopted(clients: Sequence[ClientState], granted: Mapping[str, int]) -> bool:
    """Returns whether the budgets in force are within the leases."""
    return all(
        sum(one.device.budget_bytes for one in held) <= granted[gpu]
        for gpu, held in by_gpu(clients).items()
        if gpu in granted
    )
