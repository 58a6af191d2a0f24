"""A program on two devices that are both too small: the same bits, and a schedule per device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pumpds
import pytest
import two_cards
from devices_job import DEVICES, expected
from jobs import BIN, MIB
from places import PROGRAMS

from pump_lab.paths import library

ROUNDS = 48
"""Enough rounds that short samples see each device work from its schedule without the worker."""
OTHER = 5
HOWS = pytest.mark.parametrize("how", ["alternating", "threads"])


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_cards.build(tmp_path_factory.mktemp("cards"))


class Cards:
    """Runs devices_job.py on two GPUs of 64 MiB."""

    def __init__(self, driver: Path, kernels: Path, folder: Path) -> None:
        self.folder = folder
        self.path = f"{driver}:{Path(library('virtual/libcuda.so.1')).parent}"
        self.environ = {
            **os.environ,
            "PUMP_SERVICE": "none",
            "PUMP_VIRTUAL_KERNELS": str(kernels),
            "PUMP_SUMMARY": str(folder / "summary.%p"),
            **{two_cards.report_variable(d): str(folder / f"report{d}") for d in range(DEVICES)},
        }

    def start(self, policy: str, *words: str) -> subprocess.Popen[str]:
        """Starts a job, waits for its worker and lets the job continue."""
        settings = [f"device.memory_bytes={64 * MIB}", "mode=compute"]
        virtual = [word for setting in settings for word in ("--virtual-set", setting)]
        run = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", *virtual, "--policy", policy, "--"]
        program = [
            "env",
            f"LD_LIBRARY_PATH={self.path}",
            sys.executable,
            PROGRAMS / "devices_job.py",
        ]
        process = subprocess.Popen(
            [*run, *program, *words],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert line(process) == "running"
        with pumpds.mapping_of(worker_of(process)) as mapping:
            assert pumpds.wait_for(lambda: mapping.shm.header.worker_heartbeat_ns != 0)
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        return process

    def finish(self, process: subprocess.Popen[str]) -> tuple[list[str], dict[str, Any]]:
        """Returns the job's output and summary."""
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        for device in range(DEVICES):
            report = json.loads((self.folder / f"report{device}").read_text())
            assert report["violations"] == 0
        (file,) = self.folder.glob("summary.*")
        found = json.loads(file.read_text())
        assert [device["active"] for device in found["devices"]] == [True] * DEVICES
        return out.split(), found


@pytest.fixture
def cards(driver: Path, kernels: Path, tmp_path: Path) -> Cards:
    return Cards(driver, kernels, tmp_path)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def worker_of(process: subprocess.Popen[str]) -> int:
    assert pumpds.wait_for(lambda: bool(pumpds.of_job(process.pid).workers))
    (worker,) = pumpds.of_job(process.pid).workers
    return worker


def moved_alone(process: subprocess.Popen[str]) -> set[int]:
    """Returns the devices with schedules that progress while the worker is stopped. Stops the
    worker repeatedly until all devices have progressed or the program ends."""
    worker = worker_of(process)
    found: set[int] = set()
    with pumpds.mapping_of(worker) as mapping:
        schedules = mapping.shm.schedules
        with suppress(ProcessLookupError):  # the worker ends with the job
            while process.poll() is None and len(found) < DEVICES:
                time.sleep(0.03)
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.005)
                before = [schedules[device].cursor for device in range(DEVICES)]
                time.sleep(0.03)
                found |= {d for d in range(DEVICES) if schedules[d].cursor != before[d]}
                os.kill(worker, signal.SIGCONT)
    return found


@HOWS
@pytest.mark.parametrize("policy", ["window", "demand"])
def test_two_small_devices_compute_the_same_bits(cards: Cards, how: str, policy: str) -> None:
    digests, summary = cards.finish(cards.start(policy, how, "4"))
    assert digests == expected(4)
    assert (summary["shim"]["scheduled_bytes"] > 0) == (policy == "window")


@HOWS
def test_each_device_gets_what_is_scheduled_for_it(cards: Cards, how: str) -> None:
    process = cards.start("planned", how, str(ROUNDS))
    assert moved_alone(process) == set(range(DEVICES))
    digests, summary = cards.finish(process)
    assert digests == expected(ROUNDS)
    assert summary["shim"]["scheduled_bytes"] > 0
    assert summary["worker"]["predicted"] > 0


def test_a_deviation_on_one_device_voids_schedules_until_both_are_predicted_again(
    cards: Cards,
) -> None:
    words = "alternating", str(ROUNDS), f"--other-round={OTHER}"
    process = cards.start("planned", *words)
    assert line(process) == "other"
    assert moved_alone(process) == set(range(DEVICES))
    digests, summary = cards.finish(process)
    assert digests == expected(ROUNDS, OTHER)
    assert summary["shim"]["schedules_dropped"] > 0
    assert summary["worker"]["predictions_lost"] > 0
