"""demand: no prefetch, the driver's own paging.

Without an emulated budget this is plain Unified Memory. With one, the executors evict in the
driver's own order: the block that migrated longest ago first (kernel-open/nvidia-uvm,
uvm_pmm_gpu.c). Results then carry the label "emulated".
"""

from __future__ import annotations

from typing import ClassVar

from pump.model.view import NOTHING, Decision, View


class Demand:
    """Evicts down to an emulated budget, and never prefetches."""

    name: ClassVar[str] = "demand"
    prefetches: ClassVar[bool] = False
    predicts: ClassVar[bool] = False

    def decide(self, view: View) -> Decision:
        """Returns evictions for the blocks that faults brought in above the budget."""
        excess = view.resident + view.arriving - view.budget
        if not view.emulated or excess <= 0:
            return NOTHING
        return Decision(to_host=view.oldest[: min(excess, view.to_host_credit)])
