"""Machines that show all their memory only after use, and others, where grow() does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from acceptance import host_memory
from acceptance.host_memory import GIB, HostMemory

LAZY = HostMemory(total=6 * GIB, available=4 * GIB, installed=128 * GIB)
"""A machine that shows more of its memory as memory is used."""


def machine(folder: Path, total_kib: int, available_kib: int, states: list[str]) -> HostMemory:
    """Returns the findings of `look` in fake kernel files, with blocks of 128 MiB."""
    meminfo, blocks = folder / "meminfo", folder / "memory"
    meminfo.write_text(f"MemTotal:  {total_kib} kB\nMemAvailable:  {available_kib} kB\n")
    blocks.mkdir()
    (blocks / "block_size_bytes").write_text("8000000\n")
    for number, state in enumerate(states):
        (blocks / f"memory{number}").mkdir()
        (blocks / f"memory{number}" / "state").write_text(f"{state}\n")
    return host_memory.look(meminfo, blocks)


def test_installed_memory_is_that_of_the_blocks_that_are_online(tmp_path: Path) -> None:
    found = machine(tmp_path, 6 << 20, 4 << 20, ["online"] * 100 + ["offline"] * 60)
    assert found == HostMemory(6 * GIB, 4 * GIB, 100 * 128 * host_memory.MIB)
    assert found.growth() > 0


def test_what_the_kernel_does_not_say_is_zero_and_nothing_grows(tmp_path: Path) -> None:
    found = host_memory.look(tmp_path / "none", tmp_path / "none")
    assert found == HostMemory(0, 0, 0) and found.growth() == 0
    assert HostMemory(6 * GIB, 4 * GIB, 0).growth() == 0  # gVisor has no blocks


@pytest.mark.parametrize(
    ("shown", "bytes_to_use"),
    [
        (LAZY, 20 * GIB),
        (HostMemory(6 * GIB, 4 * GIB, 16 * GIB), int(14.4 * GIB) - 2 * GIB),
        (HostMemory(int(15.7 * GIB), 4 * GIB, 16 * GIB), 0),  # all memory is shown, and in use
        (HostMemory(30 * GIB, 24 * GIB, 128 * GIB), 0),  # enough
    ],
)
def test_only_memory_that_is_installed_and_not_shown_is_asked_for(
    shown: HostMemory, bytes_to_use: int
) -> None:
    assert shown.growth() == bytes_to_use


def test_growing_ends_at_its_bounds_and_when_there_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_memory, "STEP_BYTES", 1024)

    def seen() -> HostMemory:
        return HostMemory(0, 5000, 0)

    soon = time.monotonic() + 30
    assert host_memory.use(8000, 1 << 20, soon, seen) == 3 * 1024  # 5000 + 3072 are enough
    assert host_memory.use(1 << 30, 4096, soon, seen) == 4096
    assert host_memory.use(1 << 30, 1 << 30, time.monotonic(), seen) == 0


def test_a_machine_that_shows_all_its_memory_starts_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    full = HostMemory(total=15 * GIB, available=1 * GIB, installed=16 * GIB)
    assert host_memory.grow(seen=lambda: full, command=["touch", str(mark)]) == (full, full)
    assert not mark.exists()


@pytest.mark.parametrize("body", ["pass", "import time; time.sleep(60)", "import os; os.abort()"])
def test_the_machine_is_looked_at_again_whatever_becomes_of_the_process(body: str) -> None:
    grown = HostMemory(30 * GIB, 24 * GIB, 128 * GIB)
    shown = iter([LAZY, grown])
    began = time.monotonic()
    command = [sys.executable, "-c", body]
    assert host_memory.grow(limit_s=2, seen=lambda: next(shown), command=command) == (LAZY, grown)
    assert time.monotonic() - began < 30


def test_the_process_uses_what_it_is_told() -> None:
    most = 2 * host_memory.STEP_BYTES
    words = [sys.executable, host_memory.__file__, str(1 << 50), str(most)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == most
