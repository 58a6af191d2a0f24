"""Tests of other projects that pass without pump also pass under pump.

Only `scripts/test tests/thirdparty` runs them. With PUMP_THIRDPARTY_RESULTS, a file of JSON lines,
each suite's results replace its line in the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from thirdparty_runs import HERE, WAYS, Outcome, Suite, run, suites

pytestmark = [pytest.mark.long, pytest.mark.thirdparty]


@pytest.fixture(scope="session")
def environment() -> Path:
    if not (made := os.environ.get("PUMP_THIRDPARTY")):
        pytest.skip("chosen by name: scripts/test tests/thirdparty")
    return Path(made)


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.name)
def test_what_passes_plain_passes_under_pump(
    suite: Suite, environment: Path, tmp_path: Path
) -> None:
    found = {way: run(suite, way, environment, tmp_path / way) for way in WAYS}
    plain = found.pop("plain")
    assert len(plain.passed) >= suite.floor
    keep(suite, {"plain": plain, **found})
    for way, pumped in found.items():
        assert sorted(plain.passed - pumped.passed) == [], way
        assert pumped.converted_bytes > 0, f"{way}: pump served nothing"
        assert pumped.violations <= plain.violations, way
        # With another allocator memory has other bytes, and uncomputed values steer the programs.
        assert way == "tensor" or pumped.kernels == plain.kernels, way


def keep(suite: Suite, found: dict[str, Outcome]) -> None:
    if not (file := os.environ.get("PUMP_THIRDPARTY_RESULTS")):
        return
    path = HERE.parents[1] / file
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = {row["suite"]: row for row in rows}
    kept[suite.name] = {
        "suite": suite.name,
        "of": suite.of,
        "passed": {way: len(outcome.passed) for way, outcome in found.items()},
        "failed_plain": len(found["plain"].failed),
        "rest": suite.rest,
    }
    names = [one.name for one in suites()]
    lines = [json.dumps(kept[name]) for name in names if name in kept]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
