"""window and planned: the worker's schedule brings in what operations need, in the order they
need it, and evicts what is needed last (docs/schedule.md).

The rule is Belady's, bounded by what is known: never evict what is needed sooner than what
comes in. Room decides, not time, so no duration is estimated and none can be wrong.
"""

from __future__ import annotations

from typing import ClassVar


class Window:
    """Operations that the program has issued are known, after PUMP (ASP-DAC 2022): their blocks
    travel in the time between launch and execution."""

    name: ClassVar[str] = "window"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = False


class Planned:
    """Issued operations are known, and, once the learner has seen what the program repeats, also
    those that it will issue (`daemon/core/predict/learner.h`). After AutoSwap (next uses from the
    iteration), G10 (residency over the whole iteration decides what leaves, and when) and TURNIP
    (no fixed timeline: whatever is ready goes). Until then, and after a deviation, it is Window."""

    name: ClassVar[str] = "planned"
    prefetches: ClassVar[bool] = True
    predicts: ClassVar[bool] = True
