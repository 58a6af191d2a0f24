"""The worker: one process that serves one client.

Each tick drains the event ring into the model, reads progress and ended transfers, and renews the
schedules that need it (daemon/core/worker). Between ticks the worker sleeps on a word of the
mapping; a dormant client costs four wake-ups a second.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
from typing import Any, Final

from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel, DeviceFacts
from pump.policy import by_name
from pump.policy.base import Deciding, Policy
from pump.policy.step import decide
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
from pumpd.worker.run_delay import Issuers
from pumpd.worker.sampler import Sampler

log = logging.getLogger("pumpd.worker")

SLEEP_NS: Final = 250_000_000
"""Longest sleep; the heartbeat (stale for the shim after 3 s) is written after each."""

UNREADY_NS: Final = 100_000_000
"""How long a record may be reserved without being filled."""

PUBLISH_NS: Final = 20_000_000
"""While busy, counters and heartbeat are written at most that often."""

LOST_NS: Final = 100_000_000
"""While busy, the time lost is worked out at most that often."""

DEVICES_EVERY: Final = 64
"""Ticks after which the devices' figures are read again though no event came."""

QUIET_NS: Final = 1_000_000
"""Length of the short sleep before a long one; at least PUMP_SLEEP_GRACE_NS."""

FAR_BEHIND: Final = lib.PUMP_EVENT_SLOTS * 3 // 4
"""Backlog (records) from which the worker skips to the newest."""

LAST_READS: Final = 4
"""How often the ring is read at the end of a recorded client: together more than it can hold."""

