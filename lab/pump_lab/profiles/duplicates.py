"""Whether read duplication pays on a GPU (docs/decisions/0051-read-duplication.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pump_lab.profiles import Value

DUPLEX_MOST: Final = 0.85
"""The share of its speed that the direction to the GPU keeps next to departures. Above this limit
departures slow arrivals too little."""
ADVICE_MOST_US: Final = 60.0
"""The longest time of an advice call on SPAN_BLOCKS blocks."""
SPAN_BLOCKS: Final = 4


def advice_us(values: Mapping[str, Value]) -> float:
    """Returns the time of an advice call on 8 MiB, from a profile's values."""
    call, block = (float(values[f"uvm.advise_{part}_us"]) for part in ("call", "block"))
    return float(values["uvm.host_factor"]) * (call + SPAN_BLOCKS * block)


def pay(values: Mapping[str, Value]) -> bool:
    """Returns whether departures without a copy save more than their advice costs."""
    return float(values["link.duplex_in"]) < DUPLEX_MOST and advice_us(values) <= ADVICE_MOST_US
