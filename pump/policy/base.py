"""The interface of a policy."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from pump.model.view import Decision, View


class Policy(Protocol):
    """What the worker's schedule may know and do (docs/schedule.md). Under a policy that is also
    Deciding there is no schedule: the policy chooses the transfers."""

    name: ClassVar[str]
    """As in `pump-run --policy`."""
    prefetches: ClassVar[bool]
    """False: blocks come by faults alone, so misses count as the policy's."""
    predicts: ClassVar[bool]
    """The worker learns what the program repeats, and schedules operations before the program
    issues them."""


@runtime_checkable
class Deciding(Policy, Protocol):
    """A policy that chooses the transfers itself: one method without I/O, which may be called
    with any consistent view."""

    def decide(self, view: View) -> Decision:
        """Return the transfers to start now."""
        ...
