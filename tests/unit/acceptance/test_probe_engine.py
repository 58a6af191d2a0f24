"""The probe's second process: its messages on failure, and its end."""

from __future__ import annotations

import io
import json
import sys

import pytest
from probe.driver import UnsupportedError
from probe.questions import ask_engine
from probe.registry import RECORD

REASON = "the device is used by one process alone"


def second(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(sys, "argv", ["-c", body])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"""print('@@probe {{"status": "failed", "reason": "{REASON}"}}')""", REASON),
        ("print('a line of a library'); raise SystemExit(1)", "it has ended"),
    ],
)
def test_one_that_cannot_answer_makes_the_question_unsupported(
    monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    second(monkeypatch, body)
    with ask_engine.second_process() as other, pytest.raises(UnsupportedError, match=said):
        ask_engine.beside(other, "rests", None)


def test_one_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    second(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(ask_engine, "END_S", 0.1)
    with ask_engine.second_process() as other:
        pass
    assert other.returncode == -9


class Fake:
    """Acts as a GPU that moves and computes nothing."""

    def written(self, _length: int) -> int:
        return 1

    def plain(self, _length: int) -> int:
        return 1

    def pinned(self, _length: int) -> int:
        return 1

    def move(self, _address: int, _length: int, _to: int) -> None:
        pass


def test_it_works_as_told_and_ends_with_its_orders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ask_engine, "WORK_S", 0.01)
    orders = io.StringIO("rests\ngo\nrests\ngo\n")
    ask_engine.serve(Fake(), None, orders)  # type: ignore[arg-type]
    said = [json.loads(line.removeprefix(RECORD)) for line in capsys.readouterr().out.splitlines()]
    assert [list(one) for one in said] == [["ready"], ["ns"]] * 2
    assert all(one["ns"] >= 1e7 for one in said[1::2])
