"""Verbs and options that pump offers if the laboratory is installed (read by pump/cli/lab.py)."""

from __future__ import annotations

from pump.cli.lab import Lab
from pump_lab.cli import virtual

LAB = Lab(
    verbs={"simulate": "pump_lab.cli.simulate"},
    options=virtual.add_options,
    prepare=virtual.prepare,
)
