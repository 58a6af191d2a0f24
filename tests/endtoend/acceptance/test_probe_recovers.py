"""The probe recovers the constants of a random profile that is hidden from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from probe_recovery import FIGURES, PACKAGE, PROBE, PUMP_RUN, QUESTIONS, Hidden, draw

from pump_lab import profiles
from pump_lab.profiles import from_probe

pytest.importorskip("cuda.bindings.nvrtc")
if shutil.which("cc") is None:
    pytest.skip("no C compiler", allow_module_level=True)
pytestmark = pytest.mark.alone


def test_the_probe_recovers_a_hidden_profile_that_then_plays_the_same_card(tmp_path: Path) -> None:
    hidden = Hidden(1, tmp_path)
    report = hidden.probe(QUESTIONS)
    failed = [name for name in QUESTIONS if report["questions"][name]["status"] != "ok"]
    assert not failed, report["questions"][failed[0]]
    found = hidden.ask_again(report["profile"])
    assert not hidden.misses(found), hidden.table(found)

    # Neither the probe's command nor its view of the host reveals the hidden profile.
    told = json.dumps([hidden.words, report["host"]])
    assert "hidden.toml" not in told
    assert "link." not in told
    assert not [file for file in PACKAGE.rglob("*.py") if "PUMP_VIRTUAL" in file.read_text()]

    # The probe's findings, written as a profile.
    file = tmp_path / "found.toml"
    file.write_text(from_probe.text_of(report, profiles.load("h200-pcie5"), "found"))
    written = profiles.load(str(file))
    for key, value in hidden.profile.values.items():
        if key in from_probe.ATTRIBUTES or key in ("device.memory_bytes", "device.pci_device"):
            assert written.values[key] == value, key
    assert written.conditions["virtual_gpu"] is True
    assert written.conditions["constants"]["uvm.evict_us"].startswith("assumed")
    asked = [sys.executable, str(PROBE), "--only", "machine"]
    done = subprocess.run(
        [str(PUMP_RUN), "--virtual", str(file), "--", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    device = json.loads(done.stdout)["device"]
    assert device["name"] == written.values["device.name"]
    assert device["attributes"] == report["device"]["attributes"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_the_probe_recovers_many_a_profile(seed: int, tmp_path: Path) -> None:
    hidden = Hidden(seed, tmp_path)
    found = hidden.ask_again(hidden.probe(QUESTIONS)["profile"])
    assert not hidden.misses(found), hidden.table(found)


def test_a_figure_that_is_off_counts_as_missed(tmp_path: Path) -> None:
    hidden = Hidden(3, tmp_path)
    exact = {figure.constant: figure.expected(hidden.profile.values) for figure in FIGURES}
    assert not hidden.misses(exact)
    for figure in FIGURES:
        for factor in (1 - 1.02 * figure.tolerance, 1 + 1.02 * figure.tolerance):
            off = exact | {figure.constant: exact[figure.constant] * factor}
            assert hidden.misses(off) == [figure]
        assert hidden.misses(exact | {figure.constant: None}) == [figure]


def test_drawn_profiles_differ_widely() -> None:
    rates = [float(draw(seed)["link.prefetch_h2d_gbps"]) for seed in range(30)]
    assert min(rates) < 14
    assert max(rates) > 80
