"""Made-up programs for the learner: sequences of operations, in the order in which it sees them.

Not a test. A step is (signature, accesses); a program of layers is written as a list of steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from learner_calls import CONFIRMED, DEVIATED, Access, Learner

BLOCK = 2 << 20


@dataclass
class Seen:
    """Counts how some operations were predicted. `offered`: Predicted with confidence and
    confirmed. `misled`: Predicted with confidence and wrong."""

    operations: int = 0
    confirmed: int = 0
    deviated: int = 0
    offered: int = 0
    misled: int = 0

    @property
    def right(self) -> float:
        """Returns the share of the operations that were predicted with confidence."""
        return self.offered / max(1, self.operations)


@dataclass
class Caller:
    """Feeds a learner and counts its predictions."""

    learner: Learner = field(default_factory=lambda: Learner(1 << 14))

    def play(self, keys: Iterable[int], *, stream: int = 0) -> Seen:
        """Feeds operations with these signatures; each accesses the start of a range of its own."""
        return self.see((key, [Access(key % 1000, 1, 0, BLOCK)], stream) for key in keys)

    def see(self, operations: Iterable[tuple[int, list[Access], int]]) -> Seen:
        """Feeds operations of (signature, accesses, stream)."""
        seen, learner = Seen(), self.learner
        for signature, accesses, stream in operations:
            offered = learner.ahead(1)
            result = learner.see(signature, accesses, stream=stream)
            seen.operations += 1
            seen.confirmed += result == CONFIRMED
            seen.deviated += result == DEVIATED
            seen.offered += offered and result == CONFIRMED
            seen.misled += offered and result == DEVIATED
        return seen


def training(batch: int = 0, layers: int = 6, steps: int = 1) -> list[int]:
    """Returns the signatures of a training step: forward, backward and optimizer. The optimizer's
    do not depend on the batch. `steps`: Micro-steps of gradient accumulation."""
    shift = 10_000 * batch
    forward = [shift + key for key in (11, 12, 13, 12, 14)]
    backward = [shift + key for key in (21, 22, 23, 22, 24, 24)]
    micro = [shift + 1, *forward * layers, shift + 2, *backward * layers, shift + 3]
    return [*micro * steps, *[31, 32] * layers, 33]


def evaluation(layers: int = 6) -> list[int]:
    """Returns the signatures of an evaluation step: a training step's forward layers."""
    return [5, *[11, 12, 13, 12, 14] * layers, 6]
