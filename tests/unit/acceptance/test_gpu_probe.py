"""scripts/gpu_probe without a GPU: arguments, guard, statistics, profile, watchdog.

Nothing here calls a driver: only a card can show that the questions are right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from probe import (
    asking,
    children,
    constants,
    driver,
    entry,
    figures,
    gpu,
    kernels,
    questions,
    registry,
)
from probe.questions import ask_link, ask_symbols

SCRIPT = ROOT / "scripts" / "gpu_probe"
PACKAGE = ROOT / "tests" / "acceptance" / "probe"


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *args],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | env,
        check=False,
    )


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--only", "no_such_question"), "no_such_question"),
        (("--skip", "no_such_question"), "no_such_question"),
        (("--max-managed", "5G"), "hard cap"),
        (("--max-managed", "lots"), "'lots' is no size"),
        (("--max-managed", "0"), "'0' is no size"),
        (("--max-managed", ""), "'' is no size"),
        (("--out", "/no/such/folder/x.json"), "/no/such/folder/x.json"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_bad_arguments_are_named_and_end_with_two(arguments: tuple[str, ...], named: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 2
    assert named in ended.stderr
    assert ended.stdout == ""


def test_sizes_are_read_with_their_suffixes() -> None:
    assert [entry.parse_size(text) for text in ("4096", "8K", "512m", "4G")] == [
        4096,
        8192,
        512 << 20,
        4 << 30,
    ]


def test_the_list_needs_no_driver_and_names_every_question_once() -> None:
    ended = run("--list", LD_LIBRARY_PATH="")
    assert ended.returncode == 0
    assert [line.split()[0] for line in ended.stdout.splitlines()] == list(questions.QUESTIONS)


def test_without_a_driver_there_is_one_clear_line_and_exit_three(tmp_path: Path) -> None:
    # A non-library file, first on the search path, acts as a missing driver on every machine.
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    out = tmp_path / "report.json"
    ended = run("--out", str(out), LD_LIBRARY_PATH=str(tmp_path))
    assert ended.returncode == 3
    assert len(ended.stderr.splitlines()) == 1
    assert "libcuda.so.1" in ended.stderr
    assert not out.exists()


# ---- one file to carry


def test_one_file_asks_from_an_empty_folder_what_the_checkout_asks(tmp_path: Path) -> None:
    carried = tmp_path / "gpu_probe"
    assert run("--carry", str(carried)).returncode == 0
    words = [sys.executable, "-I", str(carried)]
    empty = tmp_path / "empty"
    empty.mkdir()

    def carried_run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *args],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=empty,
            env=os.environ | env,
            check=False,
        )

    assert carried_run("--list").stdout == run("--list").stdout
    again = carried_run("--carry", str(empty / "other"))
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)
    assert "was carried itself" in again.stderr
    # A child of the carried file starts too, and reports the missing library.
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    child = carried_run("--question", "machine", LD_LIBRARY_PATH=str(tmp_path))
    assert json.loads(child.stdout.removeprefix(registry.RECORD))["status"] == "no_driver"
    assert list(empty.iterdir()) == []


# ---- registry


def test_the_registry_bounds_and_explains_every_question() -> None:
    for name, asked in questions.QUESTIONS.items():
        assert name == asked.name
        assert len(asked.decides) > 10
        assert asked.not_asked or 0 < asked.limit_s <= 75
    assert next(iter(questions.QUESTIONS)) == "machine"
    assert asking.TOTAL_LIMIT_S + children.KILL_GRACE_S < 360


def test_what_needs_oversubscription_is_never_asked() -> None:
    for name in ("eviction_order", "eviction_cost"):
        assert "oversubscription" in questions.QUESTIONS[name].not_asked


def test_only_and_skip_choose_but_the_machine_is_always_asked() -> None:
    def chosen(only: list[str] | None, skip: list[str]) -> set[str]:
        return {asked.name for asked, yes in asking.selected(only, skip) if yes}

    assert chosen(["faults"], []) == {"machine", "faults"}
    assert chosen(["faults", "duplex"], ["faults", "machine"]) == {"machine", "duplex"}
    assert chosen(None, ["faults"]) == set(questions.QUESTIONS) - {"faults"}


def test_every_driver_call_of_the_script_has_a_signature() -> None:
    import re

    text = "".join(file.read_text() for file in PACKAGE.rglob("*.py"))
    used = re.findall(r'\b(?:call|timed|native|handle_of)\(\s*"(cu\w+)"', text)
    assert used and set(used) <= set(driver.SIGNATURES)


def test_kernels_are_compiled_or_their_absence_is_explained() -> None:
    try:
        cubin, ptx = kernels.compile_kernels(80)
    except driver.UnsupportedError as error:
        pytest.skip(f"no NVRTC here: {error}")
    for name in ("probe_empty", "probe_fill", "probe_chain", "probe_struct"):
        assert f".entry {name}".encode() in ptx
        assert name.encode() in cubin
    assert cubin[:4] == b"\x7fELF"


# ---- memory guard


GIB = 1 << 30


def test_the_guard_allows_what_stays_below_cap_and_free_memory() -> None:
    assert gpu.managed_refusal(GIB, 0, 80 * GIB, 4 * GIB) is None
    assert gpu.managed_refusal(GIB, 3 * GIB, 80 * GIB, 4 * GIB) is None
    assert gpu.managed_refusal(900, 0, 1000, 4 * GIB) is None


@pytest.mark.parametrize(
    ("asked", "held", "free", "cap", "why"),
    [
        (GIB + 1, 3 * GIB, 80 * GIB, 4 * GIB, "cap"),
        (5 * GIB, 0, 80 * GIB, 100 * GIB, "cap"),  # the hard cap holds for any --max-managed
        (GIB, 0, 80 * GIB, GIB - 1, "cap"),
        (901, 0, 1000, 4 * GIB, "90 %"),
        (1, 900, 1000, 4 * GIB, "90 %"),
        (1, 0, 0, 4 * GIB, "90 %"),
        (0, 0, GIB, GIB, "no sense"),
        (-5, 0, GIB, GIB, "no sense"),
    ],
)
def test_the_guard_refuses(asked: int, held: int, free: int, cap: int, why: str) -> None:
    assert why in (gpu.managed_refusal(asked, held, free, cap) or "")


def test_managed_memory_is_only_allocated_behind_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_call(name: str, *_: Any) -> int:
        raise AssertionError(f"{name} was called although the guard must refuse")

    card = object.__new__(gpu.Gpu)
    card.held, card.managed_cap = {1: GIB}, 2 * GIB
    monkeypatch.setattr(gpu, "handle_of", no_call)
    monkeypatch.setattr(gpu, "call", no_call)
    card.memory_info = lambda: (100 * GIB, 141 * GIB)
    with pytest.raises(driver.GuardError, match="cap"):
        card.managed(GIB + 1)
    card.memory_info = lambda: (2 * GIB, 141 * GIB)
    with pytest.raises(driver.GuardError, match="90 %"):
        card.managed(GIB)
    with pytest.raises(driver.GuardError, match="leave too little"):
        card.plain(GIB)


# ---- statistics


def test_percentiles_interpolate_between_samples() -> None:
    assert figures.percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert figures.percentile([7.0], 0.99) == 7.0
    assert figures.percentile(list(range(101)), 0.9) == 90
    with pytest.raises(ValueError, match="nothing"):
        figures.percentile([], 0.5)


def test_a_summary_is_sorted_scaled_and_complete() -> None:
    found = figures.us([3000, 1000, 2000])
    assert found == {
        "n": 3,
        "median": 2.0,
        "p10": 1.2,
        "p90": 2.8,
        "p99": 2.98,
        "min": 1.0,
        "max": 3.0,
    }
    assert figures.us([]) == {"n": 0}


def test_a_line_is_recovered_from_its_points() -> None:
    fixed, per_block = figures.line_fit([(x, 8 + 6 * x) for x in (1, 2, 64, 128)])
    assert fixed == pytest.approx(8)
    assert per_block == pytest.approx(6)
    # One large point that is 20 % off must not distort the fixed part.
    noisy = [(x, 8 + 6 * x) for x in (2, 4, 8, 16, 32, 64)] + [(128, 1.2 * (8 + 6 * 128))]
    assert 0 < figures.line_fit(noisy)[0] < 10
    for points in ([], [(1, 2)], [(3, 1), (3, 2)]):
        with pytest.raises(ValueError, match="two different x"):
            figures.line_fit(points)


def test_overlapping_transfers_yield_the_share_kept_while_both_run() -> None:
    # Without other traffic, 1000 bytes take 1000 ns. The transfer took 1200 ns and shared the first
    # 1000. The last 200 ns moved 200 bytes, so the shared 1000 ns moved 800.
    assert ask_link.overlap_rate((0, 1200), (0, 1000), 1000, 1.0) == pytest.approx(0.8)
    assert ask_link.overlap_rate((0, 1000), (0, 1000), 1000, 1.0) == 1.0
    assert ask_link.overlap_rate((0, 1000), (1000, 2000), 1000, 1.0) is None
    assert ask_link.overlap_rate((0, 1000), (0, 1000), 1000, 0.0) is None


def test_only_changes_of_an_answer_are_kept_in_the_symbol_table() -> None:
    rows = {"0": {"13000": "b", "3020": "a", "8000": "a", "12020": "b"}}
    assert ask_symbols.compress(rows) == {"0": {"3020": "a", "12020": "b"}}


# ---- profile


BASE_REPLAY, BLOCK, PAGE, UNMAP, NONREPLAYABLE = 30.0, 10.0, 0.5, 20.0, 50.0
DEMAND, MEMSET, D2H = 12.0, 1000.0, 25.0
WARM, WAKE = 3.0, 75.0


def pages_us(blocks: int, pages: int, copied: bool) -> float:
    """Returns the time for `pages` 64 KiB pages in each of `blocks` blocks, without batch costs."""
    page_us = PAGE + 64 * 1024 / 1e3 / (DEMAND if copied else MEMSET)
    return blocks * (pages * page_us + (UNMAP if copied else 0))


def fault_us(blocks: int, pages: int, copied: bool) -> float:
    """Returns the time of one batch that need not wait for another."""
    return WARM + WAKE + BASE_REPLAY + blocks * BLOCK + pages_us(blocks, pages, copied)


def sweep_us(blocks: int, copied: bool) -> float:
    """Returns the time of six batches for each block, one after another."""
    return WARM + 6 * blocks * (BASE_REPLAY + BLOCK) + pages_us(blocks, 32, copied)


def fault_answers() -> dict[str, Any]:
    answers: dict[str, Any] = {"warm_touch_us": {"p10": WARM}}
    for kind, copied in (("", True), ("fresh_", False)):
        slope = fault_us(2, 1, copied) - fault_us(1, 1, copied)
        answers[f"{kind}fit_one_page_a_block"] = {"per_block_us": slope}
        answers[f"{kind}one_page_in_each_of_1_blocks_us"] = {"p10": fault_us(1, 1, copied)}
        for pages in (1, 32):
            name = f"{kind}{pages}_slots_of_64_kib_in_one_block_us"
            answers[name] = {"p10": fault_us(1, pages, copied)}
    answers["sequential_write"] = {"us": {"p10": sweep_us(128, True)}}
    answers["fresh_sequential_write_us"] = {"p10": sweep_us(128, False)}
    return answers


def test_the_profile_undoes_the_cost_model() -> None:
    block_us = (2 << 20) / D2H / 1e3
    memset_us = WARM + 32 * (fault_us(1, 32, True) - WARM - WAKE + NONREPLAYABLE)
    answers = {
        "copy_engine": {
            "d2h_gbps": D2H,
            "h2d_gbps": 26.0,
            "h2d_share_in_company": 0.8,
            "d2h_share_in_company": 0.9,
        },
        "prefetch_idle": {
            "256_mib": {"in": {"gbps": 21.0}, "in_after_a_fault_each": {"gbps": 22.0}},
            "fit_in_total": {"per_block_us": (2 << 20) / 23.0 / 1e3},
            "refused_us": {"p10": 1.0},
            "fit_in_caller": {"per_block_us": 10.4 + UNMAP},
            "2_mib": {"out": {"caller_us": {"p10": 17.0 + block_us + 512 * 0.25}}},
        },
        "prefetch_threads": {"slices_8_mib_threads_2": {"in_gbps": {"max": 22.5}}},
        "populate": {
            "2_mib": {"prefetch": {"caller_us": {"p10": 17.0}}},
            "fit_prefetch_caller": {"per_block_us": 10.4},
        },
        "discard": {
            "refused_us": {"p10": 1.0},
            "fit_caller": {"fixed_us": 9.0, "per_block_us": 12.0},
        },
        "duplicates": {
            "refused_us": {"p10": 1.0},
            "fit_end": {"fixed_us": 9.0, "per_block_us": 12.0},
            "collapse": {"fit": {"per_block_us": 2 * (BASE_REPLAY + BLOCK) + 512 * 0.5}},
        },
        "way_back": {"first_out_extra_us_per_block": 150.0},
        "faults": fault_answers(),
        "kernel_speed": {"memset": {"plain_gbps": MEMSET}, "copy_kernel": {"plain_gbps": 1300}},
        "small_copies": {
            "cuMemsetD8Async_on_host": {"us": {"p10": memset_us}},
            "cuMemsetD8Async_resident": {"us": {"p10": WARM}},
        },
        "markers": {
            "us_per_launch_marker_every_never": {"p10": 3.0},
            "idle_launch_us": {"p10": 9.0},
            "idle_refused_us": {"p10": 2.5},
            "idle_nothing_us": {"p10": 1.0},
        },
    }
    found = constants.derive_profile({name: {"result": result} for name, result in answers.items()})
    expected = {
        "bw_h2d_gbps": 23.0,
        "copy_h2d_gbps": 26.0,
        "bw_demand_gbps": 1 / (1 / DEMAND - 1 / MEMSET),
        "delta_in": 0.8,
        "delta_out": 0.9,
        "t_wake_us": WAKE,
        "t0_replay_us": BASE_REPLAY,
        "t_blk_us": BLOCK,
        "t_pg_us": PAGE,
        "t_call_hblk_us": 16.0,
        "t_hblk_passes_us": 10.4,
        "t_cpupte_us": 0.25,
        "t_cpuunmap_us": UNMAP,
        "t_hostalloc_us": 150.0,
        "t_nonreplayable_us": NONREPLAYABLE,
        "t_discard_us": 8.0,
        "t_discard_block_us": 12.0,
        "t_advise_us": 8.0,
        "t_advise_block_us": 12.0,
        "t_collapse_page_us": 0.5,
        "bw_memset_gbps": MEMSET,
        "kernel_gbps": 1300,
        "kernel_min_us": 3.0,
        "kernel_launch_us": 4.0,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0.01), name
    assert found["t_ev_us"] is None, "only oversubscription could tell"


def test_demand_paging_is_never_told_to_be_faster_than_prefetching() -> None:
    faults = fault_answers()
    faults["sequential_write"]["us"]["p10"] *= 0.9
    answers = {"faults": faults, "prefetch_idle": {"256_mib": {"in": {"gbps": 14.0}}}}
    found = constants.derive_profile({name: {"result": result} for name, result in answers.items()})
    assert found["bw_demand_gbps"] == 14.0


def test_a_profile_of_nothing_is_all_unknown() -> None:
    found = constants.derive_profile({"faults": {"status": "skipped"}})
    assert found and set(found.values()) == {None}


# ---- children and the watchdog


def question_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> Any:
    """Returns a question whose child runs `body` instead of asking a card."""
    script = tmp_path / "child"
    script.write_text("import os, sys, time\n" + body)
    monkeypatch.setattr(sys, "argv", [str(script)])
    return registry.Question("faults", "a question of this test", 20, questions.never, True)


TERMS = children.Terms(GIB)
NOTE = """print('@@probe {"note": "a", "value": 1}', flush=True)\n"""


def test_a_hanging_question_is_killed_and_keeps_what_it_had_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = question_of(monkeypatch, tmp_path, NOTE + "time.sleep(60)")
    begin = time.monotonic()
    answer = children.ask_in_child(asked, 1.0, TERMS, {})
    assert time.monotonic() - begin < 10
    assert answer["status"] == "timeout"
    assert "within 1 s" in answer["reason"]
    assert answer["result"] == {"a": 1}


def test_a_crashing_question_is_a_failure_with_its_reason_and_its_notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = NOTE + "sys.stderr.write('boom'); sys.stderr.flush(); os.kill(os.getpid(), 11)"
    answer = children.ask_in_child(question_of(monkeypatch, tmp_path, body), 20.0, TERMS, {})
    assert answer["status"] == "failed"
    assert "-11" in answer["reason"]
    assert answer["stderr"] == "boom"
    assert answer["result"] == {"a": 1}


def test_a_finished_question_is_read_through_foreign_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = (
        "print('a driver talks')\n"
        + NOTE
        + (
            """print('@@probe {"note": "cut')\n"""
            """print('@@probe {"status": "unsupported", "reason": "no such call"}')\n"""
        )
    )
    answer = children.ask_in_child(question_of(monkeypatch, tmp_path, body), 20.0, TERMS, {})
    assert (answer["status"], answer["reason"]) == ("unsupported", "no such call")
    assert answer["result"] == {"a": 1}


def test_a_stuck_child_ends_the_questions_but_not_the_report(
    tmp_path: Path,
) -> None:
    asked_names = []

    def answer(asked: Any, limit_s: float, terms: children.Terms) -> dict[str, Any]:
        asked_names.append(asked.name)
        base = {"status": "ok", "reason": "", "seconds": 0.1, "result": {"host": {"k": 1}}}
        return base if asked.name == "machine" else base | {"status": "timeout", "stuck": True}

    out = tmp_path / "report.json"
    assert asking.probe(entry.parse_arguments(["--out", str(out)]), answer) == 0
    assert asked_names == ["machine", "symbols"]
    report = json.loads(out.read_text())
    assert list(report["questions"]) == list(questions.QUESTIONS)
    assert report["host"] == {"k": 1}
    assert "could not be killed" in report["questions"]["faults"]["reason"]
    assert report["questions"]["eviction_order"]["status"] == "skipped"
    assert report["schema"] == 1 and set(report["profile"].values()) == {None}
