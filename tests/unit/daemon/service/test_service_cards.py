"""The service's knowledge of GPUs: NVML in a process of its own, and the memory to share."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import MAIN, NVML
from supervisor_client import eventually

from pump.model.bounds import without_reserve
from pumpd.service import cards
from pumpd.service.cards import Cards
from pumpd.service.gpus import EARLIER, Gpu

MIB = 1 << 20
UUID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulates a machine with one GPU; returns the file that contains its used bytes."""
    (tmp_path / "pynvml.py").write_text(NVML)
    path = [str(tmp_path), *(entry for entry in sys.path if entry)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setattr(cards, "READER", [sys.executable, "-c", MAIN])
    monkeypatch.setenv("USED", str(tmp_path / "used"))
    monkeypatch.setattr(cards, "CONTROL_NODES", (str(tmp_path),))
    (tmp_path / "used").write_text(str(100 * MIB))
    return tmp_path / "used"


class Watched:
    """Runs Cards, and keeps the used bytes that they report."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.cards = Cards()
        self.told: list[int] = []
        self.cards.watch(self.selector, lambda used: self.told.append(used[UUID]))

    def turn(self, now: float | None = None, *, jobs: bool = True) -> None:
        for key, events in self.selector.select(0.01):
            key.data(events)
        self.cards.on_time(time.monotonic() if now is None else now, 0.0, jobs)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            self.turn()
            return condition()

        eventually(holds, what)


@pytest.fixture
def watched(used: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(cards, "ASK_S", 0.05)
    one = Watched()
    yield one
    one.cards.close()
    one.selector.close()


def test_what_is_used_of_a_gpu_is_asked_again_and_again_while_there_are_jobs(
    used: Path, watched: Watched
) -> None:
    assert watched.cards.total_bytes == {UUID: 1000 * MIB}
    watched.until(lambda: watched.told[-1:] == [100 * MIB], "an answer")
    used.write_text(str(300 * MIB))
    watched.until(lambda: watched.told[-1] == 300 * MIB, "another answer")
    process = watched.cards._process
    assert process is not None
    watched.until(lambda: watched.cards._asked is None, "no question")
    watched.turn(time.monotonic() + cards.KEEP_S + 1, jobs=False)
    assert watched.cards.due is None, "nothing wakes an idle service"
    assert process.wait(10) != 0, "an idle GPU may sleep"
    watched.until(lambda: watched.cards._process is not None, "a process again")


def test_a_driver_that_hangs_is_left_alone_and_asked_again_much_later(
    used: Path, watched: Watched
) -> None:
    watched.until(lambda: bool(watched.told), "an answer")
    process = watched.cards._process
    assert process is not None
    used.write_text("hangs")
    watched.until(lambda: watched.cards._asked is not None, "a question")
    count = len(watched.told)
    now = time.monotonic()
    watched.turn(now + cards.ANSWER_S + 1)
    assert watched.cards._process is None and process.wait(10) != 0
    assert watched.cards.due is not None and watched.cards.due >= now + cards.AGAIN_S
    used.write_text("5")
    watched.turn(watched.cards.due)
    watched.until(lambda: watched.told[count:] == [5], "an answer after that")


def test_a_process_that_dies_tells_nothing_and_is_begun_anew(watched: Watched) -> None:
    watched.until(lambda: bool(watched.told), "an answer")
    process = watched.cards._process
    assert process is not None
    process.kill()
    process.wait()
    watched.until(lambda: watched.cards._process is None, "the end to be seen")
    count = len(watched.told)
    watched.turn(time.monotonic() + cards.AGAIN_S + 1)
    watched.until(lambda: len(watched.told) > count, "an answer of the next one")


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stops and continues the process repeatedly within the context."""
    ends = threading.Event()

    def slow() -> None:
        while not ends.wait(0.02):
            os.kill(pid, signal.SIGSTOP)
            ends.wait(0.1)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    yield
    ends.set()
    thread.join()


def test_a_process_that_is_stopped_is_killed_and_a_slow_one_is_waited_for(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "ANSWER_S", 1.0)
    watched.until(lambda: bool(watched.told), "an answer")
    process = watched.cards._process
    assert process is not None
    with slowed(process.pid):
        count = len(watched.told)
        watched.until(lambda: len(watched.told) > count + 2, "answers of a slow one")
    os.kill(process.pid, signal.SIGSTOP)
    watched.until(lambda: watched.cards._process is None, "the end of a stopped one")
    assert process.wait(10) == -signal.SIGKILL
    assert watched.cards.due is not None and watched.cards.due > time.monotonic() + 30


def test_a_service_that_ends_leaves_no_process_not_even_one_that_is_stopped(used: Path) -> None:
    one = Cards()
    process = one._process
    assert process is not None and one.total_bytes == {UUID: 1000 * MIB}
    os.kill(process.pid, signal.SIGSTOP)
    one.close()
    assert process.wait(10) == -signal.SIGKILL


def test_without_a_control_node_no_process_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "CONTROL_NODES", ("/nonexistent/node",))
    one = Cards()
    one.on_time(1e9, 2.0, True)
    assert one.total_bytes == {} and one.due is None and one._process is None


