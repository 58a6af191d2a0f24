"""The worker: one process that serves one client.

Each tick drains the event ring into the model, reads progress and ended transfers, and renews the
schedules that need it (daemon/core/worker). Between ticks the worker sleeps on a futex in the
mapping; a dormant client costs four wake-ups per second.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import time
from typing import Any, Final

from pump.config.settings import DEFAULTS
from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel, DeviceFacts
from pump.policy import by_name
from pump.policy.base import Policy
from pump.trace import format as trace
from pump.wire.abi import ffi, lib
from pump.wire.mapping import Mapping, ProtocolError
from pumpd.common.settings import WorkerSettings
from pumpd.worker import ended
from pumpd.worker import recorder as recording
from pumpd.worker.control_worker import ControlWorker
from pumpd.worker.learned import Learned
from pumpd.worker.liveness import Liveness
from pumpd.worker.recorder import Recorder
from pumpd.worker.sampler import Sampler
from pumpd.worker.time_lost import TimeLost

log = logging.getLogger("pumpd.worker")

SLEEP_NS: Final = 250_000_000
"""Longest sleep. Each is followed by a heartbeat, which the shim considers stale after 3 s."""

UNREADY_NS: Final = 100_000_000
"""Longest time for which a record may be reserved without being filled."""

PUBLISH_NS: Final = 20_000_000
"""Least time between two writes of counters and heartbeat while busy."""

DEVICES_EVERY: Final = 64
"""Ticks after which the devices' records are read again even without an event."""

DORMANT_S: Final = 0.004
"""Pause of a recorded, dormant client's worker between two reads. Nothing waits for that worker,
and each pause is a wake-up less for the client's CPU cores."""

DORMANT_BACKLOG: Final = lib.PUMP_EVENT_SLOTS // 16
"""Largest backlog, in records, after which such a pause cannot fill the ring."""

QUIET_NS: Final = 1_000_000
"""Length of the short sleep before a long one; at least PUMP_SLEEP_GRACE_NS."""

FAR_BEHIND: Final = lib.PUMP_EVENT_SLOTS * 3 // 4
"""Largest backlog, in records, before the worker skips to the newest record."""

LAST_READS: Final = 4
"""Reads of the ring at the end of a client; together they exceed its capacity."""

LAST_ENDS_NS: Final = 200_000_000
"""Longest wait for a recorded client's slices that are still in the driver."""

COUNTS: Final = ("ticks", "resyncs", "catch_ups", "miss_unseen", "miss_no_room", "miss_policy")
TOTALS: Final = (
    *("operations", "predicted", "predictions_lost", "operations_hit", "schedules"),
    trace.IN_PLACE_PEAK,
)
TALLIES: Final = ("blocks", "hit", "late", "unseen", "no_room", "overshoot")


