"""The interface of a policy."""

from __future__ import annotations

from typing import ClassVar, Protocol

from pump.model.view import Decision, View


class Policy(Protocol):
    """A policy is one method without I/O; it may be called with any consistent view."""

    name: ClassVar[str]
    """As in `pump-run --policy`."""
    prefetches: ClassVar[bool]
    """False: misses are what the policy chose, not what it failed to prevent."""

    predicts: ClassVar[bool]
    """What the program repeats is learned, and its next operations stand in the view."""

    def decide(self, view: View) -> Decision:
        """Return the transfers to start now."""
        ...
