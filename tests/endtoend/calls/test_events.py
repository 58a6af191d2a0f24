"""Records of events that pump does not see give no information about streams."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jobs import pump_run, recording
from places import PROGRAMS

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.reader import Reader

pytest.importorskip("cuda.bindings.driver")

NOT_READY = 600
KERNEL_NS = 1_000_000_000


@pytest.mark.parametrize("way", ["process", "graph"])
def test_a_record_out_of_sight_is_no_progress(tmp_path: Path, way: str) -> None:
    trace = tmp_path / "trace"
    settings = ("--virtual-set", "shared=events")
    settings += ("--virtual-set", f"kernel.touch.min_us={KERNEL_NS // 1000}")
    command = (f"--record={trace}", "--", sys.executable, str(PROGRAMS / "events_job.py"), way)
    done = pump_run(*settings, *command, PUMP_VIRTUAL_CARDS=str(tmp_path))
    assert json.loads(done.stdout) == [NOT_READY, 0, NOT_READY], "complete before its kernels"
    recording(trace)
    with trace.open("rb") as file:
        records = list(Reader(file).records())
    kernels = [r for r in records if isinstance(r, rec.Operation) and r.kind == form.KERNEL]
    progress = [r for r in records if isinstance(r, rec.Progress)]
    assert len(kernels) == 3
    assert any(r.stream == kernels[-1].stream and r.seq >= kernels[-1].seq for r in progress)
    for number, kernel in enumerate(kernels, 1):
        told = [r for r in progress if r.stream == kernel.stream and r.seq >= kernel.seq]
        assert all(r.time_ns >= kernels[0].time_ns + 0.99 * number * KERNEL_NS for r in told)
