"""The interface of a policy."""

from __future__ import annotations

from typing import ClassVar, Protocol


class Policy(Protocol):
    """Defines what the worker's schedule may know and do (docs/schedule.md)."""

    name: ClassVar[str]
    """The policy's name in `pump-run --policy`."""
    prefetches: ClassVar[bool]
    """False: blocks arrive only by faults, and misses are counted as caused by the policy."""
    predicts: ClassVar[bool]
    """True: the worker learns what the program repeats, and schedules operations before the program
    issues them."""
