"""scripts/gpu_acceptance on the virtual GPU: the cheap stages, with --quick, and their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from acceptance.first_call import adopt
from places import ROOT

from pump.base import paths
from pump_lab import profiles

LIMIT_S = 240


def accept(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with the libraries under test."""
    libraries = Path(paths.library("libpump.so")).parent
    command = [sys.executable, str(ROOT / "scripts" / "gpu_acceptance"), "--out", str(out)]
    return subprocess.run(
        [*command, "--virtual", "a100-pcie4", "--quick", *words],
        env={**os.environ, "PUMP_LIB_DIR": str(libraries)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_the_cheap_stages_pass_on_the_virtual_gpu_and_say_that_it_is_one(tmp_path: Path) -> None:
    done = accept(tmp_path, "--stage", "shim", "failures", "--minutes", "3.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 3
    statuses = {}
    for stage in ("shim", "failures"):
        result = json.loads((tmp_path / f"{stage}.json").read_text())
        assert result["label"] == "virtual GPU a100-pcie4, figures are a model's"
        assert result["complete"]
        statuses |= {item["name"]: item["status"] for item in result["items"]}
    assert statuses["framework.cuda-bindings"] == "pass"
    assert statuses["count.driver"] == "pass"
    assert statuses["kill.both"] == "pass"
    page = (tmp_path / "summary.md").read_text()
    assert "figures are a model's" in page and "the figures mean nothing" in page

    again = accept(tmp_path, "--stage", "shim", "failures", "--resume")
    assert again.returncode == 0, again.stderr
    assert "framework" not in again.stderr, "a complete stage is not run again"


def test_the_probe_stage_makes_a_profile_of_what_the_virtual_gpu_does(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = accept(tmp_path, "--stage", "probe", "--minutes", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    # The host copies at its own speed; only the model's speed may be visible.
    asked = profiles.load("a100-pcie4").values["link.copy_h2d_gbps"]
    found = profiles.load(str(tmp_path / "probe" / "virtual-a100-pcie4.toml"))
    assert found.values["link.copy_h2d_gbps"] == pytest.approx(asked, rel=0.05)

    told = adopted(tmp_path, tmp_path_factory.mktemp("adopted"))
    (command,) = [line for line in told if "pump-run --virtual" in line]
    again = profiles.load(command.split()[2])
    assert again.values["link.copy_h2d_gbps"] == found.values["link.copy_h2d_gbps"]


def adopted(results: Path, folder: Path) -> list[str]:
    """Packs results like a first call and adopts them; returns lines with full paths."""
    root = folder / "checkout"
    (root / "lab").mkdir(parents=True)
    for name in ("pump", "shim", "lab/gpu", "lab/pump_lab"):
        (root / name).symlink_to(ROOT / name)
    packed = folder / "results.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(results, "acceptance")
    return [line.replace("build/", f"{root}/build/") for line in adopt.adopt(packed, root)]
