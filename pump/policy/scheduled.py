"""The policies of pump-run: demand, window and planned.

With window and planned, the schedule prefetches in order of need, and evicts the block needed last
(docs/schedule.md). The rule is Belady's, within the known operations: never evict a block that is
needed sooner than the arriving block. Free memory decides, not time, so no duration is estimated
and none can be wrong.
"""

from __future__ import annotations

from typing import ClassVar

from pump.policy.base import Policy


class Demand:
    """Lets blocks arrive by faults only: plain Unified Memory. Under an emulated budget, blocks
    above it leave in the driver's own order (daemon/core/schedule/schedule_excess.c)."""

    name: ClassVar[str] = "demand"
    prefetches: ClassVar[bool] = False
    predicts: ClassVar[bool] = False


class Window:
    """Knows the operations that the program has issued, after PUMP (ASP-DAC 2022). Their blocks
    move in the time between launch and execution."""

    name: ClassVar[str] = "window"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False


class Planned:
    """Knows issued operations and, once the learner has seen the program repeat itself, predicted
    ones (`daemon/core/predict/learner.h`). Before that, and after a deviation, it is Window. After
    AutoSwap (next uses from the iteration), G10 (residency over the whole iteration decides
    evictions and their times) and TURNIP (no fixed timeline: any ready transfer starts)."""

    name: ClassVar[str] = "planned"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = True


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Demand, Planned, Window)}


def by_name(name: str) -> Policy:
    """Returns a new policy. Raises ValueError that lists the known names."""
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown policy {name!r}; known policies: {known}") from None
