"""The acceptance's decisions from facts: machine, memory, shares of time, identity, options."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from acceptance import (
    comparing,
    contract,
    machine,
    main,
    results,
    runner,
    stage_bits,
    stage_shim,
    stages,
)
from acceptance.contract import (
    MANAGED_MOST_BYTES,
    Context,
    Item,
    RefusedError,
    managed_most_bytes,
)
from acceptance_fakes import GIB, make_machine, place
from places import SCRIPTS

CARD = {"name": "NVIDIA H200", "uuid": "GPU-1", "total_bytes": 140 * GIB, "free_bytes": 139 * GIB}


# ---- machine -----------------------------------------------------------------


def test_no_driver_and_no_virtual_gpu_is_nothing_to_run_on_and_names_the_way_out() -> None:
    with pytest.raises(machine.NothingToRunOnError, match="--virtual a100-pcie4"):
        machine.decide(None, False, {}, {})


def test_a_card_that_does_not_answer_is_named_with_its_reason() -> None:
    with pytest.raises(machine.NothingToRunOnError, match=r"CUDA_ERROR_NO_DEVICE.*--virtual"):
        machine.decide(None, True, {"error": "cuInit: CUDA_ERROR_NO_DEVICE"}, {})


def test_a_virtual_gpu_that_cannot_start_is_an_error_and_not_a_card() -> None:
    with pytest.raises(machine.NothingToRunOnError, match="virtual GPU nonsense"):
        machine.decide("nonsense", True, {"error": "no such profile"}, {})


def test_a_card_is_labelled_by_its_name_and_the_virtual_gpu_always_as_a_model() -> None:
    card = machine.decide(None, True, CARD | {"driver": "580.1"}, {})
    virtual = machine.decide("a100-pcie4", True, CARD, {})
    assert (card.label, card.driver, card.virtual) == ("NVIDIA H200", "580.1", False)
    assert virtual.label == "virtual GPU a100-pcie4, figures are a model's"
    assert virtual.virtual and virtual.driver == "virtual"


def test_the_virtual_gpu_is_never_taken_for_a_card() -> None:
    card = CARD | {"name": "NVIDIA A100-PCIE-40GB (pump virtual)"}
    with pytest.raises(machine.NothingToRunOnError, match="not a card"):
        machine.decide(None, True, card, {})
    assert machine.decide("a100-pcie4", True, card, {}).virtual


def test_where_nvml_is_silent_the_driver_is_known_by_its_cuda_version() -> None:
    assert machine.driver_version({"cuda": 13010}) == "unknown, for CUDA 13.1"
    assert machine.driver_version({"cuda": 13000, "driver": "580.1"}) == "580.1"


def test_asking_a_card_survives_programs_that_crash_and_babble(tmp_path: Path) -> None:
    shell = ["sh", "-c"]
    assert "error" in machine.ask_card({}, [*shell, "exit 3"])
    assert machine.ask_card({}, [*shell, "echo oops >&2; kill -9 $$"])["error"] == "oops"
    assert "error" in machine.ask_card({}, [*shell, "echo no json"])
    assert machine.ask_card({}, [*shell, 'echo \'{"name": "x"}\'']) == {"name": "x"}


# ---- memory guard ------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "free", "host", "most"),
    [
        (140 * GIB, 139 * GIB, 100 * GIB, 4 * GIB),
        (16 * GIB, 4 * GIB, 100 * GIB, 4 * GIB - int(1.6 * GIB)),
        (16 * GIB, 1 * GIB, 100 * GIB, 0),
        (140 * GIB, 139 * GIB, 2 * GIB, 1 * GIB),
        (0, 0, 0, 0),
    ],
)
def test_managed_memory_is_bounded_by_card_host_and_the_hard_rule(
    total: int, free: int, host: int, most: int
) -> None:
    assert abs(managed_most_bytes(total, free, host) - most) <= 1


def test_too_much_is_refused_with_both_figures_and_enough_is_passed_through() -> None:
    context = Context(
        Path(), Path(), Path(), make_machine(total_bytes=16 * GIB, free_bytes=3 * GIB)
    )
    assert context.managed(1 * GIB) == 1 * GIB
    with pytest.raises(RefusedError, match="2048 MiB of managed memory asked for, 1433 MiB may be"):
        context.managed(2 * GIB)


def test_programs_at_the_same_time_keep_the_hard_rule_together() -> None:
    assert comparing.AT_ONCE * comparing.AT_ONCE_MOST_BYTES <= MANAGED_MOST_BYTES
    assert stage_shim.FOOTPRINT_BYTES < comparing.AT_ONCE_MOST_BYTES


# ---- time --------------------------------------------------------------------


def test_stages_that_all_hang_still_end_the_core_below_nine_minutes() -> None:
    modules = {name: module for name in stages.ORDER if (module := stages.load(name)) is not None}
    limits = {name: module.LIMIT_S for name, module in modules.items()}
    left = stages.CORE_TOTAL_S - stages.BUILD_LIMIT_S
    shares = stages.shares(limits, left)
    assert sum(shares.values()) + stages.STAGE_START_S * len(shares) <= left + 1e-6
    assert stages.CORE_TOTAL_S < 540
    assert all(name == module.NAME and module.WHAT for name, module in modules.items())


def test_time_that_a_stage_did_not_need_goes_to_all_and_too_little_is_cut_alike() -> None:
    assert stages.shares({"a": 10, "b": 20}, 100) == {"a": 10, "b": 20}
    cut = stages.shares({"a": 10, "b": 20}, 15 + 2 * stages.STAGE_START_S)
    assert cut == {"a": 5, "b": 10}
    assert stages.shares({"a": 10}, 0) == {"a": 0}


def test_a_call_that_names_its_minutes_may_use_all_of_them() -> None:
    asked = {"a": 10.0, "b": 20.0}
    longer = stages.shares(asked, 60 + 2 * stages.STAGE_START_S, lengthen=True)
    assert longer == {"a": 20, "b": 40}
    cut = stages.shares(asked, 15 + 2 * stages.STAGE_START_S, lengthen=True)
    assert cut == {"a": 5, "b": 10}


@pytest.mark.parametrize(
    ("words", "limit_s"), [(["--minutes", "3"], 178.0), ([], stage_bits.LIMIT_S)]
)
def test_a_stage_takes_the_minutes_that_are_named_and_else_its_own_limit(
    words: list[str], limit_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def run(one: runner.StageRun, _machine: contract.Machine) -> dict[str, object]:
        given.append(one.limit_s)
        return {}

    monkeypatch.setattr(runner.StageRun, "run", run)
    options = main.parse(["--stage", "bits", *words])
    total_s = 60 * options.minutes if options.minutes else stages.CORE_TOTAL_S
    main.run_stages(options, place(tmp_path), time.monotonic() + total_s)
    assert given == [pytest.approx(limit_s, abs=1.0)]


# ---- results -----------------------------------------------------------------


def test_results_of_another_commit_or_card_are_not_resumed() -> None:
    mine = results.Identity("c0ffee", False, make_machine())
    assert mine.same(json.loads(json.dumps(mine.head())))
    others = (
        results.Identity("decaf", False, mine.machine),
        results.Identity("c0ffee", True, mine.machine),
        results.Identity("c0ffee", False, make_machine(uuid="GPU-2")),
        results.Identity("c0ffee", False, make_machine(kind="virtual", profile="a100-pcie4")),
    )
    assert not any(mine.same(other.head()) for other in others)


def test_verdicts_go_on_on_another_card_of_the_same_name_and_figures_do_not() -> None:
    mine = results.Identity("c0ffee", False, make_machine())
    namesake = results.Identity("c0ffee", False, make_machine(uuid="GPU-2")).head()
    other = results.Identity("c0ffee", False, make_machine(name="NVIDIA H100")).head()
    verdicts = {name for name in stages.ORDER if mine.same({**namesake, "stage": name})}
    assert verdicts == {"shim", "bits", "failures"}
    assert not any(mine.same({**other, "stage": name}) for name in stages.ORDER)


def test_late_items_and_the_runners_own_are_made_again() -> None:
    items = [
        Item("a", contract.PASS),
        Item("b", contract.FAIL, "wrong"),
        contract.late("c"),
        Item(results.STAGE_ITEM, contract.FAIL, "killed"),
        Item("d", contract.UNAVAILABLE, "no torch"),
    ]
    kept = results.finished({"items": [item.as_json() for item in items]})
    assert [item.name for item in kept] == ["a", "b", "d"]


def test_an_item_must_have_a_name_and_a_known_status() -> None:
    with pytest.raises(ValueError, match="none of"):
        Item("a", "great")
    with pytest.raises(ValueError, match="needs a name"):
        Item("", contract.PASS)
    assert dataclasses.asdict(Item("a", contract.PASS))["values"] == {}


# ---- the command -------------------------------------------------------------


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "gpu_acceptance"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--stage", "nonsense"],
        ["--minutes", "0"],
        ["--minutes", "many"],
        ["--wheels", "/nonexistent"],
        ["--what"],
        ["--out", __file__],
        ["--machine", "vax"],
    ],
)
def test_bad_arguments_end_with_status_two_and_one_line_that_names_them(words: list[str]) -> None:
    done = launch(*words)
    assert done.returncode == 2
    assert words[0] in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_results_go_below_the_folder_that_comes_back_from_a_lent_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    there = make_machine()
    out = main.results_folder(main.parse([]), there)
    assert out.parent == tmp_path and out.is_dir()
    earlier = tmp_path / "nvidia-h200-2001-01-01"
    out.rename(earlier)
    assert main.results_folder(main.parse(["--resume"]), there) == earlier
    named = tmp_path / "elsewhere"
    assert main.results_folder(main.parse(["--out", str(named)]), there) == named
    monkeypatch.delenv("OUT")
    assert main.results_base() == main.ROOT / "build" / "acceptance" / "results"


def test_without_a_card_it_ends_with_status_three_and_names_the_virtual_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "driver_loads", lambda: False)
    assert main.main([]) == 3
    said = capsys.readouterr()
    assert "--virtual" in said.err and said.out == ""
