"""How late pump's threads wake up: recorded distributions, from TOML.

`scripts/bench latency -- --record FOLDER` writes such files. A file includes the conditions of the
measurement; the simulator does not get them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from pump_lab import tables

FOLDER: Final = Path(__file__).parent
DELAY_MOST_NS: Final = 10**10


class WakeUpsError(ValueError):
    """One line that names the file and its fault."""


@dataclass(frozen=True)
class Delays:
    """Quantiles: the share shares[i] of all wake-ups is at most delays_ns[i] late. Both ascend,
    `shares` from 0 to 1. A single value is the delay of all wake-ups."""

    shares: tuple[float, ...]
    delays_ns: tuple[float, ...]


@dataclass(frozen=True)
class WakeUps:
    """Delays of the worker and of executors."""

    name: str
    worker: Delays
    executor: Delays


_Percents = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=16)]
_Delays = tuple[Annotated[float, msgspec.Meta(ge=0, le=DELAY_MOST_NS)], ...]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    percents: _Percents
    worker_ns: _Delays
    executor_ns: _Delays
    conditions: dict[str, Any] = {}


def names() -> list[str]:
    """Returns the names of the distributions that come with pump."""
    return tables.names(FOLDER)


def load(name: str) -> WakeUps:
    """Returns the distributions of that name, or from a file if `name` ends in .toml.

    Raises WakeUpsError, also if the file is missing or a value is invalid.
    """
    return validate(name, tables.load(FOLDER, "wake-ups", name, WakeUpsError))


def validate(source: str, table: dict[str, Any]) -> WakeUps:
    """Returns distributions from parsed TOML; `source` names it in errors. Raises WakeUpsError."""
    try:
        file = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        raise WakeUpsError(f"{source}: {error}") from None
    percents = file.percents
    if (percents[0], percents[-1]) != (0, 100) or not all(a < b for a, b in pairwise(percents)):
        raise WakeUpsError(f"{source}: percents must ascend from 0 to 100")
    for key in ("worker_ns", "executor_ns"):
        delays_ns = getattr(file, key)
        if len(delays_ns) != len(percents):
            raise WakeUpsError(
                f"{source}: {key} must have a value for each of the {len(percents)} "
                f"percents, not {len(delays_ns)}"
            )
        if not all(a <= b for a, b in pairwise(delays_ns)):
            raise WakeUpsError(f"{source}: {key} must not descend")
    shares = tuple(percent / 100 for percent in percents)
    return WakeUps(source, Delays(shares, file.worker_ns), Delays(shares, file.executor_ns))
