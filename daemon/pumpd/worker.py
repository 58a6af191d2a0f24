"""The worker: one process that serves one client.

A loop of four steps at its own pace: drain the event ring, bring the model up to date,
let the policy decide, submit. It sleeps on the mapping's bell while nothing happens; a
dormant client costs four wake-ups a second.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import socket
from typing import Final

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel, DeviceFacts, Transfer
from pump.policy import by_name
from pump.policy.base import Policy
from pump.wire.abi import lib
from pump.wire.mapping import Mapping, ProtocolError, Range
from pumpd.settings import WorkerSettings

log = logging.getLogger("pumpd.worker")

SLEEP_NS: Final = 250_000_000
"""Longest sleep; the heartbeat (stale for the shim after 3 s) is written after each."""

SPIN_NS: Final = 20_000
"""Spin before sleeping while records come closer together than this."""

LIVENESS_NS: Final = 100_000_000
"""How often the client's socket and process are looked at."""

BATCHES_AT_ONCE: Final = 8
"""Batches of 4,096 rows read in one tick, so that a flood cannot keep it from deciding."""

FAR_BEHIND: Final = lib.PUMP_EVENT_SLOTS * 3 // 4
"""Backlog (records) from which the worker skips to the newest."""


class Worker:
    """One client's mapping, model and policy."""

    def __init__(self, mapping: Mapping, policy: Policy) -> None:
        self.mapping = mapping
        self.model = ClientModel()
        self.policy = policy
        self.counters = mapping.shm.worker_counters
        self._dropped = 0
        self._stale = True
        """The ranges have to be read from the table: at the start, and after a loss."""
        self._spin_ns = 0
        self._ticks = 0

    # ---- one tick ----------------------------------------------------------------------

    def tick(self) -> None:
        """Drain, understand, decide, act."""
        self._read_devices()
        self._read_events()
        self.model.progress(self.mapping.executed_seq)
        self._reap()
        for device, known in self.model.devices.items():
            if known.facts.active:
                self._decide(device)
        self._publish()

    def wait(self, seen_activity: int) -> None:
        """Wait for the next event, completion or progress, or for SLEEP_NS."""
        before = lib.pump_core_now_ns()
        self.mapping.wait(seen_activity, self._spin_ns, SLEEP_NS)
        # Spinning pays only while records come faster than one could fall asleep.
        gap = lib.pump_core_now_ns() - before
        self._spin_ns = SPIN_NS if gap < SPIN_NS else 0

    def _read_devices(self) -> None:
        shm = self.mapping.shm
        for index in range(lib.PUMP_MAX_DEVICES):
            record = shm.devices[index]
            state = record.device_state
            if state == lib.PUMP_DEVICE_ABSENT:
                continue
            facts = DeviceFacts(
                budget=_blocks(record.budget_bytes, record.plain_bytes),
                capacity=_blocks(record.free_at_start_bytes, record.plain_bytes),
                emulated=bool(record.emulated),
                active=state == lib.PUMP_DEVICE_ACTIVE,
            )
            known = self.model.devices.get(index)
            if facts.active and not (known and known.facts.active):
                self._stale = True  # a dormant client reports no allocations
            self.model.set_device(index, facts)

    def _read_events(self) -> None:
        dropped = self.mapping.shm.shim_counters.events_dropped
        if dropped != self._dropped:
            self._dropped = dropped
            self._stale = True
        if self.mapping.backlog() > FAR_BEHIND:
            log.info("skipped %d records to catch up", self.mapping.skip())
            self.model.forget_window()
            self._stale = True
        if self._stale:
            self._read_ranges()
        try:
            for _ in range(BATCHES_AT_ONCE):
                batch = self.mapping.drain()
                self.model.apply(batch, self.mapping.read_range)
                if self.mapping.backlog() == 0:
                    break
        except ProtocolError:
            self._stale = True

    def _read_ranges(self) -> None:
        """Read the state instead of the events that led to it. Events that still wait may
        tell some of it again; that changes nothing."""
        self._stale = False
        newest_seq = max(0, self.mapping.shm.header.next_seq - 1)
        records: list[Range] = []
        for slot in self.mapping.range_slots():
            record = self.mapping.read_range(slot)
            if record is not None:
                records.append(record)
        self.model.resync(records, newest_seq)
        log.info("read the range table: %d ranges", len(records))

    def _reap(self) -> None:
        for device in self.model.devices:
            for direction in (lib.PUMP_TO_GPU, lib.PUMP_TO_HOST):
                for outcome in self.mapping.reap(device, direction):
                    self.model.finish(outcome)

    def _decide(self, device: int) -> None:
        decision = self.policy.decide(self.model.view(device))
        for transfer in self.model.carry_out(device, decision):
            if not self._submit(transfer):
                self.model.take_back(transfer)

    def _submit(self, transfer: Transfer) -> bool:
        piece = transfer.slice
        return self.mapping.submit(
            transfer.device,
            transfer.direction,
            ticket=transfer.ticket,
            slot=piece.slot,
            generation=piece.generation,
            offset_bytes=piece.offset_bytes,
            length_bytes=piece.length_bytes,
            observed_seq=transfer.observed_seq,
            needed_by_seq=transfer.needed_by_seq,
            stream=transfer.stream,
        )

    def _publish(self) -> None:
        """Write counters and heartbeat for the shim's summary and its link."""
        tally, counters = self.model.tally, self.counters
        self._ticks += 1
        counters.ticks = self._ticks
        counters.operations = tally.operations
        counters.operations_hit = tally.operations_hit
        counters.blocks_used = tally.blocks_used
        counters.blocks_hit = tally.blocks_hit
        counters.miss_late = tally.miss_late
        if self.policy.prefetches:
            counters.miss_unseen = tally.miss_unseen
            counters.miss_no_room = tally.miss_no_room
        else:
            counters.miss_policy = tally.miss_unseen + tally.miss_no_room
        counters.resyncs = tally.resyncs
        counters.overshoot_bytes_peak = max(0, tally.overshoot_blocks_peak) * BLOCK_BYTES
        self.mapping.shm.header.worker_heartbeat_ns = lib.pump_core_now_ns()


