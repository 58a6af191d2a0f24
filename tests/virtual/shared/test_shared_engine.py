"""The model of a GPU with several owners: intact after any death, and fair between them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import gpu_model
import pytest
import virtual_driver as virtual

from pump_lab import profiles

HERE = Path(__file__).resolve().parent
FLAGS = ("-std=gnu11", "-O1", "-g1", "-Wall", "-Wextra", "-DUVM_JOURNAL_PROBE")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def undo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("undo") / "card_undo"
    source = HERE / "card_undo.c"
    return virtual.compile_c(
        target,
        *FLAGS,
        *SANITIZE,
        f"-I{gpu_model.ROOT}",
        f"-I{gpu_model.CORE}",
        source,
        *gpu_model.sources(),
        "-lm",
    )


def broken_off(undo: Path, seed: int, rounds: int) -> tuple[int, int]:
    """Returns (deaths in the middle of a step, evictions)."""
    text = profiles.load("a100-pcie4").flatten()
    done = subprocess.run(
        [undo, text, str(seed), str(rounds)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    deaths, evictions = done.stdout.split()
    return int(deaths), int(evictions)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_that_is_broken_off_is_undone_to_the_byte(undo: Path, seed: int) -> None:
    deaths, evictions = broken_off(undo, seed, 6000)
    assert deaths > 50
    assert evictions > 100


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_steps_broken_off_in_a_long_campaign_are_undone(undo: Path, seed: int) -> None:
    assert broken_off(undo, seed, 60_000)[0] > 500


class Shared(gpu_model.Gpu):
    """A GPU of two owners; act() selects the owner that calls."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks, owners=2)
        for number in range(2):
            assert self.lib.gpu_lock_taken(self.engine, 2) == 0
            assert self.lib.gpu_owner_join(self.engine) == number
            self.lib.gpu_lock_given(self.engine)
        self.lib.gpu_lock_taken(self.engine, 0)

    def act(self, actor: int) -> None:
        self.lib.gpu_lock_given(self.engine)
        assert self.lib.gpu_lock_taken(self.engine, actor) == 0
        self.lib.gpu_notes_deliver(self.engine, self.hooks)

    def starts(self) -> dict[int, int]:
        """Returns cookie -> time of all that has started; each owner has received its own notes."""
        for actor in range(2):
            self.act(actor)
        assert len(self.started) == len(dict(self.started)), "told twice"
        return dict(self.started)


def test_the_compute_engine_serves_the_process_with_least_time_first() -> None:
    gpu = Shared(64)
    issued = []
    for actor, us in enumerate((1000, 500)):
        gpu.act(actor)
        stream = gpu.stream()
        issued.append([gpu.kernel(us=us, stream=stream) for _ in range(10)])
    gpu.run()
    starts = gpu.starts()
    long, short = issued
    # When the last short kernel begins, each process had half of the time: 5 long kernels.
    assert 4 <= sum(starts[cookie] < starts[short[-1]] for cookie in long) <= 6
    assert starts[long[-1]] > starts[short[-1]]


def test_events_between_kernels_cost_no_process_its_turn() -> None:
    gpu = Shared(64)
    gpu.act(1)
    stream = gpu.stream()
    long = [gpu.kernel(us=1000, stream=stream) for _ in range(10)]
    gpu.act(0)
    stream, event, short = gpu.stream(), gpu.lib.gpu_event_create(gpu.engine), []
    for _ in range(10):
        short.append(gpu.kernel(us=100, stream=stream))
        gpu.submit(gpu.lib.GPU_EVENT_RECORD, stream=stream, event=event)
    gpu.run()
    starts = gpu.starts()
    # All short kernels take as long as one long one. If a turn were lost at each record, a long one
    # would run before each.
    assert sum(starts[cookie] < starts[short[-1]] for cookie in long) <= 3


def test_a_legacy_stream_waits_for_no_other_processes_work() -> None:
    gpu = Shared(64)
    host = gpu.submit(gpu.lib.GPU_HOST, stream=0)  # ends on request
    blocked = gpu.kernel(stream=gpu.stream(blocking=True))
    gpu.act(1)
    free = [gpu.kernel(stream=1), gpu.kernel(stream=gpu.stream(blocking=True))]
    gpu.run()
    starts = gpu.starts()
    assert {host, *free} <= starts.keys()
    assert blocked not in starts


def test_work_of_others_is_told_to_them_once_and_in_order() -> None:
    gpu = Shared(64)
    gpu.act(1)
    stream = gpu.stream()
    theirs = [gpu.kernel(us=10, stream=stream) for _ in range(100)]
    gpu.act(0)
    gpu.run()
    assert gpu.started == []
    assert list(gpu.starts()) == theirs
    assert list(gpu.starts()) == theirs


def test_the_launch_queue_is_full_before_notes_are_lost() -> None:
    gpu = Shared(64)
    gpu.act(1)
    streams = [gpu.stream() for _ in range(3)]
    for number in range(1024):
        gpu.kernel(us=10, stream=streams[number % 3])
    gpu.submit(gpu.lib.GPU_KERNEL, stream=streams[0], expect=gpu.lib.GPU_WAIT)
    gpu.act(0)
    gpu.run()
    assert len(gpu.starts()) == 1024


def test_counters_and_memory_are_counted_for_each_process_and_stay_when_it_ends() -> None:
    gpu = Shared(64)
    new = gpu.ffi.new
    for actor, blocks in enumerate((20, 30)):
        gpu.act(actor)
        gpu.create(actor * 2048, blocks)
        gpu.kernel([(actor * 2048, blocks)], stream=gpu.stream())
    gpu.run()
    infos = [new("struct gpu_owner_info *") for _ in range(2)]
    for actor, info in enumerate(infos):
        assert gpu.lib.gpu_owner_get(gpu.engine, actor, info) == 0
    assert [info.resident_bytes >> 21 for info in infos] == [20, 30]
    assert [info.counters.fault_blocks for info in infos] == [20, 30]
    assert [info.counters.kernels for info in infos] == [1, 1]
    gpu.lib.gpu_owner_leave(gpu.engine, gpu.now, gpu.hooks, 1)
    assert gpu.lib.gpu_owner_get(gpu.engine, 1, infos[1]) == gpu.lib.GPU_INVALID
    assert gpu.memory_state().free_bytes >> 21 == 44
    assert gpu.counters().fault_blocks == 50
    assert gpu.counters().kernels == 2
    gpu.check()
