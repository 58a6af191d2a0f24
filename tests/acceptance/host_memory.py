"""The host's memory: how much is available, and how to get what a machine has not shown yet.

Some virtual machines begin with a small part of their memory and get the rest as they use it:
MemTotal is far below what is installed, and checks of MemAvailable refuse what would fit. `grow`
uses memory once and frees it again; what came stays. It does nothing on other machines.

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
"""A folder for each installed block of memory, and the size of all of them."""
MIB, GIB = 1 << 20, 1 << 30

WANTED_BYTES = 20 * GIB
"""Available bytes that are enough for all stages at once."""
SHOWN_LEAST = 0.85
"""Part of what is installed that an ordinary kernel shows as MemTotal, at least."""
USED_MOST = 0.9
"""Part of what is installed that may be in use while memory is made to grow."""
STEP_BYTES = 64 * MIB
LIMIT_S = 15.0
KILL_ME_FIRST = "1000"
"""For /proc/self/oom_score_adj: if memory runs out, the kernel ends the growing process."""


@dataclass(frozen=True)
class HostMemory:
    """Bytes. total, available: as the kernel shows them now; installed: what the machine has, 0
    if the kernel does not say (gVisor)."""

    total: int
    available: int
    installed: int

    def growth(self, wanted: int = WANTED_BYTES) -> int:
        """Most bytes to use, so that about `wanted` become available; 0: nothing to gain."""
        if self.available >= wanted or self.total >= SHOWN_LEAST * self.installed:
            return 0
        used = self.total - self.available
        return max(0, min(wanted, int(self.installed * USED_MOST) - used))


def look(meminfo: Path = MEMINFO, blocks: Path = BLOCKS) -> HostMemory:
    """The machine as it is now; 0 for what cannot be read."""
    found = {"MemTotal": 0, "MemAvailable": 0}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text().splitlines():
            name = line.partition(":")[0]
            if name in found:
                found[name] = int(line.split()[1]) * 1024
    return HostMemory(found["MemTotal"], found["MemAvailable"], _installed(blocks))


def _installed(blocks: Path) -> int:
    """Bytes of all memory blocks that are online."""
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
    """Makes memory that is installed but not shown available: the machine before and after.

    Takes at most `limit_s`, in a process of its own. Whatever becomes of that process, the
    answer is what the machine shows afterwards.
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
    """Uses memory, a step at a time, until what is held and what is available are together
    `wanted`, `most` is held or it is `deadline` (time.monotonic()); bytes that were held."""
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
