"""Whether read duplication pays on a card (docs/decisions/0051-read-duplication.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pump_lab.profiles import Value

DUPLEX_MOST: Final = 0.85
"""Share of its speed that the way to the GPU keeps next to departures: from there on departures
take too little from arrivals."""
ADVICE_MOST_US: Final = 60.0
"""Of a call of advice on SPAN_BLOCKS blocks."""
SPAN_BLOCKS: Final = 4


def advice_us(values: Mapping[str, Value]) -> float:
    """What a call of advice on 8 MiB takes, by a profile's values."""
    call, block = (float(values[f"uvm.advise_{part}_us"]) for part in ("call", "block"))
    return float(values["uvm.host_factor"]) * (call + SPAN_BLOCKS * block)


def pay(values: Mapping[str, Value]) -> bool:
    """Whether departures without a copy save more than their advice takes."""
    return float(values["link.duplex_in"]) < DUPLEX_MOST and advice_us(values) <= ADVICE_MOST_US
