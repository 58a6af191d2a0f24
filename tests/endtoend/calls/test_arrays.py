"""Arrays are device memory: they count against the budget until they are destroyed."""

from __future__ import annotations

import json
import sys

import pytest
from jobs import pump_run
from places import PROGRAMS

FLAT_KIB = 16 << 10  # 1024 x 1024 x 16 bytes
SOLID_KIB = 8 << 10  # 256 x 256 x 64 x 2
LEVELS_KIB = (4 << 10) + (1 << 10) + (1 << 8)  # 1024 x 1024 x 4, halved twice


BLOCK_KIB = 2 << 10


@pytest.mark.parametrize(
    ("env", "rounding_kib"),
    [
        pytest.param({}, 1, id="counted by pump"),
        pytest.param({"PUMP_DISABLE": "1"}, BLOCK_KIB, id="taken from the card"),
    ],
)
def test_arrays_count_until_they_are_destroyed_or_their_context_is(
    env: dict[str, str], rounding_kib: int
) -> None:
    # The budget limits free memory; the GPU has more.
    run = ["--virtual-set", "memory=256MiB", "--budget", "128MiB"]
    done = pump_run(*run, "--", sys.executable, str(PROGRAMS / "arrays_job.py"), **env)
    found = json.loads(done.stdout)
    two, three = FLAT_KIB + SOLID_KIB, FLAT_KIB + SOLID_KIB + LEVELS_KIB
    wanted = [FLAT_KIB, two, three, three - SOLID_KIB, FLAT_KIB, 0]
    assert found["taken_kib"] == [-(-kib // rounding_kib) * rounding_kib for kib in wanted]
    assert found["codes"] == [400, 1], "a handle is destroyed once, and is no address"
