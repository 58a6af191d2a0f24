"""A client's time lost to memory: when it is computed, and with which facts about the client."""

from __future__ import annotations

from typing import Final

from pump.model.client import ClientModel
from pump.wire.abi import lib
from pump.wire.mapping import Mapping
from pumpd.worker.run_delay import Issuers

LOST_NS: Final = 100_000_000
"""Least time between two computations while busy."""


class TimeLost:
    """Computes the time lost, and writes it into the client's counters."""

    def __init__(self, model: ClientModel, mapping: Mapping, client_pid: int) -> None:
        """`client_pid`: 0 if the client is not visible."""
        self._model = model
        self._shm = mapping.shm
        self._issuers = Issuers(client_pid)
        self._stops = 0  # stops of the client that the model knows
        self.due_ns = self.may_ns = 0
        """When the next computation is due: while busy, and before a long sleep."""

    def publish(self) -> None:
        """Computes the time lost. This repeats the work for all operations that are not final, so
        it may take at most a twentieth of the time."""
        before_ns = lib.pump_core_now_ns()
        counters, shm = self._shm.worker_counters, self._shm
        self._follow_stops()
        self._issuers.refresh(shm.header.issuers)
        self._model.delayed(before_ns, self._issuers.waited_ns, self._issuers.share)
        neighbours = (device.neighbours for device in shm.devices[0 : lib.PUMP_MAX_DEVICES])
        lost = self._model.lost(max(neighbours))
        counters.lost_ns, counters.lost_of_ns = lost.likely_ns, lost.of_ns
        counters.lost_least_ns, counters.lost_most_ns = lost.least_ns, lost.most_ns
        counters.lost_delayed_ns = lost.delayed_ns
        now_ns = lib.pump_core_now_ns()
        self.may_ns = now_ns + 20 * (now_ns - before_ns)
        self.due_ns = max(self.may_ns, now_ns + LOST_NS)

    def _follow_stops(self) -> None:
        """Passes the times of the client's stops to the model; only the two newest of many."""
        header, known = self._shm.header, self._stops
        self._stops = header.stops
        for number in range(max(known, self._stops - 2) + 1, self._stops + 1):
            at = number % 2
            self._model.stopped(header.stop_began_ns[at], header.stop_ended_ns[at])