def _blocks(whole_bytes: int, taken_bytes: int) -> int:
    """Return the blocks in what is left, within what the tables can count."""
    return min(max(0, whole_bytes - taken_bytes) // BLOCK_BYTES, 1 << 30)


class Liveness:
    """Tells when the client is gone: its socket closed, or its process ended."""

    def __init__(self, connection: socket.socket, client_pid: int) -> None:
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN | select.POLLHUP)
        self._connection = connection
        self._pidfd = -1
        self._next_look_ns = 0
        if client_pid > 0:
            try:
                # A forked child of the client keeps the socket open, so the socket
                # alone would not tell.
                self._pidfd = os.pidfd_open(client_pid)
                self._poll.register(self._pidfd, select.POLLIN)
            except OSError:
                log.info("no pidfd for client %d; its socket has to do", client_pid)

    def gone(self, now_ns: int) -> bool:
        """Return whether the client has left; looks at most every LIVENESS_NS."""
        if now_ns < self._next_look_ns:
            return False
        self._next_look_ns = now_ns + LIVENESS_NS
        for fd, _ in self._poll.poll(0):
            if fd == self._pidfd:
                return True
            try:
                if not self._connection.recv(4096, socket.MSG_DONTWAIT):
                    return True
            except BlockingIOError:
                continue
            except OSError:
                return True
        return False


def run(fd_memfd: int, connection: socket.socket, settings: WorkerSettings) -> None:
    """Serve one client until it leaves.

    `fd_memfd`: the sealed mapping, closed here once it is mapped. `connection`: the
    client's socket, whose end of file means that it left. Raises ValueError for an
    unknown policy.
    """
    policy = by_name(settings.policy)
    mapping = Mapping(fd_memfd)
    os.close(fd_memfd)
    mapping.shm.header.worker_pid = os.getpid()
    worker = Worker(mapping, policy)
    liveness = Liveness(connection, settings.client_pid)
    gc.freeze()  # what is alive now stays alive: no need to look at it again
    log.info("serving client %d with policy %s", settings.client_pid, settings.policy)
    while not liveness.gone(lib.pump_core_now_ns()):
        seen = mapping.activity()
        worker.tick()
        worker.wait(seen)
    log.info("client %d left: %r, %r", settings.client_pid, worker.model, worker.model.tally)
