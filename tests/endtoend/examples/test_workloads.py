"""The sweep and the gather on the virtual GPU: the same bits, and the touched pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_build import build
from jobs import BIN, MIB
from places import ROOT

SWEEP = ["cyclic_sweep.py", "--buffers=12", "--buffer-mib=4", "--iterations=4"]
GATHER = ["irregular_gather.py", "--table-mib=48", "--rows=32", "--launches=8", "--iterations=4"]
BAGS = ["embedding_bags.py", "--tables=3", "--table-mib=16", "--bags=16", "--iterations=4"]
BLOCK = 2 << 20


@pytest.fixture(scope="module")
def host_kernels() -> Path:
    return Path(build())


def run(
    place: tuple[Path, Path], words: list[str], memory_mib: int, mode: str, policy: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (the program's result, the driver's report); policy "" runs without pump.

    `place`: library of host kernels, folder for both files.
    """
    kernels, folder = place
    result, report = folder / "result.json", folder / "report.json"
    virtual = [f"--virtual-set=memory={memory_mib}MiB", f"--virtual-set=mode={mode}"]
    command = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *virtual]
    command += [f"--policy={policy}"] if policy else []
    env = {"PUMP_VIRTUAL_KERNELS": str(kernels), "PUMP_VIRTUAL_REPORT": str(report)}
    env |= {} if policy else {"PUMP_DISABLE": "1"}
    script = [sys.executable, str(ROOT / "examples" / words[0]), *words[1:]]
    subprocess.run(
        [*command, "--", *script, "--json", str(result)],
        env={**os.environ, **env},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return json.loads(result.read_text()), json.loads(report.read_text())


@pytest.mark.parametrize("words", [SWEEP, GATHER, BAGS])
def test_a_workload_gives_the_same_bits_under_every_policy(
    host_kernels: Path, tmp_path: Path, words: list[str]
) -> None:
    plain, _ = run((host_kernels, tmp_path), words, 256, "compute", "")
    naive, report = run((host_kernels, tmp_path), [*words, "--managed"], 32, "compute", "")
    assert report["faults"] > 0
    hashes = {plain["result_sha256"], naive["result_sha256"]}
    for policy in ("demand", "window"):
        found, report = run((host_kernels, tmp_path), words, 32, "compute", policy)
        assert report["violations"] == 0
        hashes.add(found["result_sha256"])
    assert len(hashes) == 1


def test_a_gather_faults_on_its_pages_only_and_a_sweep_on_all(
    host_kernels: Path, tmp_path: Path
) -> None:
    words = ["--iterations=2", "--warm-up=1", "--no-hash", "--managed"]
    _, gather = run((host_kernels, tmp_path), [*GATHER, *words], 32, "timing", "")
    # The table is written once in full: six faults per block. Then 16 launches read 32 rows each,
    # one page per row. The sums, the index and evictions of blocks in use add some pages.
    first_pass, launches = 48 * MIB // BLOCK * 6, 2 * 8
    assert first_pass < gather["faults"] < first_pass + launches * 40
    _, sweep = run((host_kernels, tmp_path), [*SWEEP, *words], 32, "timing", "")
    assert sweep["faults"] == 3 * first_pass


def test_a_program_that_waits_for_each_launch_ends_with_the_same_bits(
    host_kernels: Path, tmp_path: Path
) -> None:
    plain, _ = run((host_kernels, tmp_path), SWEEP, 256, "compute", "")
    waits = [*SWEEP, "--sync-every-step=launch"]
    found, _ = run((host_kernels, tmp_path), waits, 32, "compute", "window")
    assert found["result_sha256"] == plain["result_sha256"]


def test_tables_that_are_read_in_place_give_the_same_bits_and_move_only_rows(
    host_kernels: Path, tmp_path: Path
) -> None:
    place = host_kernels, tmp_path
    plain, _ = run(place, BAGS, 256, "compute", "")
    words = [*BAGS, "--managed", "--read-in-place"]
    found, report = run(place, words, 32, "compute", "")
    assert found["result_sha256"] == plain["result_sha256"]
    counters = report["counters"]
    assert counters["h2d_demand_bytes"] < 4 * MIB, "ids, sums and what was written last stay"
    rows_bytes = 3 * 4 * 16 * 20 * 256
    assert 0.2 * rows_bytes < counters["h2d_remote_bytes"] < 0.8 * rows_bytes
    _, naive = run(place, [*BAGS, "--managed"], 32, "compute", "")
    assert naive["counters"]["h2d_demand_bytes"] > 16 * MIB
