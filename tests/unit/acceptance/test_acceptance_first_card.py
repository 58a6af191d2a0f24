"""The page for the first minutes on a card: each answer leads to its outcome, and only to that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from acceptance import results
from acceptance.first_card import page as first_card
from acceptance.first_card import rows as first_card_rows
from places import ROOT
from probe import questions

ROWS = {row.name: row for row in first_card_rows.ROWS}
VERDICTS = ("shim", "bits", "failures")
RIGHT, WRONG = {"parameters": [[0, 4]]}, {"parameters": []}


def parameters(kernel: Mapping[str, Any], passed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "expected": [[0, 4]],
        "function_by_cuFuncGetParamInfo": RIGHT,
        "kernel_by_cuKernelGetParamInfo": kernel,
        "kernel_passed_to_cuFuncGetParamInfo": passed,
    }


def captures(after: str) -> dict[str, Any]:
    row = {
        "cuMemAlloc": {"capture_after": "CUDA_SUCCESS"},
        "cuEventQuery": {"capture_after": after},
    }
    return {"same_thread_relaxed": row, "other_thread_relaxed": {}}


def discards(after_us: float, survived: bool, valid: bool = True) -> dict[str, Any]:
    row = {
        "resident_write_us": 3.0,
        "discard_caller_us": 5.0,
        "write_after_discard_us": after_us,
    }
    size = {"write_then_prefetch_out": row}
    return {"2_mib": size, "8_mib": size, "control_valid": valid, "every_write_survived": survived}


def felt(*p99_us: float, elsewhere_us: float | None = None) -> dict[str, Any]:
    rows: dict[str, Any] = {"control": {"cuLaunchKernel": {"control": {"p99": 20.0}}}}
    for mib, value in zip((8, 32, 256), p99_us, strict=True):
        rows[f"evict_slices_{mib}_mib"] = {"cuLaunchKernel": {"out": {"p99": value}}}
    if elsewhere_us is not None:
        felt_there = {"cuLaunchKernel": {"out": {"p99": elsewhere_us}}}
        rows["evict_8_mib_in_another_context"] = felt_there
    return {"launch": rows}


def stuck(default: int | None, above: int | None) -> dict[str, Any]:
    rows = {"held_default": default, "held_one_above": above}
    return {"connections_8": {name: {"first_stuck_at_lanes": n} for name, n in rows.items()}}


def maps(right: bool, at: int) -> dict[str, Any]:
    row = {"us": 1.0, "bits_right": right}
    return {"on_host": row, "resident": row, "descriptor": {"address_at_byte": at}}


def shares(computes: float, faults: float, waits: float) -> dict[str, Any]:
    found = {"computes": computes, "faults": faults, "waits": waits}
    return {work: {"share": share} for work, share in found.items()}


def loads(first: float, same: float, other: float, lazy: bool = True) -> dict[str, Any]:
    """The microseconds of a first launch, and of the longest calls beside it."""

    def row(launch_us: float, longest_us: float) -> dict[str, Any]:
        return {"launch_us": launch_us, "longest_us": {"cuEventQuery": longest_us, "prefetch": 9}}

    return {
        "lazy": lazy,
        "same_context": {"known": row(8, 20), "first": row(first, same)},
        "another_context": {"known": row(8, 20), "first": row(first, other)},
    }


def polls(median: float, p99: float) -> dict[str, Any]:
    quiet = {"median": 4.0, "p99": 9.0}
    return {
        "control": quiet,
        "same_context": {"median": median, "p99": p99},
        "another": quiet,
    }


def reads(migrated: float, resident: float, *in_place: float) -> dict[str, Any]:
    row = {"migrated_us": migrated, "resident_us": resident, "in_place_us": list(in_place)}
    return {"rows_of_128": {**row, "gbps": 1.0}}


def items(*statuses: str) -> dict[str, Any]:
    return {"items": [{"name": f"i{n}", "status": status} for n, status in enumerate(statuses)]}


CASES: tuple[tuple[str, str, Any], ...] = (
    ("symbols", "known", {"asked": 9, "unmatched": []}),
    ("symbols", "hidden", {"asked": 9, "unmatched": ["cuInit version 1 flags 0"]}),
    ("param_info", "either", parameters(RIGHT, RIGHT)),
    ("param_info", "own", parameters(RIGHT, WRONG)),
    ("param_info", "wrong", parameters(WRONG, RIGHT)),
    ("capture", "holds", captures("CUDA_SUCCESS")),
    ("capture", "broken", captures("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")),
    ("kernel_speed", "same", {"memset": {"managed_over_plain": 1.004}}),
    ("kernel_speed", "slower", {"memset": {"managed_over_plain": 1.02}}),
    ("discard", "unmaps", discards(80.0, survived=True)),
    ("discard", "keeps_mappings", discards(3.0, survived=False)),
    ("discard", "undecided", discards(3.0, survived=True)),
    ("discard", "undecided", discards(80.0, survived=True, valid=False)),
    ("felt_by_others", "up_to_256", felt(21, 22, 90)),
    ("felt_by_others", "up_to_32", felt(21, 22, 9000)),
    ("felt_by_others", "up_to_8", felt(21, 800, 9000)),
    ("felt_by_others", "always", felt(300, 800, 9000)),
    ("felt_by_others", "always", felt(300, 800, 9000, elsewhere_us=290)),
    ("felt_by_others", "in_its_context", felt(300, 800, 9000, elsewhere_us=22)),
    ("felt_by_others", "up_to_32", felt(21, 22, 9000, elsewhere_us=22)),
    (
        "felt_by_others",
        "no_samples",
        {"launch": {"control": {}} | felt(1, 1, 1)["launch"] | {"control": {}}},
    ),
    ("lanes", "apart", stuck(None, None)),
    ("lanes", "priority", stuck(8, None)),
    ("lanes", "shared", stuck(8, 16)),
    ("lanes", "no_samples", {"connections_8": {"held_default": {"failed": "x"}}}),
    ("tma", "faults", maps(True, 0)),
    ("tma", "packed", maps(True, -1)),
    ("tma", "wrong_bits", maps(False, 0)),
    ("bulk", "right", {"bulk_add_leaving": {"bits_right": True}}),
    ("bulk", "wrong_bits", {"bulk_add_leaving": {"bits_right": False}}),
    ("lazy", "same_context", loads(30_000, 29_900, 30)),
    ("lazy", "everywhere", loads(30_000, 29_900, 29_800)),
    ("lazy", "drains", loads(30_000, 40, 30)),
    ("lazy", "at_once", loads(90, 40, 30)),
    ("lazy", "eager", loads(90, 40, 30, lazy=False)),
    ("poller", "free", polls(4.2, 15.0)),
    ("poller", "felt", polls(4.2, 40.0)),
    ("poller", "felt", polls(6.0, 9.0)),
    ("pinned_copies", "same", {"cuMemcpyHtoD_4_kib": {"managed_over_plain": 1.02}}),
    ("pinned_copies", "slower", {"cuMemcpyHtoD_4_kib": {"managed_over_plain": 1.3}}),
    ("remote", "in_place", reads(60_000, 100, 900, 880)),
    ("remote", "slow", reads(600, 100, 900, 880)),
    ("remote", "migrates", reads(60_000, 100, 60_000, 110)),
    ("waits", "soon", {"spinning_us": {"median": 104.0}, "blocking_us": {"median": 112.0}}),
    ("waits", "late", {"spinning_us": {"median": 104.0}, "blocking_us": {"median": 160.0}}),
    ("attributes", "known", {"differ": ["IS_MANAGED", "HOST_POINTER"]}),
    ("attributes", "more", {"differ": ["IS_MANAGED", "MAPPED"]}),
    ("engine", "kept", shares(0.5, 0.5, 1.0)),
    ("engine", "given_away", shares(0.5, 0.9, 1.0)),
    ("engine", "kept_by_waits", shares(0.5, 0.5, 0.5)),
    ("engine", "undecided", shares(1.0, 1.0, 1.0)),
    *((name, "pass", items("pass", "info")) for name in VERDICTS),
    *((name, "fail", items("pass", "fail")) for name in VERDICTS),
    *((name, "no_samples", items("unavailable")) for name in VERDICTS),
    ("speed", "pass", {"items": [{"name": "gpt2.2x.window", "status": "pass"}]}),
    ("speed", "fail", {"items": [{"name": "gpt2.2x.window", "status": "fail"}]}),
    ("speed", "undecided", {"items": [{"name": "gpt2.2x.window", "status": "info"}]}),
    ("speed", "undecided", {"items": [{"name": "gpt2.run", "status": "pass"}]}),
)


@pytest.mark.parametrize(("name", "key", "result"), CASES)
def test_each_answer_finds_its_outcome(name: str, key: str, result: Any) -> None:
    assert first_card.judged(ROWS[name], result)[0] == key


def test_each_outcome_is_an_answer_that_can_be_told_and_a_row_of_what_is_asked() -> None:
    told = {(name, key) for name, key, _ in CASES}
    for row in ROWS.values():
        keys = [outcome.key for outcome in row.outcomes]
        assert len(keys) == len(set(keys))
        known = {key for name, key in told if name == row.name} | {first_card_rows.UNSUPPORTED}
        assert set(keys) <= known and known - {first_card_rows.UNSUPPORTED} <= set(keys), row.name
    asked = list(first_card_rows.questions())
    assert asked[:8] == list(questions.FIRST[1:])
    assert set(asked) <= set(questions.QUESTIONS)


def test_an_answer_that_lacks_what_decides_marks_no_outcome() -> None:
    page = first_card.page({"questions": {"symbols": {"status": "ok", "result": {}}}}, {})
    assert first_card.MARK not in page
    assert "lacks what decides" in page


def test_the_page_marks_one_outcome_of_each_answer_and_names_other_ends() -> None:
    report = {
        "device": {"name": "NVIDIA H200"},
        "questions": {
            "symbols": {"status": "ok", "result": {"asked": 9, "unmatched": []}},
            "capture": {"status": "timeout", "reason": "no answer within 30 s", "result": {}},
            "tma": {"status": "unsupported", "reason": "libcuda has no such call", "result": {}},
            "discard": {
                "status": "ok",
                "result": discards(80.0, survived=True),
                "not_transferable": "gVisor does not pass it on",
            },
        },
    }
    page = first_card.page(report, {"bits": items("pass", "fail")})
    assert page.count(f"| {first_card.MARK} |") == 4
    assert "**Filled in:** NVIDIA H200" in page
    assert "timeout: no answer within 30 s" in page
    assert "runtime alone: gVisor does not pass it on." in page
    assert "1 pass, 1 fail: i1" in page


def first_card_of(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gpu_acceptance"), "--first-card", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_command_prints_it_from_a_folder_and_from_a_report_alone(tmp_path: Path) -> None:
    report = {"questions": {"symbols": {"status": "ok", "result": {"asked": 9, "unmatched": []}}}}
    (tmp_path / "probe").mkdir()
    file = tmp_path / "probe" / "gpu_probe.json"
    file.write_text(json.dumps(report))
    results.write(tmp_path / "bits.json", items("pass"), tmp_path)
    for place, marked in ((tmp_path, 2), (file, 1)):
        done = first_card_of(str(place))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count(f"| {first_card.MARK} |") == marked


def test_the_command_says_in_one_line_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for place in (tmp_path, tmp_path / "x.json", tmp_path / "nowhere"):
        done = first_card_of(str(place))
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and str(place) in done.stderr
        assert done.stdout == ""
