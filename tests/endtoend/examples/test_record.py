"""pump-run --record on the virtual GPU records the operations that the driver counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pumpds
import pytest
from job import expected, grid_of
from jobs import BIN, MIB, Job

from pump.trace import format as form
from pump.trace import records as rec
from pump.trace.info import opened
from pump.trace.reader import Reader

ARGUMENTS = ["--buffers=24", "--mib=4", "--steps=300", "--sync-every=50"]
DIGEST = expected(buffers=24, mib=4, steps=300, seed=1)


def read(path: Path) -> tuple[Reader, list[rec.Record]]:
    with opened(str(path)) as (file, being_written):
        assert not being_written
        reader = Reader(file)
        return reader, list(reader.records())


def operations(records: list[rec.Record]) -> list[rec.Operation]:
    return [r for r in records if isinstance(r, rec.Operation) and r.kind != form.HINT]


@pytest.mark.parametrize("memory_mib", [64, 1024], ids=["oversubscribed", "fits"])
def test_the_recording_holds_what_the_driver_counted(job: Job, memory_mib: int) -> None:
    trace = job.folder / "t"
    done = job.run(*ARGUMENTS, memory_mib=memory_mib, run=("-v", "--record", str(trace)))
    assert done.returncode == 0, done.stderr
    assert DIGEST in done.stdout
    report = json.loads(job.report.read_text())
    reader, records = read(trace)
    found = Counter(operation.kind for operation in operations(records))
    calls = Counter(report["calls"])
    assert found[form.KERNEL] == calls["cuLaunchKernel"] == 300
    assert found[form.COPY] == calls["cuMemcpyHtoD_v2"] + calls["cuMemcpyDtoH_v2"] == 48
    assert found.total() == 348
    assert not any(isinstance(record, rec.Lost) for record in records)
    assert reader.end is not None
    assert reader.end["operations"] == 348
    assert reader.header["job"]["virtual"]["mode"] == "compute"
    assert f"pump: recorded 348 operations to {trace}\n" in job.log.read_text()


def test_times_never_go_back_and_progress_follows_issue(job: Job) -> None:
    trace = job.folder / "t"
    job.run(*ARGUMENTS, run=("--record", str(trace)))
    _, records = read(trace)
    issued = operations(records)
    first = issued[0].seq
    assert [operation.seq for operation in issued] == list(range(first, first + len(issued)))
    times = [operation.time_ns for operation in issued]
    assert times == sorted(times)
    issued_at = {operation.seq: operation.time_ns for operation in issued}
    progress = [record for record in records if isinstance(record, rec.Progress)]
    assert progress
    reached: dict[int, int] = {}
    for record in progress:
        assert record.seq >= reached.get(record.stream, 0)
        assert record.time_ns >= issued_at[record.seq]
        reached[record.stream] = record.seq
    syncs = [record for record in records if isinstance(record, rec.Sync)]
    assert len(syncs) >= 6
    assert all(0 < sync.begin_ns <= sync.end_ns for sync in syncs)


def test_every_extent_lies_in_an_allocation_that_was_live(job: Job) -> None:
    trace = job.folder / "t"
    job.run(*ARGUMENTS, "--churn", run=("--record", str(trace)))
    _, records = read(trace)
    live: dict[int, rec.RangeRow] = {}
    allocated = freed = 0
    for record in records:
        if isinstance(record, rec.Resync):
            live.clear()
        elif isinstance(record, rec.RangeRow):
            if record.kind == form.FREE:
                assert live.pop(record.slot).base == record.base
                freed += 1
            else:
                live[record.slot] = record
                allocated += record.kind == form.ALLOC
        elif isinstance(record, rec.Operation):
            for extent in record.extents:
                owner = live[extent.slot]
                assert owner.generation == extent.generation
                assert extent.offset_bytes + extent.length_bytes <= owner.length_bytes == 4 * MIB
            if record.kind == form.KERNEL:
                assert len(record.extents) in (1, 2)
    assert (allocated, freed) == (24 + 30, 24 + 30)
    assert not live


def test_names_and_parameters_come_before_the_first_launch_that_needs_them(job: Job) -> None:
    trace = job.folder / "t"
    job.run(*ARGUMENTS, run=("--record", str(trace)))
    names: dict[int, str] = {}
    told: dict[int, rec.Params] = {}
    launches = 0
    for record in read(trace)[1]:
        if isinstance(record, rec.Name):
            names[record.function] = record.name
        elif isinstance(record, rec.Params):
            told[record.signature] = record
        elif isinstance(record, rec.Operation) and record.kind == form.KERNEL:
            assert names[record.function] == "mix"
            params = told[record.signature]
            number = int.from_bytes(params.data[24:32], "little")
            assert (params.grid, params.block) == ((grid_of(number), 1, 1), (256, 1, 1))
            assert params.parameter_bytes == len(params.data) == 32
            launches += 1
    assert launches >= 100


def test_a_killed_worker_costs_the_end_of_one_file_and_the_next_one_goes_on(job: Job) -> None:
    trace = job.folder / "t"
    arguments = ["--buffers=24", "--mib=4", "--steps=300", "--sleep-ms=15"]
    running = job.start(*arguments, run=("--record", str(trace)))
    try:
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(1.5)
        (worker,) = pumpds.of_job(running.pid).workers
        pumpds.kill(worker)
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert DIGEST in out
    (part,) = trace.parent.glob("t.part-*")  # a killed writer's file stays unchanged
    first, records = read(part)
    assert first.truncated
    assert operations(records)
    second, more = read(trace.with_name("t.2"))
    assert not second.truncated
    assert isinstance(next(r for r in more if not isinstance(r, rec.Device)), rec.Resync)
    assert operations(more)[-1].kind == form.COPY  # reads of the results
    assert second.header["client_number"] == 2


def test_each_client_of_a_job_has_a_file_of_its_own(job: Job) -> None:
    trace = job.folder / "t"
    command = job.command("--buffers=4", "--steps=20", run=("-v", "--record", str(trace)))
    cut = command.index("--") + 1
    script = " ".join(command[cut:])
    subprocess.run(
        [*command[:cut], "sh", "-c", f"{script} --seed=1 && {script} --seed=2"],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for number, path in ((1, trace), (2, trace.with_name("t.2"))):
        reader, records = read(path)
        assert len(operations(records)) == 28
        assert reader.header["client_number"] == number
        assert reader.header["command"][-1] == f"--seed={number}"
        assert f"pump: recorded 28 operations to {path}\n" in job.log.read_text()


def test_an_older_recording_stays_until_a_new_one_is_whole(job: Job) -> None:
    trace = job.folder / "t"
    older = form.file_start() + form.pack_chunk(form.CHUNK_HEADER, 0, b"{}", 0)
    trace.write_bytes(older)
    start = [str(BIN / "pump-run"), "--virtual", "a100-pcie4", "--record", str(trace)]
    missing = subprocess.run([*start, "no-such-command"], capture_output=True, check=False)
    assert missing.returncode == 127
    assert trace.read_bytes() == older
    done = subprocess.run([*start, "true"], capture_output=True, check=False)
    assert done.returncode == 0
    assert trace.read_bytes() == older  # no client has connected
    assert job.run("--steps=5", run=("--record", str(trace))).returncode == 0
    reader, records = read(trace)
    assert reader.end is not None
    assert len(operations(records)) > 5
    assert trace.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in job.folder.glob("t*")] == ["t"]


def test_a_file_that_is_being_recorded_to_is_refused(job: Job) -> None:
    trace = job.folder / "t"
    running = job.start("--steps=300", "--sleep-ms=50", run=("--record", str(trace)))
    try:
        assert running.stdout is not None
        running.stdout.readline()
        deadline = time.monotonic() + 10
        while not any(job.folder.glob("t.part-*")) and time.monotonic() < deadline:
            time.sleep(0.05)  # the worker has not opened the file yet
        second = job.run("--steps=1", run=("--record", str(trace)))
        assert second.returncode == 2
        assert "another job records to it; choose another file" in second.stderr
    finally:
        running.kill()
        running.wait()
    assert operations(read(trace)[1])


def test_a_file_that_is_taken_after_pump_run_has_looked_is_left_alone_and_told(job: Job) -> None:
    trace = job.folder / "t"
    command = job.command("--steps=10", run=("--record", str(trace)))
    place = command.index("--") + 1
    take = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.set_inheritable(fd, True)\n"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    done = subprocess.run(
        [*command[:place], sys.executable, "-c", take, str(trace), *command[place:]],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"the recording to {trace} stopped early: another job records to" in done.stderr


def test_the_kill_switch_runs_the_command_and_says_that_nothing_is_recorded(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(BIN / "pump-run"), "--record", str(tmp_path / "t"), sys.executable, "-c", "print(5)"],
        env={**os.environ, "PUMP_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert "records nothing" in done.stderr
