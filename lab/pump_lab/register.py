"""What pump offers where the laboratory is installed (pump/cli/lab.py asks)."""

from __future__ import annotations

from pump.cli.lab import Lab
from pump_lab.cli import virtual

LAB = Lab(
    verbs={"simulate": "pump_lab.cli.simulate"},
    options=virtual.add_options,
    prepare=virtual.prepare,
)
