"""What pump offers where the laboratory is installed (pump/cli/lab.py asks)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pump.cli.lab import Virtual
from pump.config.job import JobConfig
from pump_lab.cli import virtual


class _Lab(NamedTuple):
    verbs: Mapping[str, str]
    options: Callable[..., None]
    prepare: Callable[[JobConfig], Virtual]


LAB = _Lab(
    verbs={"simulate": "pump_lab.cli.simulate"},
    options=virtual.add_options,
    prepare=virtual.prepare,
)
