"""Virtual memory management passes unchanged, counts against the budget, and is named at exit."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from jobs import pump_run
from places import PROGRAMS

MIB = 1 << 20


def run(memory: str, **env: str) -> tuple[dict[str, Any], str]:
    """Returns the program's output and pump's lines."""
    command = sys.executable, str(PROGRAMS / "vmm_job.py")
    done = pump_run(f"--virtual-set=memory={memory}", "--", *command, **env)
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("env", [{}, {"PUMP_DISABLE": "1"}])
def test_memory_management_passes_and_counts_until_handle_and_mapping_are_gone(
    env: dict[str, str],
) -> None:
    found, _ = run("64MiB", **env)
    assert found["without a context"]
    assert found["free"] == [0, 0, 16, 16, 0]
    assert found["same"] and found["granularity"] == 2 * MIB
    assert found["codes"] == {
        "too large": 2,
        "misaligned": 1,
        "mapped twice": 1,
        "no access": 1,
        "beyond what is mapped": 1,
        "cuMemFree": 1,
        "free of mapped addresses": 1,
        "released once more": 1,
        "half a mapping": 1,
    }
