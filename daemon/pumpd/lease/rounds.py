"""When a job's rounds run, and which launches its clients hold. No I/O.

DESIGN
  Rounds run with every beat, after every grant, and every SETTLE_S while resident bytes exceed a
  lease.

  While the job waits for its turn, its clients hold launches. This request is repeated every
  HOLD_ROUND_S and expires after HOLD_MS, so the job resumes if any process in between ends or
  stops. Each of these rounds sends a beat, because the job also resumes when the service is silent.
  After HELD_MOST_S the job resumes in any case, until the service has given it a turn. While the
  job yields, equally frequent requests make its clients put gates before launches
  (shim/progress/gates.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pump.wire import control
from pump.wire.control import ClientState
from pumpd.lease.job_usage import by_gpu

if TYPE_CHECKING:
    from pump.wire import service as wire

BEAT_S = 2.0
SETTLE_S = 0.05
SETTLE_MOST_S = 10.0
"""Time after a grant in which rounds may run every SETTLE_S; later they run only with beats."""
YOUNG_S = 10.0
YOUNG_ROUND_S = 0.05
"""Time between rounds in the first YOUNG_S of a client, while a client has no device or the job's
demand grows. After any other round the time doubles."""
HOLD_ROUND_S = 1.0
HOLD_MS = 5000
"""Longer than ADOPT_S of control_worker.py, because a pending budget delays the next request."""
HELD_MOST_S = 240.0
"""Enough for eight jobs with turns of 30 s."""


class Rounds:
    """The time of the next round. `asking`: a round waits for workers; `again`: another one follows
    at once."""

    def __init__(self) -> None:
        self.beat_s = BEAT_S
        self.due = self.settle_until = self._young_until = 0.0
        self.asking = self.again = False
        self._young_pause_s = YOUNG_ROUND_S

    def client_came(self, now: float) -> None:
        """Schedules frequent rounds, because an admitted client will soon have a device."""
        self._young_until = now + YOUNG_S
        self.due = min(self.due, now + YOUNG_ROUND_S)

    def schedule(self, now: float, grows: bool, unsettled: bool, held: bool) -> None:
        """Schedules the next round. `grows`: whether the job wants more than before, or soon may.
        `unsettled`: whether it exceeds its leases. `held`: whether launches wait or yield."""
        pause = self.beat_s
        if now < self._young_until:
            again = YOUNG_ROUND_S if grows else 2 * self._young_pause_s
            self._young_pause_s = pause = min(pause, again)
        if unsettled and now < self.settle_until:
            pause = SETTLE_S
        if held:
            pause = min(pause, HOLD_ROUND_S)
        self.due = now if self.again else now + pause


class Holds:
    """The GPUs on which the job's launches are held, or yield to those of other jobs."""

    def __init__(self) -> None:
        self._waits: dict[str, float] = {}
        """GPUs on which the job waits for its turn, and the start of each wait."""
        self._yields: set[str] = set()
        """GPUs that the job leaves to others while its launches wait for memory."""
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}
        """hold_ms and yield_ms of the last requests, by client and device."""
        self._due = 0.0
        """When these requests are repeated."""

    def __bool__(self) -> bool:
        return bool(self._waits or self._yields)

    def take(self, gpus: Sequence[wire.GpuGrant], now: float) -> None:
        """Adopts the GPUs of a grant; none ends all waits."""
        self._waits = {one.gpu: self._waits.get(one.gpu, now) for one in gpus if one.waits}
        self._yields = {one.gpu for one in gpus if one.yields}

    def requests(self, clients: Sequence[ClientState], now: float) -> list[control.Request]:
        """Returns the requests that make these clients hold launches on GPUs where the job waits,
        and yield where the job yields; they end both for all other clients and GPUs."""
        wanted = {
            (one.pid, one.device.index): asked
            for gpu, held in by_gpu(clients).items()
            if (asked := self._of(gpu, now)) != (0, 0)
            for one in held
        }
        if wanted == self._asked and now < self._due:
            return []
        self._due = now + HOLD_ROUND_S
        before, self._asked = self._asked, wanted
        return [
            control.Request(control.SET, pid, device=device, hold_ms=hold_ms, yield_ms=yield_ms)
            for pid, device in sorted(wanted.keys() | before.keys())
            for hold_ms, yield_ms in (wanted.get((pid, device), (0, 0)),)
        ]

    def _of(self, gpu: str, now: float) -> tuple[int, int]:
        """Returns hold_ms and yield_ms for that GPU."""
        holds = gpu in self._waits and now <= self._waits[gpu] + HELD_MOST_S
        return HOLD_MS * holds, HOLD_MS * (gpu in self._yields)