class Worker:
    """One client's mapping, model and policy."""

    def __init__(
        self,
        mapping: Mapping,
        policy: Policy,
        recorder: Recorder | None = None,
        client_pid: int = 0,
        learned_folder: str = "",
        *,
        duplicates: bool = False,
        placement: str = DEFAULTS.placement,
    ) -> None:
        """`client_pid`: 0 if the client is not visible. `duplicates`: whether evictions skip the
        copy of clean memory. `placement`: "migrate", "auto" or "remote". `learned_folder`: folder
        that keeps patterns learned under this policy for the program's next run; "" to keep
        none."""
        self.mapping = mapping
        self.model = ClientModel()
        self.model.start_timing()
        keeps = learned_folder and policy.predicts
        self._learned = Learned(self.model, learned_folder) if keeps else None
        self.model.duplicate(duplicates)
        self.model.read_in_place(placement)
        self._said_ended = False
        self._take(policy)
        self.recorder = recorder
        if recorder:
            lib.pump_worker_record(self.model.raw, recorder.hops.slices)
        self._dropped = 0
        self._stale = True
        """Whether the ranges must be read from the table: at the start, and after a loss."""
        self._seen: dict[int, tuple[int, ...]] = {}
        """The last values of each device's record."""
        self._unready_ns = 0
        """Since when the next record has been reserved without being filled; 0: it is filled."""
        self._spin_ns = 0
        self._counts = dict.fromkeys(COUNTS, 0)
        self._seen_misses = 0, 0
        """The model's misses, unseen and without room, at the last update of the counters."""
        self._time_lost = TimeLost(self.model, mapping, client_pid)
        self._sampler = Sampler(recorder, mapping, self.model, client_pid) if recorder else None

    @property
    def counters(self) -> Any:
        """Returns the client's `struct pump_worker_counters`, which the client can overwrite."""
        return self.mapping.shm.worker_counters

    @property
    def _active(self) -> bool:
        """Whether a device has become active. Before, only recorded clients report operations."""
        return any(facts.active for facts in self.model.devices.values())

    # ---- one tick ----------------------------------------------------------------------

    def tick(self) -> None:
        """Drains the ring, updates the model, renews schedules, and publishes."""
        waiting = self.mapping.backlog()
        if waiting or self._counts["ticks"] % DEVICES_EVERY == 0:
            self.read_devices()
            self._read_events(waiting)
            if self._learned:
                self._learned.step()
        self.mapping.follow(self.model.raw)
        if self.recorder:
            self.recorder.tick()
        self._counts["ticks"] += 1
        now_ns = lib.pump_core_now_ns()
        if now_ns - self.mapping.shm.header.worker_heartbeat_ns >= PUBLISH_NS:
            self.publish()
        if self._active and now_ns >= self._time_lost.due_ns:
            self._time_lost.publish()
        if self._sampler:
            self._sampler.tick(now_ns)

    def wait(self, seen_activity: int) -> None:
        """Waits for the next event, completion or progress, or for SLEEP_NS.

        A short sleep always precedes the long one, because the worker may miss
        a producer's wake-up while falling asleep (`pump_wake_later`).
        """
        if self.recorder and not self._active and self.mapping.backlog() < DORMANT_BACKLOG:
            time.sleep(DORMANT_S)
        before = lib.pump_core_now_ns()
        if self._wait(seen_activity, self._spin_ns, QUIET_NS):
            self._spin_ns = lib.pump_core_spin_ns(lib.pump_core_now_ns() - before)
            return
        self._spin_ns = 0
        if self._active and lib.pump_core_now_ns() >= self._time_lost.may_ns:
            self._time_lost.publish()
        self.publish()
        self._wait(seen_activity, 0, SLEEP_NS)

    def _wait(self, seen_activity: int, spin_ns: int, timeout_ns: int) -> bool:
        return self.mapping.wait(self.model.raw, seen_activity, spin_ns, timeout_ns)

    def read_devices(self) -> None:
        """Reads the shim's records of its devices."""
        shm = self.mapping.shm
        for index in range(min(shm.header.device_count, lib.PUMP_MAX_DEVICES)):
            record = shm.devices[index]
            state = record.device_state
            if state == lib.PUMP_DEVICE_ABSENT:
                continue
            plain_bytes = record.plain_bytes
            seen = (state, plain_bytes, record.budget_bytes, record.free_at_start_bytes)
            if self._seen.get(index) == seen:
                continue
            self._seen[index] = seen
            facts = DeviceFacts(
                budget=_blocks(record.budget_bytes, plain_bytes),
                capacity=_blocks(_capacity_bytes(record), plain_bytes),
                emulated=bool(record.emulated),
                active=state == lib.PUMP_DEVICE_ACTIVE,
            )
            known = self.model.devices.get(index)
            if facts.active and not (known and known.active):
                # A dormant client reports no allocations, so they are read from the table. This
                # precedes the new budget: the shim populated them within the old one.
                self._stale = True
                if known:
                    self._read_ranges()
            self.model.set_device(index, facts)
            self._learn()
            if self.recorder:
                self.recorder.device(index, record)

    def _read_events(self, waiting: int) -> None:
        mapping = self.mapping
        dropped = mapping.shm.shim_counters.events_dropped
        if dropped != self._dropped:
            if self.recorder:
                self.recorder.lost(dropped - self._dropped, trace.LOST_RING_FULL)
            self._dropped = dropped
            self._stale = True
        if waiting > FAR_BEHIND:
            log.info("skipped %d operations and events to catch up", self._skip())
            self._counts["catch_ups"] += 1
            self.model.forget_window()
            self._lose()
        if self._stale:
            self._read_ranges()
        try:
            rows = self._drain()
        except ProtocolError:
            self._lose()
            return
        if rows or not waiting:
            self._unready_ns = 0
        else:
            self._wait_for_unready(waiting)

    def _drain(self) -> int:
        """Applies the arrived rows; returns their number."""
        if self.recorder is None:
            return self.mapping.read_into(self.model.raw)
        rows = 0
        for _ in range(lib.PUMP_BATCHES_AT_ONCE):
            batch = self.mapping.drain()
            if len(batch) == 0:
                break
            rows += len(batch)
            self.model.ingest(batch)
            self.recorder.batch(batch)
        return rows

    def _skip(self) -> int:
        """Reads the waiting rows without applying them; returns their number.

        Only filled records are skipped. Otherwise, a producer that is delayed between reserving
        and filling a slot could write into a slot that is in use again.
        """
        rows = 0
        with contextlib.suppress(ProtocolError):
            while rows < lib.PUMP_EVENT_SLOTS and len(batch := self.mapping.drain()):
                rows += len(batch)
                if self.recorder:
                    self.recorder.batch(batch)
        return rows

    def _wait_for_unready(self, waiting: int) -> None:
        """Waits for a reserved record that is not filled. Its thread is delayed, or has ended
        (killed, cancelled) and will never fill it. Skips the records after UNREADY_NS."""
        now_ns = lib.pump_core_now_ns()
        if self._unready_ns == 0:
            self._unready_ns = now_ns
        elif waiting > FAR_BEHIND or now_ns - self._unready_ns > UNREADY_NS:
            self._unready_ns = 0
            skipped = self.mapping.skip()
            log.info("skipped %d records after one that stayed incomplete", skipped)
            if self.recorder:
                self.recorder.lost(skipped, trace.LOST_RING_FULL)
            self.model.forget_window()
            self._lose()

    def _lose(self) -> None:
        """Handles lost events: requests names and parameters again, and marks the ranges stale."""
        self.mapping.ask_again()
        self._stale = True

    def _finish_recording(self) -> None:
        """Closes the recording. Keeps no file of a process that only searched for GPUs, as
        launchers do."""
        if self.recorder is None:
            return
        self._follow_last()
        if self._sampler:
            self._sampler.take(lib.pump_core_now_ns(), last=True)
        lib.pump_worker_record(self.model.raw, ffi.NULL)
        self._time_lost.publish()
        self.recorder.close(self._last_facts(), keep=not self.recorder.empty)
        self.counters.recording_error = self.recorder.error
        self.recorder = self._sampler = None

    def last_figures(self) -> None:
        """Reads the rest of the ring and publishes the final numbers. An exiting client waits for
        them if it can, and prints them in its last line."""
        for _ in range(LAST_READS):
            self._read_events(self.mapping.backlog())
        self._finish_recording()
        self.mapping.follow(self.model.raw)
        self.publish()
        self._time_lost.publish()
        self.counters.figures_final = 1

    def finish_learning(self) -> None:
        """Saves the learned patterns for the program's next run."""
        if self._learned:
            self._learned.end()

    def _follow_last(self) -> None:
        """Stops scheduling, and waits for transfers in flight, at most LAST_ENDS_NS."""
        self.model.schedule(False)
        until_ns = lib.pump_core_now_ns() + LAST_ENDS_NS
        while True:
            seen = self.mapping.activity()
            self.mapping.follow(self.model.raw)
            if not self.model.totals().in_flight or lib.pump_core_now_ns() >= until_ns:
                return
            self._wait(seen, 0, QUIET_NS)

    def _read_ranges(self) -> None:
        """Reads the live ranges from the table. Events in the ring may repeat some ranges, which
        has no effect."""
        self._stale = False
        self._counts["resyncs"] += 1
        newest_seq = max(0, self.mapping.shm.header.next_seq - 1)
        ranges = self.mapping.read_ranges()
        self.model.resync(ranges, newest_seq)
        if self.recorder:
            self.recorder.ranges(ranges, newest_seq)
        log.info("read the range table: %d ranges", ranges.count)

    def switch(self, policy: Policy) -> None:
        """Switches to this policy, and resets the overshoot.

        Transfers in flight are completed; the earlier policy's schedule is void.
        """
        self.publish()  # attributes earlier misses to the earlier policy
        if policy.name != self.policy.name and self.recorder:
            self.recorder.record_policy(policy.name)
        self._take(policy)
        lib.pump_model_switched(self.model.raw)
        self.publish()

    def _take(self, policy: Policy) -> None:
        self.policy = policy
        self.model.schedule(policy.prefetches)
        self._learn()

    def _learn(self) -> None:
        """Starts to learn the active client's loop if the policy predicts. Without memory for the
        learner, the schedule knows only issued operations."""
        wanted = self.policy.predicts and self._active
        try:
            self.model.learn(wanted, keep=self._learned is not None)
        except MemoryError as error:
            log.warning(
                "%s: policy %s prefetches only for issued operations, without predictions; "
                "free memory on the host, or raise the job's memory limit",
                error,
                self.policy.name,
            )

    def publish(self) -> None:
        """Writes heartbeat and counters for the shim's link and its summary."""
        self.mapping.shm.header.worker_heartbeat_ns = lib.pump_core_now_ns()
        totals, counters = self.model.totals(), self.counters
        if self.recorder:
            counters.recording_error = self.recorder.error
        for name in TOTALS:
            setattr(counters, name, getattr(totals, name))
        counters.ops_larger = totals.larger
        sums = dict.fromkeys(TALLIES, 0)
        for device in self.model.devices:
            tally = self.model.tally(device)
            for name in sums:
                sums[name] += getattr(tally, name)
        counters.blocks_used, counters.blocks_hit = sums["blocks"], sums["hit"]
        counters.miss_late = sums["late"]
        if totals.trials_ended and not self._said_ended:
            self._said_ended = True
            log.info(
                "cuMemAdvise takes too long: evictions also copy clean memory to the host again"
            )
        self._count_misses(sums["unseen"], sums["no_room"])
        for name, count in self._counts.items():
            setattr(counters, name, count)
        counters.overshoot_bytes_peak = sums["overshoot"] * BLOCK_BYTES

    def _last_facts(self) -> dict[str, int]:
        """Returns the time lost, the waits for turns, and what was read in place, for the end of a
        recording."""
        names = (*trace.LOST_TIMES, trace.DELAYED_TIME, trace.IN_PLACE_PEAK)
        facts = {name: int(getattr(self.counters, name)) for name in names}
        return {**facts, trace.HELD_TIME: int(self.mapping.shm.shim_counters.held_ns)}

    def _count_misses(self, unseen: int, no_room: int) -> None:
        """Counts the misses since the last call by cause. Under a policy that does not prefetch,
        the policy is the cause."""
        new_unseen, new_no_room = unseen - self._seen_misses[0], no_room - self._seen_misses[1]
        self._seen_misses = unseen, no_room
        if self.policy.prefetches:
            self._counts["miss_unseen"] += new_unseen
            self._counts["miss_no_room"] += new_no_room
        else:
            self._counts["miss_policy"] += new_unseen + new_no_room


