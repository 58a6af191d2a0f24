"""The interface of a policy."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from pump.model.view import Decision, View


class Policy(Protocol):
    """What is known when the next transfers are chosen. They are those of the worker's schedule
    (docs/schedule.md), but for a policy that decides itself."""

    name: ClassVar[str]
    """As in `pump-run --policy`."""
    prefetches: ClassVar[bool]
    """False: misses are what the policy chose, not what it failed to prevent."""
    predicts: ClassVar[bool]
    """What the program repeats is learned, and its next operations are known before it issues
    them."""


@runtime_checkable
class Deciding(Policy, Protocol):
    """A policy that says itself what moves now: one method without I/O, which may be called with
    any consistent view."""

    def decide(self, view: View) -> Decision:
        """Return the transfers to start now."""
        ...
