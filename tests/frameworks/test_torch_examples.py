"""The programs of examples/pytorch: inference, LoRA and a mixture of experts."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_rows import bench as rows_of
from framework_runs import HERE, Bench, check_counts, check_same_launches, smaller
from workloads.formulas import OTHERS

pytestmark = pytest.mark.frameworks

EXAMPLES = HERE.parents[1] / "examples" / "pytorch"
SMALL = (
    *("--layers=4", "--width=512", "--heads=4", "--inner=1024", "--vocabulary=512"),
    *("--steps=3", "--json=-"),
)


@pytest.mark.parametrize("program", ["inference", "lora", "experts"])
def test_the_same_launches_reach_the_gpu_and_pump_counts_all_of_them(
    program: str, bench: Bench
) -> None:
    command = (bench.python, EXAMPLES / f"{program}.py", *SMALL)
    plain = bench.run(*command, pump=False)
    # The program does not touch all reserved memory; a third is less than each program needs.
    pumped = bench.run(*command, pump=True, memory_bytes=smaller(plain) // 2)
    check_same_launches(plain, pumped)
    check_counts(pumped)
    (report,) = pumped.reports.values()
    whole, steps = report["counters"], report["profiled"]
    assert 0 < steps["kernels"] < whole["kernels"]
    arriving = ("h2d_demand_bytes", "h2d_prefetch_bytes")
    assert sum(steps[key] for key in arriving) > 0, "they do not fit"


def test_they_compute_what_they_say_on_the_cpu(bench: Bench) -> None:
    found = bench.program("workloads", str(EXAMPLES), pump=False).found
    assert found == dict.fromkeys(("cache", "growth", "adapters", "frozen", "experts"), True)


def test_the_suite_measures_each_of_them_beside_what_is_computed(
    frameworks: Path, tmp_path: Path
) -> None:
    assert frameworks.exists()
    rows = rows_of(tmp_path, "frameworks", "--", "--only", "experts")
    policies = ("naive", "window", "window.no_duplicates", "planned")
    assert set(rows) == {"bench.machine", *(f"virtual.experts.{w}" for w in (*policies, *OTHERS))}
    for way in policies:
        (row,) = rows[f"virtual.experts.{way}"]
        assert row["mode"] == "timing" and row["to_gpu"] > 0 and row["to_host"] > 0
    assert all(rows[f"virtual.experts.{system}"][0]["computed"] for system in OTHERS)
