"""gVisor is recognised, and every answer that holds only there is marked with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from acceptance import stage_probe
from probe import constants, host, questions, transfer


@pytest.mark.parametrize(
    ("release", "version", "known"),
    [
        ("4.19.0-gvisor", "#1 SMP Sun Jan 10 15:06:54 PST 2016", True),
        ("6.1.0", "#1 SMP gVisor release-20260101", True),
        ("4.4.0", "#1 SMP Sun Jan 10 15:06:54 PST 2016", True),
        ("4.4.0-210-generic", "#242-Ubuntu SMP Fri Apr 16 2021", False),
        ("6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC 2024", False),
    ],
)
def test_gvisor_is_recognised_by_its_name_or_its_old_version(
    monkeypatch: pytest.MonkeyPatch, release: str, version: str, known: bool
) -> None:
    monkeypatch.setattr(host.platform, "release", lambda: release)
    monkeypatch.setattr(host.platform, "version", lambda: version)
    found = host.detect_runtime()
    assert found["gvisor"] is known
    assert (found["kind"] == "gvisor") is known


def report_of(kind: str) -> dict[str, Any]:
    answer = {"status": "ok", "reason": "", "seconds": 1.0, "result": {}}
    report: dict[str, Any] = {
        "host": {"runtime": {"kind": kind}},
        "questions": {name: dict(answer) for name in questions.QUESTIONS},
    }
    transfer.mark(report)
    return report


def test_each_answer_that_holds_for_gvisor_alone_says_why_in_report_and_item() -> None:
    report = report_of("gvisor")
    marked = {name for name, answer in report["questions"].items() if transfer.KEY in answer}
    assert marked == set(transfer.QUESTIONS) <= set(questions.QUESTIONS)
    assert "UVM_DISCARD" in report["questions"]["discard"][transfer.KEY]
    items = {item.name: item for item in stage_probe.answers(report, {})}
    assert items["question.discard"].values[transfer.KEY] == transfer.DISCARD
    assert transfer.KEY not in items["question.symbols"].values
    assert set(report[transfer.KEY]) <= set(constants.derive_profile({}))


@pytest.mark.parametrize("kind", ["bare metal", "vm"])
def test_other_runtimes_have_no_such_answers(kind: str) -> None:
    report = report_of(kind)
    assert report[transfer.KEY] == {}
    assert not [name for name, answer in report["questions"].items() if transfer.KEY in answer]
