"""Executor and marker threads run before the program's own threads if the machine allows it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pumpds
import pytest
from jobs import Job

PLACE = 16  # index of the niceness after the name in /proc/PID/stat: proc(5)
OURS = ("pump-in-0", "pump-out-0", "pump-mark-0")
DENIED = ("prlimit", "--nice=0")
if os.geteuid() == 0:  # the limit does not bind root
    DENIED = ("setpriv", "--bounding-set", "-sys_nice", *DENIED)


def niceness(pid: int) -> dict[str, int]:
    """Returns the niceness of each thread of a process by name; equal names keep the last."""
    found = {}
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        _, _, behind = stat.read_text().partition("(")
        name, _, fields = behind.rpartition(") ")
        found[name] = int(fields.split()[PLACE])
    return found


def may_hurry(prefix: tuple[str, ...]) -> bool:
    command = [*prefix, "python3", "-c", "import os; os.nice(-10)"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("prefix", [(), DENIED], ids=["as-allowed", "denied"])
def test_executors_and_markers_hurry_where_they_may(
    job: Job, tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    expected = os.nice(0) - (10 if may_hurry(prefix) else 0)
    assert expected == os.nice(0) or not prefix
    hold = tmp_path / "hold"
    hold.touch()
    process = subprocess.Popen(
        [*prefix, *job.command("--hold", str(hold))],
        env=job.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert pumpds.wait_for(lambda: set(OURS) <= set(niceness(process.pid)))
        assert pumpds.wait_for(lambda: {niceness(process.pid)[name] for name in OURS} == {expected})
        others = [nice for name, nice in niceness(process.pid).items() if name not in OURS]
        assert set(others) == {os.nice(0)}
    finally:
        hold.unlink()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