LAST_ENDS_NS: Final = 200_000_000
"""Longest wait for slices that a recorded client's executors still have in the driver."""

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
    ) -> None:
        """client_pid: 0 where the client cannot be seen. duplicates: whether what was only read
        leaves without a copy. learned_folder: in which what is learned under this policy is kept
        for the program's next run; "" for nowhere."""
        self.mapping = mapping
        self.model = ClientModel()
        self.model.time()
        keeps = learned_folder and policy.predicts
        self._learned = Learned(self.model, learned_folder) if keeps else None
        self._duplicates = duplicates
        self._issuers = Issuers(client_pid)
        self._said_ended = False
        self._take(policy)
        self.recorder = recorder
        if recorder:
            lib.pump_worker_record(self.model.raw, recorder.hops.slices)
        self.counters = mapping.shm.worker_counters
        self._dropped = 0
        self._stale = True
        """The ranges have to be read from the table: at the start, and after a loss."""
        self._seen: dict[int, tuple[int, ...]] = {}
        """Per device: what its record said last."""
        self._unready_ns = 0
        """Since when the next record has been reserved without being filled; 0: it is not."""
        self._spin_ns = 0
        self._misses = {"unseen": 0, "no_room": 0, "policy": 0}
        """By cause; `policy`: misses under a policy that does not prefetch."""
        self._seen_misses = 0, 0
        """What the model's tallies of the first two were then."""
        self._ticks = self._resyncs = self._catch_ups = 0
        self._lost_due_ns = self._lost_may_ns = 0
        self._stops = 0  # of the client, that the model knows
        """When the time lost is worked out next: while busy, and before a long sleep."""
        self._sampler = Sampler(recorder, mapping, self.model, client_pid) if recorder else None

    # ---- one tick ----------------------------------------------------------------------

    def tick(self) -> None:
        """Drain the ring, update the model, renew schedules, publish."""
        waiting = self.mapping.backlog()
        if waiting or self._ticks % DEVICES_EVERY == 0:
            self.read_devices()
            self._read_events(waiting)
            if self._learned:
                self._learned.step()
        self.mapping.follow(self.model.raw)
        if self._deciding:
            for device, facts in self.model.devices.items():
                if facts.active:
                    decide(self._deciding, self.model, device, self.mapping.carry_out)
        if self.recorder:
            self.recorder.tick()
        self._ticks += 1
        now_ns = lib.pump_core_now_ns()
        if now_ns - self.mapping.shm.header.worker_heartbeat_ns >= PUBLISH_NS:
            self.publish()
        if now_ns >= self._lost_due_ns:
            self._publish_lost()
        if self._sampler:
            self._sampler.tick(now_ns)

    def wait(self, seen_activity: int) -> None:
        """Wait for the next event, completion or progress, or for SLEEP_NS.

        Always a short sleep before the long one: a producer's wake-up may be
        missed in the instant of falling asleep (`pump_wake_later`).
        """
        before = lib.pump_core_now_ns()
        if self._wait(seen_activity, self._spin_ns, QUIET_NS):
            self._spin_ns = lib.pump_core_spin_ns(lib.pump_core_now_ns() - before)
            return
        self._spin_ns = 0
        if lib.pump_core_now_ns() >= self._lost_may_ns:
            self._publish_lost()
        self.publish()
        self._wait(seen_activity, 0, SLEEP_NS)

    def _wait(self, seen_activity: int, spin_ns: int, timeout_ns: int) -> bool:
        return self.mapping.wait(self.model.raw, seen_activity, spin_ns, timeout_ns)

    def read_devices(self) -> None:
        """Take over what the shim wrote about its devices."""
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
                # A dormant client reports no allocations, so they are read from the table. The
                # shim populated them within the budget of that time, which may have been larger.
                self._stale = True
                if known:
                    self._read_ranges()
            self.model.set_device(index, facts)
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
            self._catch_ups += 1
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
        """Apply what has arrived; return how many rows that were."""
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
        """Read what waits without working on it; return how many rows that were.

        Only records that are filled: a producer that is delayed between reserving its place and
        filling it would otherwise write into a place that is in use again.
        """
        rows = 0
        with contextlib.suppress(ProtocolError):
            while rows < lib.PUMP_EVENT_SLOTS and len(batch := self.mapping.drain()):
                rows += len(batch)
                if self.recorder:
                    self.recorder.batch(batch)
        return rows

    def _wait_for_unready(self, waiting: int) -> None:
        """The next record was reserved and is not filled: its thread is delayed, or has ended
        (killed, cancelled) and will never fill it. After UNREADY_NS skip the records."""
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
        """Events were lost: read the range table, and ask for names and parameters again."""
        self.mapping.ask_again()
        self._stale = True

    def finish_recording(self) -> None:
        """Read what the client left in the ring, close the recording, and say so to the client,
        which waits for that where it can. A process that only looked for GPUs, as launchers do,
        leaves no file."""
        if self.recorder is None:
            return
        for _ in range(LAST_READS):
            if waiting := self.mapping.backlog():
                self._read_events(waiting)
        self._follow_last()
        if self._sampler:
            self._sampler.take(lib.pump_core_now_ns())
        lib.pump_worker_record(self.model.raw, ffi.NULL)
        self._publish_lost()
        self.recorder.close(self._last_facts(), keep=not self.recorder.empty)
        self.counters.recording_error = self.recorder.error
        self.counters.recording_ended = 1
        self.recorder = self._sampler = None

    def last_figures(self) -> None:
        """Publish what is known once the client ends; while it exits, its last line may tell it."""
        self.finish_recording()
        self._read_events(self.mapping.backlog())
        self.mapping.follow(self.model.raw)
        self.publish()
        self._publish_lost()

    def finish_learning(self) -> None:
        """Keep what was learned for the program's next run."""
        if self._learned:
            self._learned.end()

    def _follow_last(self) -> None:
        """Schedule nothing more, and wait for what executors have taken, LAST_ENDS_NS at most."""
        self.model.schedule(False)
        until_ns = lib.pump_core_now_ns() + LAST_ENDS_NS
        while True:
            seen = self.mapping.activity()
            self.mapping.follow(self.model.raw)
            if not self.model.totals().under_way or lib.pump_core_now_ns() >= until_ns:
                return
            self._wait(seen, 0, QUIET_NS)

    def _read_ranges(self) -> None:
        """Read the live ranges from the table. Events in the ring may repeat some of them, which
        changes nothing."""
        self._stale = False
        self._resyncs += 1
        newest_seq = max(0, self.mapping.shm.header.next_seq - 1)
        ranges = self.mapping.read_ranges()
        self.model.resync(ranges, newest_seq)
        if self.recorder:
            self.recorder.ranges(ranges, newest_seq)
        log.info("read the range table: %d ranges", ranges.count)

    def switch(self, policy: Policy) -> None:
        """Use this policy from now on, and count the overshoot anew.

        Transfers under way are completed; the earlier policy's schedule is void.
        """
        self.publish()  # counts the misses so far for the earlier policy
        if policy.name != self.policy.name and self.recorder:
            self.recorder.policy(policy.name)
        self._take(policy)
        lib.pump_model_switched(self.model.raw)
        self.publish()

    def _take(self, policy: Policy) -> None:
        """Begin to learn what the client repeats, if the policy predicts. Where there is no memory
        for it, the schedule knows issued operations alone."""
        self.policy = policy
        self._deciding = policy if isinstance(policy, Deciding) else None
        self.model.schedule(self._deciding is None)
        self.model.duplicate(self._duplicates)
        try:
            self.model.learn(self.policy.predicts, keep=self._learned is not None)
        except MemoryError as error:
            log.warning(
                "%s: policy %s prefetches only for issued operations, without predictions; "
                "free memory on the host, or raise the job's memory limit",
                error,
                self.policy.name,
            )

    def publish(self) -> None:
        """Write heartbeat and counters for the shim's link and its summary."""
        self.mapping.shm.header.worker_heartbeat_ns = lib.pump_core_now_ns()
        totals, counters = self.model.totals(), self.counters
        counters.ticks = self._ticks
        counters.resyncs = self._resyncs
        if self.recorder:
            counters.recording_error = self.recorder.error
        counters.catch_ups = self._catch_ups
        counters.operations = totals.operations
        counters.ops_larger = totals.larger
        counters.predicted = totals.predicted
        counters.predictions_lost = totals.predictions_lost
        counters.operations_hit = totals.operations_hit
        sums = dict.fromkeys(TALLIES, 0)
        for device in self.model.devices:
            tally = self.model.tally(device)
            for name in sums:
                sums[name] += getattr(tally, name)
        counters.blocks_used, counters.blocks_hit = sums["blocks"], sums["hit"]
        counters.miss_late = sums["late"]
        counters.schedules = totals.schedules
        if totals.trials_ended and not self._said_ended:
            self._said_ended = True
            log.info(
                "cuMemAdvise takes too long: evictions also copy clean memory to the host again"
            )
        self._count_misses(sums["unseen"], sums["no_room"])
        counters.overshoot_bytes_peak = sums["overshoot"] * BLOCK_BYTES

    def _publish_lost(self) -> None:
        """Work out the time lost: all that is not final yet, so at most a twentieth of the
        time goes into it."""
        before_ns = lib.pump_core_now_ns()
        counters, shm = self.counters, self.mapping.shm
        self._follow_stops(shm.header)
        self._issuers.look(shm.header.issuers)
        self.model.delayed(before_ns, self._issuers.waited_ns, self._issuers.share)
        neighbours = (device.neighbours for device in shm.devices[0 : lib.PUMP_MAX_DEVICES])
        lost = self.model.lost(max(neighbours))
        counters.lost_ns, counters.lost_of_ns = lost.likely_ns, lost.of_ns
        counters.lost_least_ns, counters.lost_most_ns = lost.least_ns, lost.most_ns
        counters.lost_delayed_ns = lost.delayed_ns
        now_ns = lib.pump_core_now_ns()
        self._lost_may_ns = now_ns + 20 * (now_ns - before_ns)
        self._lost_due_ns = max(self._lost_may_ns, now_ns + LOST_NS)

    def _follow_stops(self, header: Any) -> None:
        """Tell the model when the client was stopped; of many stops at once, the newest."""
        stops = header.stops
        for number in range(max(self._stops, stops - 2) + 1, stops + 1):
            at = number % 2
            self.model.stopped(header.stop_began_ns[at], header.stop_ended_ns[at])
        self._stops = stops

    def _last_facts(self) -> dict[str, int]:
        """What a recording's end says of the time lost, and of the waits for turns."""
        counters = self.counters
        names = (*trace.LOST_TIMES, trace.DELAYED_TIME)
        lost = {name: int(getattr(counters, name)) for name in names}
        return {**lost, trace.HELD_TIME: int(self.mapping.shm.shim_counters.held_ns)}

    def _count_misses(self, unseen: int, no_room: int) -> None:
        """Count the misses since the last call by cause: those under a policy that does not
        prefetch are the policy's."""
        new_unseen, new_no_room = unseen - self._seen_misses[0], no_room - self._seen_misses[1]
        self._seen_misses = unseen, no_room
        misses, counters = self._misses, self.counters
        if self.policy.prefetches:
            misses["unseen"] += new_unseen
            misses["no_room"] += new_no_room
        else:
            misses["policy"] += new_unseen + new_no_room
        counters.miss_unseen, counters.miss_no_room = misses["unseen"], misses["no_room"]
        counters.miss_policy = misses["policy"]


