"""What the jobs on a GPU can share: by NVML's word where there is one, else by theirs. No I/O.

DESIGN
  NVML knows for certain what a GPU has and how much of it is used, by everything together.
  What jobs do not account for belongs to programs without pump, or to jobs that say less than
  they hold: it cannot be given out. Reports come later than what they tell of; so a sample is
  compared with the most and with the least that jobs reported between it and the next one,
  and what is believed is moved into what two samples leave possible. There it sinks slowly, so
  that a job whose reports go up and down gains nothing.

  Of a GPU that is full to the brim the difference says too little: jobs do not see at once
  what the driver has evicted to make room for a program, and fetch it back from each other. But
  leases leave 3 % of a GPU free. So one that is full has more taken from it than is known, and
  what is believed grows, in steps that double, until it is full no more.

  Without NVML there is what jobs found free when they began. A job that came late found less,
  by what the others had: with that added, all honest ones say about the same. One user has
  one voice, and the upper median counts: of three users one cannot move it beyond what another
  says, and of two the higher one is believed, for a job that has begun first has found most.
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump.policy.leases import GRAIN_SHARE

FULL_SHARE = 100
"""A GPU is full when less than one part in so many is free."""
STEP_SHARE = 8
"""A full GPU has at least one part in so many taken from it that is not known of."""
SINK_SHARE = 8
"""What is believed sinks by one part in so many of what may be too much, each sample."""
EARLIER = -1
"""The voice of the jobs that were there before the service."""
VOICES_MOST = 64
"""Users whose word on a GPU is remembered; the first to have gone is forgotten first."""


class Gpu:
    """total_bytes: the card's. first: the user whose job named it first. unaccounted_bytes: in
    use, and no job says so; None: not known."""

    def __init__(self, total_bytes: int, first: int = 0) -> None:
        self.total_bytes = total_bytes
        self.first = first
        self.unaccounted_bytes: int | None = None
        self._found: dict[int, int] = {}
        self._used: int | None = None
        self._most: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._possible: tuple[int, int] | None = None
        """Of the last sample: what may be unaccounted for, at least and at most."""
        self._step = 0

    def found(self, user: int, bytes_: int) -> None:
        """A job of a user could have had that much, with what the others had then."""
        most = max(self._found.pop(user, 0), min(bytes_, without_reserve(self.total_bytes)))
        self._found[user] = most
        if len(self._found) > VOICES_MOST:
            del self._found[next(iter(self._found))]

    def reported(self, user: int, bytes_: int) -> None:
        """The jobs of a user have said what they hold together, as far as they are believed:
        one that joins again and again is not counted twice."""
        self._most[user] = max(self._most.get(user, 0), bytes_)
        self._least[user] = min(self._least.get(user, 0), bytes_)

    def measured(self, used_bytes: int, held: Mapping[int, int]) -> bool:
        """NVML has said what is used. held: by user, as last reported. Returns whether what
        jobs can share has changed."""
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
        """What jobs can share, but for what shims leave free for the card itself."""
        if self.unaccounted_bytes is not None:
            return without_reserve(max(0, self.total_bytes - self.unaccounted_bytes))
        said = sorted(self._found.values())
        return said[len(said) // 2] if said else 0

    def shared_bytes(self, reserve: str) -> int:
        """What can be given out, in whole blocks, when so much shall never be."""
        if reserve.endswith("%"):
            kept = self.total_bytes * int(reserve[:-1]) // 100
        else:
            kept = int(
                float(reserve[:-1]) * self.total_bytes if reserve[-1] == "x" else int(reserve)
            )
        most = max(0, self.total_bytes - kept)
        return min(self.usable_bytes, most) // BLOCK_BYTES * BLOCK_BYTES
