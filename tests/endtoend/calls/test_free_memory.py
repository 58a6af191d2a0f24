"""Queries of free memory and of pools return the same values as without pump."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import pump_run
from places import PROGRAMS

PROGRAM = (sys.executable, str(PROGRAMS / "free_memory_job.py"))
CARD = "--virtual-set=memory=1GiB"


def told(*words: str, options: tuple[str, ...] = (), **env: str) -> list[tuple[str, int]]:
    done = pump_run(*options, CARD, "--", *PROGRAM, *words, **env)
    return [tuple(one) for one in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def plain() -> Any:
    return told(PUMP_DISABLE="1")


@pytest.mark.parametrize("options", [(), ("--budget=200MiB",)], ids=["fits", "oversubscribed"])
def test_memory_that_is_freed_is_free_as_without_pump(
    plain: list[tuple[str, int]], options: tuple[str, ...], tmp_path: Path
) -> None:
    assert len(plain) > 30
    found = told(options=options, PUMP_SUMMARY=str(tmp_path / "figures"))
    most = 200 if options else 1024
    expected = [(name, mib if "_MEM_" in name else min(mib, most)) for name, mib in plain]
    assert found == expected
    figures = json.loads((tmp_path / "figures").read_text())
    assert figures["shim"]["converted_bytes_peak"] >= 384 << 20, "pump served it"


def test_a_pool_with_a_threshold_keeps_as_much_and_no_more() -> None:
    """Checks CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as CUDA's driver API documents it. The virtual
    driver's own pool cannot be the reference, because it keeps nothing."""
    found = told("threshold")
    assert [mib for name, mib in found if name.endswith("freed")] == [64, 200]
    assert [mib for name, mib in found if name.endswith("RESERVED_MEM_CURRENT")] == [64, 200]
    assert found[-2:] == [("trimmed to 32", 32), ("without a threshold", 0)]
