"""Which stages there are, in which order, and how the time is shared among them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from acceptance.contract import Stage

ORDER = ("probe", "shim", "bits", "speed", "trace", "failures")
"""What teaches most about a card first: minutes may end early. What kills processes last."""

WITHOUT_PUMP = ("probe",)
"""Run where nothing can run under pump: it asks the card, not pump."""

CORE_TOTAL_S = 530.0
"""Of one call, the build and all starts included: below nine minutes."""
BUILD_LIMIT_S = 90.0
STAGE_START_S = 2.0
"""Beside its own time: start of its process, end of what it left."""


def load(name: str) -> Stage | None:
    """The stage's module, None where this checkout has none. Raises what importing it raises."""
    module = f"acceptance.stage_{name}"
    if importlib.util.find_spec(module) is None:
        return None
    stage: Stage = importlib.import_module(module)
    return stage


def shares(
    limits: Mapping[str, float], total_s: float, *, lengthen: bool = False
) -> dict[str, float]:
    """Seconds of each stage: its own limit, all cut alike if their sum exceeds the total. With
    `lengthen` also all lengthened alike, so that together they may take all of it."""
    room = max(0.0, total_s - STAGE_START_S * len(limits))
    wanted = sum(limits.values())
    factor = room / wanted if wanted else 1.0
    if not lengthen:
        factor = min(1.0, factor)
    return {name: limit * factor for name, limit in limits.items()}
