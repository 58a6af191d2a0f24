"""A device profile written from a report of scripts/gpu_probe, and loaded again."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from probe import transfer

from pump_lab import profiles
from pump_lab.profiles import duplicates, from_probe

BASE = profiles.load("h200-pcie5")
REPORT: dict[str, Any] = {
    "date": "2026-11-20T10:00:00+00:00",
    "commit": "0123abcd",
    "host": {
        "runtime": {"kind": "bare metal"},
        "kernel": "6.8.0",
        "cpu_model": 'A "quoted" CPU',
        "kernel_module": "open",
        "nvidia_version_file": "NVRM version: 580.65\nGCC version: 13",
    },
    "device": {
        "name": "NVIDIA L40S",
        "driver_version": 13000,
        "total_bytes": 48 << 30,
        "attributes": {
            "compute_capability_major": 8,
            "compute_capability_minor": 9,
            "multiprocessor_count": 142,
            "clock_rate": 0,
            "gpu_pci_device_id": 0x26B910DE,
        },
    },
    "profile": {
        "bw_h2d_gbps": 24.3217,
        "delta_in": 1.02,
        "t0_replay_us": 50.0,
        "t_call_hblk_us": 15.0,
        "t_hblk_passes_us": 13.0,
        "t_cpupte_us": 0.31234,
        "t_ev_us": None,
        "kernel_launch_us": 5.5,
    },
}


def written(report: dict[str, Any] = REPORT, **options: Any) -> profiles.Profile:
    text = from_probe.text_of(report, BASE, "mine", **options)
    return profiles.validate("mine", tomllib.loads(text))


def kinds(profile: profiles.Profile) -> dict[str, str]:
    return {key: why.partition(":")[0] for key, why in profile.conditions["constants"].items()}


def test_measured_values_are_rounded_and_kept_in_bounds() -> None:
    found = written()
    assert found.values["link.prefetch_h2d_gbps"] == 24.32
    assert found.values["uvm.cpu_pte_us"] == 0.312
    assert found.values["link.duplex_in"] == 1.0, "a little above one is noise"
    assert kinds(found)["link.prefetch_h2d_gbps"] == "measured"


def test_sums_are_shared_out_as_the_base_does_and_say_so() -> None:
    found = written()
    base, replay = found.values["uvm.fault_base_us"], found.values["uvm.fault_replay_us"]
    assert (base, replay) == (40.6, 9.43), "43 to 10, as in the base"
    assert found.values["uvm.prefetch_block_us"] == 10.0
    assert found.values["uvm.prefetch_call_us"] == 5.0
    for key in ("fault_base", "fault_replay", "prefetch_block", "prefetch_call"):
        assert kinds(found)[f"uvm.{key}_us"] == "derived"


def test_what_was_not_measured_comes_from_the_base_and_is_marked() -> None:
    found = written()
    for key in ("uvm.evict_us", "kernels.min_us", "device.clock_khz", "device.l2_cache_bytes"):
        assert found.values[key] == BASE.values[key]
        assert kinds(found)[key] == "assumed"
        assert "h200-pcie5" in found.conditions["constants"][key]


def test_times_from_a_base_in_another_host_are_those_of_its_host() -> None:
    text = from_probe.text_of(REPORT, profiles.load("rtx4090"), "mine")
    values = profiles.validate("mine", tomllib.loads(text)).values
    assert values["uvm.host_factor"] == 1
    factor = profiles.hosts()["desktop"]
    assert values["uvm.evict_us"] == factor * float(BASE.values["uvm.evict_us"])
    assert values["kernels.default_gbps"] == 920


def test_the_device_is_the_cards_and_named_as_a_virtual_one() -> None:
    values = written().values
    assert values["device.name"] == "NVIDIA L40S (pump virtual)"
    assert values["device.compute_capability"] == "8.9"
    assert values["device.memory_bytes"] == 48 << 30
    assert values["device.multiprocessors"] == 142
    assert values["device.pci_device"] == 0x26B9


def test_the_conditions_are_in_the_file_and_not_in_the_hash() -> None:
    found = written()
    expected = {
        "card": "NVIDIA L40S",
        "driver": "NVRM version: 580.65",
        "kernel_module": "open",
        "runtime": "bare metal",
        "cpu": 'A "quoted" CPU',
        "commit": "0123abcd",
        "virtual_gpu": False,
        "base": "h200-pcie5",
    }
    assert expected.items() <= found.conditions.items()
    other = copy.deepcopy(REPORT) | {"commit": "another"}
    assert written(other).hash() == found.hash()
    assert "conditions" not in found.flatten()
    assert found.changed({"memory": "8GiB"}).conditions == found.conditions


def test_the_cpus_part_never_comes_from_gvisor() -> None:
    report = copy.deepcopy(REPORT)
    report["host"]["runtime"]["kind"] = "gvisor"
    with pytest.raises(from_probe.ReportError, match="from gVisor"):
        written(report)
    report["questions"] = {}
    transfer.mark(report)
    found = written(report)
    keys = {
        "evict",
        "prefetch_call",
        "prefetch_block",
        "cpu_pte",
        "cpu_unmap",
        "cpu_unmap_page",
        "host_alloc",
    }
    for key in ({f"uvm.{name}_us" for name in keys}) | {"kernels.launch_us"}:
        assert found.values[key] == BASE.values[key]
        assert kinds(found)[key] == "assumed"
    assert transfer.OUT in found.conditions["constants"]["uvm.cpu_pte_us"]
    assert transfer.CALL in found.conditions["constants"]["uvm.prefetch_call_us"]
    assert found.values["link.prefetch_h2d_gbps"] == 24.32, "the link's part is the card's"


def test_times_of_single_kernels_come_along_only_when_asked() -> None:
    assert not [key for key in written().values if key.startswith("kernel.")]
    kept = written(keep_kernels=True)
    assert kept.values["kernel.dense_forward.gbps"] == 30.0


def command(folder: Path, content: str | None, base: str, out: str) -> tuple[int, str, str]:
    """Runs pump simulate --profile-from on a report: status, stdout, stderr."""
    report = folder / "report.json"
    if content is not None:
        report.write_text(content)
    code = "import sys; from pump.cli.main import main; sys.exit(main())"
    words = ["simulate", "--profile-from", str(report), "--base", base, "--out", str(folder / out)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_writes_a_profile_that_loads(tmp_path: Path) -> None:
    status, told, _ = command(tmp_path, json.dumps(REPORT), "h200-pcie5", "l40s.toml")
    assert status == 0
    found = profiles.load(str(tmp_path / "l40s.toml"))
    assert found.name == "l40s"
    assert found.hash() in told


@pytest.mark.parametrize(
    ("content", "base", "out", "expected"),
    [
        ("{}", "h200-pcie5", "x.toml", "not a report of scripts/gpu_probe"),
        ("[]", "h200-pcie5", "x.toml", "not a report of scripts/gpu_probe"),
        ("{", "h200-pcie5", "x.toml", "invalid JSON"),
        (None, "h200-pcie5", "x.toml", "cannot read"),
        (json.dumps(REPORT), "h20", "x.toml", "no profile 'h20'"),
        (json.dumps(REPORT), "h200-pcie5", "x", "ends in .toml"),
        (json.dumps(REPORT), "h200-pcie5", "no/x.toml", "cannot write"),
    ],
)
def test_bad_input_gets_one_line(
    tmp_path: Path, content: str | None, base: str, out: str, expected: str
) -> None:
    status, _, told = command(tmp_path, content, base, out)
    assert status == (1 if out == "no/x.toml" else 2)
    assert expected in told
    assert told.count("\n") == 1


def test_conditions_that_are_no_table_are_an_error() -> None:
    with pytest.raises(profiles.ProfileError, match="conditions must be a table"):
        profiles.validate("x", {"conditions": 3})


@pytest.mark.parametrize(
    ("changes", "pays"),
    [
        ({}, True),
        ({"link.duplex_in": "0.9"}, False),
        ({"uvm.advise_call_us": "12", "uvm.advise_block_us": "12"}, True),
        ({"uvm.advise_call_us": "13", "uvm.advise_block_us": "12"}, False),
    ],
)
def test_read_duplication_pays_where_departures_take_much_and_advice_little(
    changes: dict[str, str], pays: bool
) -> None:
    assert duplicates.pay(profiles.load("a100-pcie4").changed(changes).values) == pays
