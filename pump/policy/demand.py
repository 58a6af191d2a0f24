"""demand: no prefetch, the driver's own paging.

Without an emulated budget this is plain naive Unified Memory. With one, eviction in the
driver's own order (last migrated first in, first out: kernel-open/nvidia-uvm,
uvm_pmm_gpu.c) is carried out by the executors, and figures carry the label "emulated".
"""

from __future__ import annotations

from typing import ClassVar

from pump.model.view import NOTHING, Decision, View


class Demand:
    """Evicts down to an emulated budget, and does nothing else."""

    name: ClassVar[str] = "demand"
    prefetches: ClassVar[bool] = False
    predicts: ClassVar[bool] = False

    def decide(self, view: View) -> Decision:
        """Return evictions for what faults brought in above the budget."""
        excess = view.resident + view.arriving - view.budget
        if not view.emulated or excess <= 0:
            return NOTHING
        return Decision(to_host=view.oldest[: min(excess, view.to_host_credit)])
