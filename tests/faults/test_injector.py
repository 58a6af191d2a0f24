"""The injector's own promise: no process that a campaign started outlives the campaign."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import faults
import psutil
import pytest
from faults import Injector


def test_processes_that_do_not_end_are_killed(
    inject: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "BOUND_S", 0.3)
    command = "(exec setsid sleep 71) & echo $!; wait"  # in its own session, like pumpd
    one = Injector(inject, ["read"], ["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    assert one.process.stdout is not None
    started = psutil.Process(int(one.process.stdout.readline()))
    with pytest.raises(TimeoutError):
        one.ended()
    with contextlib.suppress(psutil.NoSuchProcess):
        assert started.status() == psutil.STATUS_ZOMBIE, "no process waits for it"
    assert one.process.returncode is not None
