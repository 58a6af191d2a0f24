"""The probe's questions about lanes, tensor maps and the engine, answered by the virtual driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance.first_card import rows as first_card_rows
from probe.questions import ask_lanes
from probe_recovery import KERNELS, PROBE, PUMP_RUN

pytest.importorskip("cuda.bindings.nvrtc")
if shutil.which("cc") is None:
    pytest.skip("no C compiler", allow_module_level=True)
pytestmark = pytest.mark.alone

LIMIT_S = "20"
"""Time limit of the run; it shortens the timed loops."""


def asked(folder: Path, setting: str, *names: str) -> dict[str, Any]:
    """Returns the virtual driver's answers with the given setting."""
    library = folder / "kernels.so"
    words = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(KERNELS)]
    subprocess.run(words, check=True)
    done = subprocess.run(
        [
            *(str(PUMP_RUN), "--virtual", "h200-pcie5", "--virtual-set", "copies=modelled"),
            *("--virtual-set", setting, "--"),
            *(sys.executable, str(PROBE), "--only", *names, "--time-limit", LIMIT_S),
        ],
        env={
            **os.environ,
            "PUMP_DISABLE": "1",
            "PUMP_VIRTUAL_KERNELS": str(library),
            "PUMP_VIRTUAL_CARDS": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["questions"]
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asked(tmp_path_factory.mktemp("questions"), "queues=apart", "lanes", "tma", "bulk")


def test_lanes_are_held_and_busy_in_each_environment_and_at_each_priority(
    answers: dict[str, Any],
) -> None:
    assert answers["lanes"]["status"] == "ok", answers["lanes"]
    result = answers["lanes"]["result"]
    assert set(result) == set(ask_lanes.CONNECTIONS)
    brought = 0.0
    for row in result.values():
        for name in row["priorities"]:
            held, busy = row[f"held_{name}"], row[f"busy_{name}"]
            assert len(held["streams_stuck"]) == len(ask_lanes.HELD_LANES), held
            assert set(busy) == {f"{count}_lanes" for count in ask_lanes.BUSY_LANES}
            brought += sum(one["brought_gbps"] for one in busy.values())
    assert brought > 0, "no lane brought anything"


def test_lanes_of_another_priority_are_judged_by_whether_they_hold_streams_up(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    shared = asked(tmp_path, "queues=shared", "lanes")["lanes"]["result"]
    for result, expected in ((answers["lanes"]["result"], "priority"), (shared, "shared")):
        answer, said = first_card_rows.lanes(result)
        assert answer == expected, said


BESIDE = ("lazy", "poller", "pinned_copies", "waits", "attributes")


@pytest.mark.parametrize(("locks", "expected"), [("lazy", "same_context"), ("none", "eager")])
def test_questions_about_loads_polls_copies_and_waits_find_what_the_model_has(
    tmp_path: Path, locks: str, expected: str
) -> None:
    names = BESIDE if locks == "lazy" else ("lazy",)
    answers = asked(tmp_path, f"locks={locks}", *names)
    assert {answers[name]["status"] for name in names} == {"ok"}, answers
    key, said = first_card_rows.lazy(answers["lazy"]["result"])
    assert key == expected, said
    if locks == "lazy":
        for row in ("poller", "pinned_copies", "waits"):
            assert getattr(first_card_rows, row)(answers[row]["result"])[1], row
        assert first_card_rows.attributes(answers["attributes"]["result"])[0] == "known", answers


@pytest.mark.parametrize("name", ["tma", "bulk"])
def test_tensor_maps_are_unsupported_where_no_kernel_can_use_one(
    answers: dict[str, Any], name: str
) -> None:
    answer = answers[name]
    assert answer["status"] == "unsupported" and not set(answer["result"]) - {"descriptor"}
    assert answer["reason"]


def test_tensor_maps_compile_for_the_first_card_that_has_them(tmp_path: Path) -> None:
    from probe.kernels import cached_kernels
    from probe.questions import ask_bulk, ask_tma

    cubin, ptx = cached_kernels(tmp_path, ask_tma.ARCH_LEAST, ask_tma.SOURCE)
    assert cubin[:4] == b"\x7fELF"
    assert b"cp.async.bulk.tensor.1d" in ptx
    cubin, ptx = cached_kernels(tmp_path, ask_tma.ARCH_LEAST, ask_bulk.SOURCE)
    assert cubin[:4] == b"\x7fELF"
    assert all(f".entry {name}(".encode() in ptx for name in ask_bulk.KERNELS)


def test_a_process_whose_kernel_waits_for_faults_keeps_the_engine_of_a_shared_card(
    tmp_path: Path,
) -> None:
    answer = asked(tmp_path, "shared=card", "engine")["engine"]
    assert answer["status"] == "ok", answer
    assert first_card_rows.engine(answer["result"])[0] == "kept", answer


def test_processes_on_cards_of_their_own_do_not_share_an_engine(tmp_path: Path) -> None:
    result = asked(tmp_path, "queues=apart", "engine")["engine"]["result"]
    assert first_card_rows.engine(result)[0] == "undecided", result
