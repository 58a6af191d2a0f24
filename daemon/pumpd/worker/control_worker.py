"""Serves requests to a worker: to set the policy or a budget, and to read the client's numbers.

DESIGN
  Requests arrive over the lifeline (worker_spawner.py), in frames of pump/wire/control.py. A thread
  waits for them, so that ticks need not; it only queues them and wakes the worker. The worker's own
  thread does all other work, between two ticks.

  The shim adopts a budget: the worker writes the budget into the mapping, sends the client a
  byte, and answers after the shim has adopted it. Until then the next request waits. After ADOPT_S
  without adoption the worker restores the previously requested budget, and the request fails. The
  policy is switched last, so that a failed request does not switch it.

  A budget for all devices also applies to devices that the client starts to use later, until the
  worker ends. Budgets that the shim has adopted stay after that.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pump.config.checks import POLICIES
from pump.config.values import BLOCK_BYTES, BadValueError, choose
from pump.model.client import ABSENT, ARRIVING, DISCARDING, HOST, LEAVING, MAYBE_EVICTED, RESIDENT
from pump.policy import by_name
from pump.wire import control as wire
from pump.wire.abi import ffi, lib
from pumpd.common import threads

if TYPE_CHECKING:
    from pumpd.worker.worker import Worker

log = logging.getLogger("pumpd.worker")

ADOPT_S: Final = 3.5
WAITING_MOST: Final = 32
"""Most waiting requests; further requests are not answered."""

LEAST_BYTES: Final = lib.PUMP_BUDGET_BLOCKS_LEAST * BLOCK_BYTES

_COUNTER_STRUCTS: Final = ("pump_shim_counters", "pump_worker_counters")
_COUNTERS: Final = {
    struct: [
        name for name, _ in ffi.typeof(f"struct {struct}").fields if not name.startswith("reserved")
    ]
    for struct in _COUNTER_STRUCTS
}


class _RefusedError(Exception):
    """The reason why a request is refused, in one line."""


@dataclass
class _Pending:
    """A request to set budgets that the shim has not adopted yet."""

    number: int
    request: wire.Request
    before: dict[int, int]
    """The previously requested budget, by device."""
    awaited: list[int]
    """Devices in use, on which the shim must adopt the budget."""
    deadline_ns: int


def _deadline_ns(ms: int) -> int:
    """Returns the time `ms` milliseconds from now, as the client reads it; 0 for 0."""
    return int(lib.pump_core_now_ns()) + ms * 1_000_000 if ms else 0


class ControlWorker:
    """Carries out requests for one worker. `step` is called by the worker's thread."""

    def __init__(
        self,
        worker: Worker,
        lifeline: socket.socket,
        connection: socket.socket,
        client_pid: int,
    ) -> None:
        self._worker = worker
        self._shm = worker.mapping.shm
        self._lifeline = lifeline
        self._connection = connection
        self._pid = client_pid
        self._arrived: deque[bytes] = deque()
        self._pending: _Pending | None = None

    def start(self) -> None:
        """Starts to listen, in a thread that ends with the supervisor or the process. If no thread
        can be started, the client is still served, but requests are not answered."""
        try:
            threads.start(self._listen)
        except OSError as error:
            log.warning(
                "client %d: cannot start a thread, so its policy and budget stay fixed: %s",
                self._pid,
                error.strerror,
            )

    def _listen(self) -> None:
        while True:
            try:
                data = self._lifeline.recv(wire.NUMBER.size + wire.REQUEST_BYTES + 1)
            except OSError:
                return
            if not data:
                return
            if len(self._arrived) < WAITING_MOST:
                self._arrived.append(data)
                lib.pump_core_knock(self._shm)

    def step(self) -> None:
        """Processes requests as far as possible now; cheap if there are none."""
        if self._pending is not None:
            self._finish_if_adopted(self._pending)
        while self._arrived and self._pending is None:
            self._handle(self._arrived.popleft())

    # ---- requests ----

    def _handle(self, data: bytes) -> None:
        try:
            number, frame = wire.split(data)
        except wire.FrameError:
            return  # without a number, no answer can reach its question
        try:
            request = wire.decode_request(frame)
            self._worker.read_devices()
            if request.ask == wire.SET:
                self._start_change(number, request)
            else:
                self._answer(number, self.state())
        except (wire.FrameError, _RefusedError) as error:
            self._answer(number, wire.failed(self._pid, str(error)))

    def _start_change(self, number: int, request: wire.Request) -> None:
        if request.policy is not None:
            try:
                choose(request.policy, POLICIES, "policy")
            except BadValueError as error:
                raise _RefusedError(str(error)) from None
        for index in self._devices_of(request):
            device = self._shm.devices[index]
            if request.hold_ms is not None:
                device.held_until_ns = _deadline_ns(request.hold_ms)
            if request.yield_ms is not None:
                device.yield_until_ns = _deadline_ns(request.yield_ms)
        if request.hold_ms is not None or request.yield_ms is not None:
            self._wake_client()
        if request.budget_bytes is None and request.policy is None:
            self._answer(number, self.state())
            return
        before: dict[int, int] = {}
        awaited: list[int] = []
        if request.budget_bytes is not None:
            devices = self._devices_of(request)
            awaited = [index for index in devices if index in self._worker.model.devices]
            self._check_budget(request.budget_bytes, awaited)
            before = {index: self._shm.devices[index].asked_budget_bytes for index in devices}
            for index in devices:
                self._shm.devices[index].asked_budget_bytes = request.budget_bytes
        deadline_ns = lib.pump_core_now_ns() + int(ADOPT_S * 1e9)
        self._pending = _Pending(number, request, before, awaited, deadline_ns)
        if awaited:
            self._wake_client()
        self._finish_if_adopted(self._pending)

    def _devices_of(self, request: wire.Request) -> list[int]:
        """Returns the devices that the request concerns, including devices not in use yet."""
        if request.device is None:
            return list(range(lib.PUMP_MAX_DEVICES))
        there = min(self._shm.header.device_count, lib.PUMP_MAX_DEVICES)
        if request.device >= there:
            raise _RefusedError(f"no device {request.device}: the client has {there}")
        return [request.device]

    def _check_budget(self, budget_bytes: int, devices: list[int]) -> None:
        if budget_bytes < LEAST_BYTES:
            raise _RefusedError(
                f"a budget of {budget_bytes} bytes is too small; the minimum is {LEAST_BYTES}"
            )
        for index in devices:
            total_bytes = self._shm.devices[index].total_bytes
            if budget_bytes > total_bytes:
                raise _RefusedError(
                    f"a budget of {budget_bytes} bytes exceeds the {total_bytes} bytes of "
                    f"device {index}"
                )

    def _wake_client(self) -> None:
        """Wakes the shim's link thread, which sleeps on this socket. A full socket has woken it."""
        try:
            self._connection.send(b"b", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass
        except OSError as error:
            log.info("cannot wake the client: %s", error)

    def _finish_if_adopted(self, pending: _Pending) -> None:
        asked = pending.request.budget_bytes
        devices = self._shm.devices
        if any(devices[index].adopted_budget_bytes != asked for index in pending.awaited):
            if lib.pump_core_now_ns() >= pending.deadline_ns:
                self._restore_budgets(pending)
            return
        self._pending = None
        worker = self._worker
        worker.read_devices()
        policy = pending.request.policy
        worker.switch(by_name(policy) if policy is not None else worker.policy)
        log.info("switched: %s", pending.request)
        self._answer(pending.number, self.state())

    def _restore_budgets(self, pending: _Pending) -> None:
        self._pending = None
        for index, asked in pending.before.items():
            self._shm.devices[index].asked_budget_bytes = asked
        reason = f"the process did not apply the budget within {ADOPT_S:.0f} s"
        self._answer(pending.number, wire.failed(self._pid, reason))

    # ---- answers ----

    def _answer(self, number: int, client: wire.ClientState) -> None:
        try:
            data = wire.numbered(number, wire.encode_client(client))
            self._lifeline.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (OSError, wire.FrameError) as error:
            log.info("cannot answer: %s", error)

    def state(self) -> wire.ClientState:
        """Returns all current numbers of the client."""
        worker = self._worker
        worker.publish()
        found = []
        for struct, counters in zip(
            _COUNTER_STRUCTS, (self._shm.shim_counters, worker.counters), strict=True
        ):
            found.append({name: int(getattr(counters, name)) for name in _COUNTERS[struct]})
        totals = worker.model.totals()
        found[1] |= {"window_depth": totals.window_depth, "in_flight": totals.in_flight}
        devices = tuple(self._device_state(index) for index in sorted(worker.model.devices))
        return wire.ClientState(self._pid, None, worker.policy.name, devices, *found)

    def _device_state(self, index: int) -> wire.DeviceState:
        record = self._shm.devices[index]
        model = self._worker.model
        tally = model.tally(index)
        there = [int(count) * BLOCK_BYTES for count in model.counts(index)]
        return wire.DeviceState(
            index=index,
            uuid=bytes(record.uuid).hex(),
            total_bytes=record.total_bytes,
            free_at_start_bytes=record.free_at_start_bytes,
            budget_bytes=record.budget_bytes,
            emulated=bool(record.emulated),
            active=record.device_state == lib.PUMP_DEVICE_ACTIVE,
            allocated_bytes=record.allocated_bytes,
            plain_bytes=record.plain_bytes,
            resident_bytes=there[RESIDENT] + there[MAYBE_EVICTED],
            maybe_evicted_bytes=there[MAYBE_EVICTED],
            arriving_bytes=there[ARRIVING],
            leaving_bytes=there[LEAVING] + there[DISCARDING],
            host_bytes=there[HOST] + there[ABSENT],
            overshoot_bytes=tally.overshoot * BLOCK_BYTES,
            blocks_used=tally.blocks,
            blocks_hit=tally.hit,
            blocks_late=tally.late,
            blocks_unseen=tally.unseen,
            blocks_no_room=tally.no_room,
            transfers_refused=tally.refused,
            held_threads=record.held_threads,
            least_bytes=tally.least * BLOCK_BYTES,
        )
