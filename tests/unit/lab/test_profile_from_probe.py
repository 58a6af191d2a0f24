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
