"""demand: no prefetch, the driver's own paging.

Without an emulated budget this is plain Unified Memory. With one, blocks above it leave in the
driver's own order (daemon/core/schedule/schedule_excess.c), and results carry the label "emulated".
"""

from __future__ import annotations

from typing import ClassVar


class Demand:
    """Evicts down to an emulated budget; blocks arrive by faults."""

    name: ClassVar[str] = "demand"
    prefetches: ClassVar[bool] = False
    predicts: ClassVar[bool] = False
