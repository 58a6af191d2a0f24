"""Pump's extents against the memory that PyTorch's kernels touch on the virtual GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_rows import bench as rows_of
from framework_runs import PROGRAMS

pytestmark = pytest.mark.frameworks

LEAST_SHARE = 0.995
"""Least covered share: of touched block uses by pump's extents, and vice versa."""


@pytest.mark.parametrize("program", ["amp", "mlp foreach", "mlp fused", "checkpointing"])
def test_kernels_touch_what_pump_tells(program: str, frameworks: Path, tmp_path: Path) -> None:
    name, *words = program.split()
    command = [str(frameworks / "bin" / "python"), str(PROGRAMS / f"{name}.py"), *words]
    rows = rows_of(tmp_path, "extents", "--", "--program", *command)["extents.touched"]
    (together,) = [row for row in rows if row["case"] == "all kernels"]
    assert together["launches"] > 100
    assert together["missed"] <= (1 - LEAST_SHARE) * together["value"], rows
    assert together["idle"] <= (1 - LEAST_SHARE) * together["told"], rows