# ---- memory of a GPU that can be shared ----


def sampled(gpu: Gpu, used_mib: int, **held_mib: int) -> int:
    """Adds a sample; returns the unaccounted memory, in MiB."""
    gpu.measured(used_mib * MIB, {int(job[1:]): mib * MIB for job, mib in held_mib.items()})
    return (gpu.unaccounted_bytes or 0) // MIB


def test_what_jobs_do_not_account_for_is_not_shared() -> None:
    gpu = Gpu(1000 * MIB)
    gpu.found(1, 900 * MIB)
    assert gpu.usable_bytes == 900 * MIB, "the job's word, before there is NVML's"
    sampled(gpu, 500, j1=200)
    assert sampled(gpu, 500, j1=200) == 300
    assert gpu.usable_bytes == without_reserve(700 * MIB)
    assert [sampled(gpu, 250, j1=200) for _ in range(3)][-1] == 50, "a program has ended"


def test_a_job_that_grows_between_two_samples_is_no_other_program() -> None:
    gpu = Gpu(1000 * MIB)
    for most in range(0, 800, 100):
        gpu.reported(1, (most + 100) * MIB)  # held at the sample, but reported late
        assert sampled(gpu, most + 50, j1=most) <= 50
    for _ in range(3):
        last = sampled(gpu, 850, j1=800)
    assert last == 50


def test_a_gpu_that_is_full_has_more_taken_from_it_than_is_known() -> None:
    gpu = Gpu(1000 * MIB)
    for _ in range(3):
        sampled(gpu, 900, j1=450, j2=450)
    assert sampled(gpu, 1000, j1=450, j2=450) == 125
    assert sampled(gpu, 1000, j1=430, j2=430) == 375
    assert sampled(gpu, 900, j1=300, j2=300) == 375, "full no more: wait and see"
    assert sampled(gpu, 900, j1=300, j2=300) == 300


def test_reports_that_go_up_and_down_hold_back_what_has_come_free_for_a_while_only() -> None:
    gpu = Gpu(1000 * MIB)
    for _ in range(3):
        sampled(gpu, 700, j1=300, j2=100)
    assert sampled(gpu, 700, j1=300, j2=100) == 300
    for _ in range(60):  # the program has ended, and job 2 varies its reports
        gpu.reported(2, 0)
        gpu.reported(2, 100 * MIB)
        left = sampled(gpu, 400, j1=300, j2=100)
    assert left < 150


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ([(1, 500)], 500),
        ([(1, 500), (2, 900)], 900),
        ([(1, 500), (2, 520), (3, 960)], 520),
        ([(1, 500), (2, 520), (3, 0)], 500),
        ([(1, 500), (1, 400), (2, 0), (2, 10)], 500),
        ([(EARLIER, 800), (2, 0)], 800),
        ([(1, 5000)], 970),
    ],
)
def test_without_nvml_the_upper_median_of_users_counts(
    said: list[tuple[int, int]], counts: int
) -> None:
    gpu = Gpu(1000 * MIB)
    for user, mib in said:
        gpu.found(user, mib * MIB)
    assert gpu.usable_bytes == counts * MIB
