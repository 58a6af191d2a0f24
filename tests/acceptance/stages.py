"""Defines the stages, their order, and how they share the time."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from acceptance.contract import Stage

ORDER = ("probe", "shim", "bits", "speed", "trace", "failures")
"""The most informative stage is first, since time may run out; the one that kills is last."""

WITHOUT_PUMP = ("probe",)
"""Stages that run even if nothing can run under pump: the probe asks the GPU, not pump."""

CORE_TOTAL_S = 530.0
"""Time of one call including build and starts: below nine minutes."""
BUILD_LIMIT_S = 90.0
STAGE_START_S = 2.0
"""Overhead of a stage in addition to its own time: process start and cleanup."""


def load(name: str) -> Stage | None:
    """Returns the stage's module; None if this checkout has none. Raises what its import raises."""
    module = f"acceptance.stage_{name}"
    if importlib.util.find_spec(module) is None:
        return None
    stage: Stage = importlib.import_module(module)
    return stage


def shares(
    limits: Mapping[str, float], total_s: float, *, lengthen: bool = False
) -> dict[str, float]:
    """Returns the seconds for each stage. If the sum of limits exceeds the total, all are shortened
    by the same factor. With `lengthen`, all may also grow by the same factor to use the total."""
    room = max(0.0, total_s - STAGE_START_S * len(limits))
    wanted = sum(limits.values())
    factor = room / wanted if wanted else 1.0
    if not lengthen:
        factor = min(1.0, factor)
    return {name: limit * factor for name, limit in limits.items()}
