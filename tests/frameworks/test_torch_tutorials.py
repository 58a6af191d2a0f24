"""Runs the tutorials that need PyTorch exactly as written, block by block."""

from __future__ import annotations

from pathlib import Path

import pytest
import tutorials
from framework_runs import BIN

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize("name", ["start/pytorch.md", "guides/lora.md", "guides/inference.md"])
def test_each_command_ends_well_and_memory_is_too_small_for_the_program(
    name: str, frameworks: Path, tmp_path: Path
) -> None:
    # Pump is in another folder: the environment of the frameworks has no pump.
    said = tutorials.run(name, tmp_path, [frameworks / "bin", BIN])
    assert "x the budget" in said