def _capacity_bytes(record: Any) -> int:
    """Return the bytes of the card that this client's blocks may take.

    What was free at its start; with a greater budget all of the card, which several jobs then
    share. The driver evicts what migrated longest ago, of any process, to make room. Which of
    this client's blocks it has evicted is unknown: they count as resident until faults show that
    some are not.
    """
    free = int(record.free_at_start_bytes)
    return free if record.budget_bytes <= free else int(record.total_bytes)


def _blocks(whole_bytes: int, taken_bytes: int) -> int:
    """Return the blocks in what is left, within what the tables can count."""
    return int(min(max(0, whole_bytes - taken_bytes) // BLOCK_BYTES, 1 << 30))


def run(
    fd_memfd: int, connection: socket.socket, lifeline: socket.socket, settings: WorkerSettings
) -> None:
    """Serve one client until it leaves.

    `fd_memfd`: the sealed mapping, closed here once it is mapped. `connection`: the
    client's socket, whose end of file means that it left. `lifeline`: to the supervisor,
    open until the end. Raises ValueError for an unknown policy.
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
    )
    liveness = Liveness(connection, settings.client_pid)
    steering = ControlWorker(worker, lifeline, connection, settings.client_pid)
    steering.start()
    gc.freeze()  # what is alive now stays alive: no need to visit it again
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
