"""The memory of a GPU that its jobs can share: by NVML, else by the jobs' reports. No I/O.

DESIGN
  NVML measures a GPU's total memory, and the memory used by all processes together. Used bytes
  that no job reports cannot be granted: they belong to programs without pump, or to jobs that
  report less than they hold. Reports arrive after the changes that they describe. Therefore, a
  sample is compared with the maximum and the minimum of the reports between it and the next
  sample. The estimate of unreported bytes is moved into the interval that two samples permit.
  Within this interval the estimate falls slowly, so that a job gains nothing from reports that
  rise and fall.

  On a full GPU the difference is too small. The driver evicts blocks of jobs for a program; the
  jobs do not notice this immediately, and fetch the blocks back from each other. But leases leave
  3 % of a GPU free. So a full GPU has more unreported bytes than the estimate, which then grows in
  steps that double, until the GPU is not full.

  Without NVML the jobs report the free memory at their start. A later job found less, because
  others held memory. With that memory added, all honest jobs report about the same amount. Each
  user counts once, and the upper median is used. Among three users, one user cannot move it beyond
  another's report. With two reports the higher one counts, because the first job found the most.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.config.values import amount_bytes
from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump.policy.leases import GRAIN_SHARE

FULL_SHARE = 100
"""A GPU is full when less than 1/FULL_SHARE of its memory is free."""
STEP_SHARE = 8
"""The estimate's first step on a full GPU is 1/STEP_SHARE of the GPU's memory."""
SINK_SHARE = 8
"""Each sample lowers the estimate by 1/SINK_SHARE of its possible excess."""
EARLIER = -1
"""Stands in for a user: all jobs that ran before the service started."""
USERS_MOST = 64
"""Most users with a remembered report on a GPU; the least recent one is dropped first."""


class Gpu:
    """One GPU. `total_bytes`: its memory. `first`: user of the first job that reported it.
    `unaccounted_bytes`: estimate of used bytes that no job reports; None: not known."""

    def __init__(self, total_bytes: int, first: int = 0) -> None:
        self.total_bytes = total_bytes
        self.first = first
        self.unaccounted_bytes: int | None = None
        self._found: dict[int, int] = {}
        self._used: int | None = None
        self._most: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._possible: tuple[int, int] | None = None
        """Least and most unaccounted bytes by the last sample."""
        self._step = 0

    def found(self, user: int, bytes_: int) -> None:
        """Records that a user's job found `bytes_` free at its start, including memory that others
        held then."""
        most = max(self._found.pop(user, 0), min(bytes_, without_reserve(self.total_bytes)))
        self._found[user] = most
        if len(self._found) > USERS_MOST:
            del self._found[next(iter(self._found))]

    def reported(self, user: int, bytes_: int) -> None:
        """Records that a user's jobs together report to hold `bytes_`. With sums by user, a job
        that joins repeatedly does not count twice."""
        self._most[user] = max(self._most.get(user, 0), bytes_)
        self._least[user] = min(self._least.get(user, 0), bytes_)

    def measured(self, used_bytes: int, held: Mapping[int, int]) -> bool:
        """Takes an NVML sample. `held`: bytes by user, as last reported. Returns whether the bytes
        that jobs can share have changed."""
        known, before, self._used = self.unaccounted_bytes, self._used, used_bytes
        most, least = sum(self._most.values()), sum(self._least.values())
        self._most, self._least = dict(held), dict(held)
        if held and self._is_full(used_bytes):
            self._step = 2 * self._step or self.total_bytes // STEP_SHARE
            self.unaccounted_bytes = min(self.total_bytes, (known or 0) + self._step)
            self._possible = None
        elif before is not None and not self._is_full(before):
            self._step = 0
            possible = max(0, before - most), max(0, before - least)
            last, self._possible = self._possible or possible, possible
            low, high = min(last[0], possible[0]), max(last[1], possible[1])
            sure = low if known is None else min(high, max(low, known))
            sure -= (sure - low) // SINK_SHARE
            if known is None or abs(sure - known) > self.total_bytes // GRAIN_SHARE:
                self.unaccounted_bytes = sure
        return self.unaccounted_bytes != known

    def _is_full(self, used_bytes: int) -> bool:
        return self.total_bytes - used_bytes < self.total_bytes // FULL_SHARE

    @property
    def usable_bytes(self) -> int:
        """Returns the bytes that jobs can share, less the reserve that shims leave free."""
        if self.unaccounted_bytes is not None:
            return without_reserve(max(0, self.total_bytes - self.unaccounted_bytes))
        found = sorted(self._found.values())
        return found[len(found) // 2] if found else 0

    def shared_bytes(self, reserve: str) -> int:
        """Returns the bytes that can be granted, in whole blocks. `reserve`: memory that is never
        granted; bytes, "3%" or "0.1x"."""
        most = max(0, self.total_bytes - amount_bytes(reserve, self.total_bytes))
        return min(self.usable_bytes, most) // BLOCK_BYTES * BLOCK_BYTES
