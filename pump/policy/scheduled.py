"""window and planned: the schedule prefetches in order of need, and evicts the block needed last.

The worker makes the schedule (docs/schedule.md). The rule is Belady's, within the known operations:
never evict a block that is needed sooner than the arriving block. Free memory decides, not time, so
no duration is estimated and none can be wrong.
"""

from __future__ import annotations

from typing import ClassVar


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
