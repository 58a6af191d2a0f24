"""Host memory: how much is available, and how to make a machine show memory that it still hides.

Some virtual machines start with a small part of their memory and receive the rest on use. MemTotal
is then far below the installed memory, and checks of MemAvailable refuse jobs that would fit.
`grow` uses memory once and frees it again; the new memory stays available. It does nothing on other
machines.

    python tests/acceptance/host_memory.py LEAST_BYTES MOST_BYTES      the process that uses it
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
BLOCKS = Path("/sys/devices/system/memory")
"""Contains a folder for each installed block of memory, and a file with the block size."""
MIB, GIB = 1 << 20, 1 << 30

WANTED_BYTES = 20 * GIB
"""Available memory that is enough for all stages at once."""
SHOWN_LEAST = 0.85
"""Least share of the installed memory that an ordinary kernel reports as MemTotal."""
USED_MOST = 0.9
"""Largest share of the installed memory that may be in use during `grow`."""
STEP_BYTES = 64 * MIB
LIMIT_S = 15.0
KILL_ME_FIRST = "1000"
"""Value for /proc/self/oom_score_adj: if memory runs out, the kernel kills the growing process."""


@dataclass(frozen=True)
class HostMemory:
    """Host memory in bytes. `total`, `available`: what the kernel reports now. `installed`: memory
    of the machine, 0 if the kernel does not report it (gVisor)."""

    total: int
    available: int
    installed: int

    def growth(self, wanted: int = WANTED_BYTES) -> int:
        """Returns how many bytes to use so that about `wanted` become available; 0 if useless."""
        if self.available >= wanted or self.total >= SHOWN_LEAST * self.installed:
            return 0
        used = self.total - self.available
        return max(0, min(wanted, int(self.installed * USED_MOST) - used))


def look(meminfo: Path = MEMINFO, blocks: Path = BLOCKS) -> HostMemory:
    """Returns the machine's current memory; 0 for each value that cannot be read."""
    found = {"MemTotal": 0, "MemAvailable": 0}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text().splitlines():
            name = line.partition(":")[0]
            if name in found:
                found[name] = int(line.split()[1]) * 1024
    return HostMemory(found["MemTotal"], found["MemAvailable"], _installed(blocks))


def _installed(blocks: Path) -> int:
    """Returns the size of all memory blocks that are online."""
    with contextlib.suppress(OSError, ValueError):
        size = int((blocks / "block_size_bytes").read_text(), 16)
        states = [(block / "state").read_text() for block in blocks.glob("memory[0-9]*")]
        return size * sum(state.strip() == "online" for state in states)
    return 0


def grow(
    wanted: int = WANTED_BYTES,
    limit_s: float = LIMIT_S,
    seen: Callable[[], HostMemory] = look,
    command: Sequence[str] = (sys.executable, __file__),
) -> tuple[HostMemory, HostMemory]:
    """Makes hidden memory available, and returns the machine's memory before and after.

    Takes at most `limit_s`, in its own process. The second value is read afterwards, even if that
    process dies.
    """
    before = seen()
    most = before.growth(wanted)
    if not most:
        return before, before
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [*command, str(wanted), str(most)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    return before, seen()


def use(wanted: int, most: int, deadline: float, seen: Callable[[], HostMemory] = look) -> int:
    """Uses memory step by step, and returns how many bytes it held. Stops when held plus available
    memory reaches `wanted`, when it holds `most`, or at `deadline` (time.monotonic())."""
    held: list[bytes] = []
    while (taken := len(held) * STEP_BYTES) + STEP_BYTES <= most and time.monotonic() < deadline:
        if taken + seen().available >= wanted:
            break
        held.append(b"\1" * STEP_BYTES)
    return len(held) * STEP_BYTES


def main() -> None:
    wanted, most = map(int, sys.argv[1:])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(KILL_ME_FIRST)
    os.nice(5)
    print(use(wanted, most, time.monotonic() + LIMIT_S))


if __name__ == "__main__":
    main()