def _capacity_bytes(record: Any) -> int:
    """Returns how much GPU memory can hold this client's blocks (bytes): what was free at its
    start, or the whole GPU if the budget is larger.

    In the second case several jobs share the GPU. To make room, the driver evicts the memory of any
    process that migrated longest ago. Pump does not know which of this client's blocks were
    evicted: they count as resident until faults show otherwise.
    """
    free = int(record.free_at_start_bytes)
    return free if record.budget_bytes <= free else int(record.total_bytes)


def _blocks(whole_bytes: int, taken_bytes: int) -> int:
    """Returns the number of blocks in the remaining bytes, up to the limit of the tables."""
    return int(min(max(0, whole_bytes - taken_bytes) // BLOCK_BYTES, 1 << 30))


def run(
    fd_memfd: int, connection: socket.socket, lifeline: socket.socket, settings: WorkerSettings
) -> None:
    """Serves one client until the client leaves.

    `fd_memfd`: the sealed mapping; closed here after it is mapped. `connection`: the
    client's socket; end-of-file means that the client has left. `lifeline`: the socket to
    the supervisor; open until the end. Raises ValueError for an unknown policy.
    """
    policy = by_name(settings.policy)
    mapping = Mapping(fd_memfd)
    os.close(fd_memfd)
    mapping.shm.header.worker_pid = os.getpid()
    recorder = recording.start(settings, mapping.shm.worker_counters)
    worker = Worker(
        mapping,
        policy,
        recorder,
        settings.client_pid,
        settings.learned_folder,
        duplicates=settings.duplicates,
        placement=settings.placement,
    )
    liveness = Liveness(connection, settings.client_pid)
    steering = ControlWorker(worker, lifeline, connection, settings.client_pid)
    steering.start()
    gc.freeze()  # present objects stay alive, so garbage collection can skip them
    log.info("serving client %d with policy %s", settings.client_pid, settings.policy)
    exits = False
    while not liveness.gone(lib.pump_core_now_ns()):
        seen = mapping.activity()
        steering.step()
        worker.tick()
        if not exits and mapping.shm.header.client_state == lib.PUMP_CLIENT_EXITING:
            exits = True
            worker.last_figures()
        worker.wait(seen)
    worker.last_figures()
    if not exits:
        ended.note(mapping.shm, settings.notes_folder)
    worker.finish_learning()
    log.info("client %d left: %r", settings.client_pid, worker.model)
