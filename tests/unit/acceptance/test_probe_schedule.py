"""How the probe shares its time among its questions, with a fake clock and scripted children."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance import stage_probe, stages
from probe import asking, children, entry, kernels, questions, registry
from probe.questions import ask_felt, ask_lanes

TOLD_S = {
    "machine": 0.9,
    "symbols": 0.8,
    "param_info": 0.8,
    "capture": 0.7,
    "kernel_speed": 1.5,
    "discard": 2.0,
    "lanes": 4.0,
    "tma": 1.1,
}
"""Seconds that children of the first questions take on an idle machine, without timed loops."""
LOOPS_SHARE = {"felt_by_others": ask_felt.FEEL_SHARE, "lanes": ask_lanes.BUSY_SHARE}
"""The largest share of the remaining limit that a question's timed loops take."""
FIRST_EIGHT = (
    *("symbols", "param_info", "capture", "kernel_speed"),
    *("discard", "felt_by_others", "lanes", "tma"),
)


class Machine:
    """Advances a clock by the time that children take, and keeps their statuses."""

    def __init__(self, needs_s: Callable[[str, float], float]) -> None:
        self.now_s, self.needs_s = 0.0, needs_s
        self.statuses: dict[str, str] = {}

    def clock(self) -> float:
        return self.now_s

    def ask(self, asked: Any, limit_s: float, _terms: children.Terms) -> dict[str, Any]:
        needed_s = self.needs_s(asked.name, limit_s)
        late = needed_s > limit_s
        self.now_s += limit_s + children.KILL_GRACE_S / 2 if late else needed_s
        self.statuses[asked.name] = "timeout" if late else "ok"
        return {
            "status": self.statuses[asked.name],
            "reason": "",
            "seconds": needed_s,
            "result": {},
        }

    def run(self, tmp_path: Path, time_limit_s: float) -> None:
        words = ["--out", str(tmp_path / "report.json"), "--time-limit", str(time_limit_s)]
        assert asking.probe(entry.parse_arguments(words), self.ask, self.clock) == 0


def slow(name: str, limit_s: float) -> float:
    """Returns ten times an idle machine's seconds; timed loops keep to the limit that they know."""
    fixed_s = 10 * TOLD_S.get(name, 1.5)
    return fixed_s + LOOPS_SHARE.get(name, 0.0) * max(0.0, limit_s - fixed_s)


def test_what_the_design_needs_most_is_asked_first() -> None:
    assert tuple(questions.QUESTIONS)[:9] == ("machine", *FIRST_EIGHT)
    assert ("machine", *FIRST_EIGHT) == questions.FIRST


@pytest.mark.parametrize("stage", [False, True])
def test_children_ten_times_as_slow_still_answer_the_first_eight_questions(
    tmp_path: Path, stage: bool
) -> None:
    """This holds for a call of the probe only, and for its share of a call that runs all stages."""
    limits = {name: stages.load(name).LIMIT_S for name in stages.ORDER}  # type: ignore[union-attr]
    share_s = stages.shares(limits, stages.CORE_TOTAL_S)["probe"] - stage_probe.RESERVE_S
    machine = Machine(slow)
    machine.run(tmp_path, share_s if stage else asking.TOTAL_LIMIT_S)
    assert {machine.statuses[name] for name in FIRST_EIGHT} == {"ok"}
    assert machine.now_s < 9 * 60


def test_children_that_all_hang_leave_each_first_question_its_share(tmp_path: Path) -> None:
    machine = Machine(lambda _name, limit_s: limit_s + 1)
    machine.run(tmp_path, asking.TOTAL_LIMIT_S)
    assert set(machine.statuses) >= set(FIRST_EIGHT)
    assert machine.now_s < 9 * 60


def test_a_question_is_never_given_more_than_its_own_limit_or_what_is_left() -> None:
    every = list(questions.QUESTIONS.values())
    for turn, asked in enumerate(every):
        for left_s in (1.0, 50.0, 345.0, 1e6):
            given_s = asking.limit_s(asked, every[turn + 1 :], left_s) if asked.limit_s else 0.0
            assert given_s <= min(asked.limit_s, left_s) + 1e-9


def test_kernels_are_compiled_once_for_all_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = []

    def compiling(arch: int, source: str) -> kernels.Images:
        compiled.append((arch, source))
        return b"cubin of " + source.encode(), b"ptx"

    monkeypatch.setattr(kernels, "compile_kernels", compiling)
    for _child in range(3):
        assert kernels.cached_kernels(tmp_path, 80, "a") == (b"cubin of a", b"ptx")
    kernels.cached_kernels(tmp_path, 90, "a")
    kernels.cached_kernels(tmp_path, 80, "b")
    assert compiled == [(80, "a"), (90, "a"), (80, "b")]


def test_a_question_of_several_environments_has_an_answer_of_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "child"
    script.write_text(
        "import json, os\n"
        "value = os.environ['OF_THIS_TEST']\n"
        "status = 'unsupported' if value == 'b' else 'ok'\n"
        "print('@@probe ' + json.dumps({'note': 'seen', 'value': value}))\n"
        "print('@@probe ' + json.dumps({'status': status, 'reason': status.replace('ok', '')}))\n"
    )
    monkeypatch.setattr(sys, "argv", [str(script)])
    environments = {label: {"OF_THIS_TEST": label} for label in ("a", "b")}
    asked = registry.Question(
        "x", "a question of this test", 20, questions.never, True, "", environments
    )
    answer = children.ask(asked, 20.0, children.Terms(1 << 30))
    assert (answer["status"], answer["reason"]) == ("ok", "b: unsupported")
    assert answer["result"] == {"a": {"seen": "a"}, "b": {"seen": "b"}}
