"""The interface of a policy."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from pump.model.view import Decision, View


class Policy(Protocol):
    """Defines what the worker's schedule may know and do (docs/schedule.md). A policy that is also
    Deciding chooses the transfers itself, without a schedule."""

    name: ClassVar[str]
    """The policy's name in `pump-run --policy`."""
    prefetches: ClassVar[bool]
    """False: blocks arrive only by faults, and misses are counted as caused by the policy."""
    predicts: ClassVar[bool]
    """True: the worker learns what the program repeats, and schedules operations before the program
    issues them."""


@runtime_checkable
class Deciding(Policy, Protocol):
    """A policy that chooses the transfers itself, by one method without I/O. The method accepts any
    consistent view."""

    def decide(self, view: View) -> Decision:
        """Returns the transfers to start now."""
        ...
