"""Threads that the system creates and that never begin: memory runs out at their first line."""

from __future__ import annotations

import _thread
import errno
import threading
import time

import pytest

from pumpd.common import threads


def test_a_thread_runs_and_says_when_it_is_over() -> None:
    done = []
    assert threads.start(lambda: done.append(threading.get_ident())).wait(10)
    assert done != [threading.get_ident()]


def test_one_that_raises_is_over_too() -> None:
    def fails() -> None:
        raise SystemExit

    assert threads.start(fails).wait(10)


def test_one_that_never_begins_is_an_error_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "BEGIN_S", 0.1)
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: 1)
    with pytest.raises(OSError, match="did not start") as raised:
        threads.start(lambda: None)
    assert raised.value.errno == errno.EAGAIN


def test_one_that_begins_after_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    late = []
    monkeypatch.setattr(threads, "BEGIN_S", 0.1)
    monkeypatch.setattr(_thread, "start_new_thread", lambda run, _: late.append(run))
    began = time.monotonic()
    with pytest.raises(OSError):
        threads.start(lambda: pytest.fail("it was given up"))
    late[0]()
    assert time.monotonic() - began < 10


def test_without_a_thread_the_error_is_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(OSError, match="cannot start a thread"):
        threads.start(lambda: None)
