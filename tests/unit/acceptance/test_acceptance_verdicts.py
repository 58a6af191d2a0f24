"""The verdicts that the acceptance's stages give on the results of programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from acceptance import (
    child,
    comparing,
    processes,
    running,
    shim_measures,
    stage_bits,
    stage_failures,
    stage_probe,
    stage_shim,
)
from acceptance.contract import (
    FAIL,
    INFO,
    LATE,
    MIB,
    NO_MEMORY,
    PASS,
    UNAVAILABLE,
    Context,
    Item,
    RefusedError,
)
from acceptance.running import Run
from acceptance_fakes import make_machine, make_run, summary_of_pump

CASE = comparing.Case(["program"], 64 * MIB, 64 * MIB, {"NEEDED": "1"})
VIRTUAL = make_machine(kind="virtual", profile="a100-pcie4")


def judged(plain: Run, pumped: Run, **case: bool) -> tuple[str, str]:
    asked = comparing.Case(["program"], 64 * MIB, 64 * MIB, **case)
    item = comparing.judge("x", asked, plain, pumped, make_machine())
    return item.status, item.reason


# ---- shim --------------------------------------------------------------------


def test_a_framework_passes_with_the_same_bits_and_pumps_own_account() -> None:
    item = comparing.judge("x", CASE, make_run(), make_run(), make_machine())
    assert item.status == PASS
    assert item.values["needs"] == {"NEEDED": "1"}


@pytest.mark.parametrize(
    ("pumped", "why"),
    [
        (make_run('{"sha256": "b", "right": true}'), "other bits"),
        (make_run(returncode=1, stderr="Traceback\nBoom"), "Boom"),
        (make_run(returncode=None), "no end within its limit"),
        (make_run("nonsense"), "told no result"),
        (make_run(summary=None), "never saw a cuInit"),
        (make_run(summary=summary_of_pump(operations=0)), "saw no operation"),
        (make_run(summary=summary_of_pump(converted_bytes_peak=0)), "0 MiB were converted"),
        (make_run(left=("pumpd job",)), "left behind: pumpd job"),
        (
            make_run(driver_report={"violations": 1, "violations_by_check": {"free_unknown": 1}}),
            "free_unknown",
        ),
    ],
)
def test_a_framework_fails_for_every_way_in_which_pump_can_be_wrong(pumped: Run, why: str) -> None:
    status, reason = judged(make_run(), pumped)
    assert status == FAIL
    assert why in reason


def test_a_profiler_that_sees_nothing_is_no_failure_of_pumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended:
        def finish(self, _limit_s: float) -> Run:
            return make_run('{"sha256": "a", "profiler": {"kernels": 0, "copies": 0}}')

    monkeypatch.setattr(running, "start", lambda *_args, **_more: Ended())
    context = Context(tmp_path, tmp_path, tmp_path, make_machine(), done=frozenset())
    (item,) = shim_measures.counts(context)
    assert (item.status, "CUPTI" in item.reason) == (UNAVAILABLE, True)


def test_a_job_that_was_cut_off_before_anything_was_killed_is_late() -> None:
    cut = make_run("", returncode=None, late=True)
    item = child.settled(stage_failures.kill_verdict("x", make_run(), cut, [], 60.0))
    assert (item.status, item.reason) == (UNAVAILABLE, LATE)


@pytest.mark.parametrize("plain_is_late", [True, False])
def test_a_program_that_the_stages_end_cut_off_is_late_and_no_failure(plain_is_late: bool) -> None:
    cut = make_run("", returncode=None, late=True)
    runs = (cut, make_run()) if plain_is_late else (make_run(), cut)
    item = child.settled(comparing.judge("x", CASE, *runs, make_machine()))
    assert (item.status, item.reason) == (UNAVAILABLE, LATE)


def test_the_same_wrong_result_on_both_sides_is_no_pass() -> None:
    wrong = make_run('{"sha256": "a", "right": false}')
    assert judged(wrong, wrong) == (FAIL, "wrong result, with pump and without")


def test_what_does_not_run_without_pump_either_is_unavailable_with_its_reason() -> None:
    broken = make_run(returncode=1, stderr="ImportError: libcudnn\n")
    status, reason = judged(broken, make_run())
    assert status == UNAVAILABLE and "ImportError: libcudnn" in reason
    item = comparing.judge("x", CASE, broken, broken, VIRTUAL)
    assert "virtual GPU" in item.reason


def test_a_program_that_lacks_a_package_is_unavailable_and_any_other_bad_end_is_a_failure() -> None:
    bare = make_run(returncode=1, stderr="ModuleNotFoundError: No module named 'torch'\n")
    assert judged(bare, make_run()) == (UNAVAILABLE, f"torch is not installed: {bare.trouble()}")
    assert comparing.broken("x", bare).status == UNAVAILABLE
    crashed = make_run(returncode=1, stderr="Error: out of cheese\npump: peak 1 MiB\n")
    item = comparing.broken("x", crashed)
    assert item.status == FAIL and item.reason == "exit status 1: Error: out of cheese"


def test_stream_ordered_memory_is_told_apart_from_a_miss() -> None:
    seen = make_run(summary=summary_of_pump(converted_bytes_peak=0))
    assert judged(make_run(), seen, stream_ordered=True)[0] == INFO
    blind = make_run(summary=summary_of_pump(operations=0))
    assert judged(make_run(), blind, stream_ordered=True)[0] == FAIL


@pytest.mark.parametrize(
    ("pump", "other", "dropped", "status"),
    [(100, 100, 0, PASS), (99, 100, 0, PASS), (90, 100, 0, FAIL), (0, 0, 0, FAIL),
     (100, 100, 1, FAIL), (110, 100, 0, FAIL)],
)  # fmt: skip
def test_counts_must_agree_and_nothing_may_be_lost(
    pump: int, other: int, dropped: int, status: str
) -> None:
    assert shim_measures.count_verdict("c", pump, other, dropped, {}).status == status


def test_the_cost_of_a_hook_is_that_of_medians_over_processes() -> None:
    found = {"plain": [100.0, 90.0, 500.0], "dormant": [101.0] * 3, "active": [300.0] * 3}
    values = shim_measures.cost_values(found)
    assert values["dormant_added_ns"] == 1.0
    assert values["active_ratio"] == 3.0


# ---- bits --------------------------------------------------------------------


def test_a_training_passes_with_the_wanted_bits_only() -> None:
    assert stage_bits.verdict("b", make_run(), "a", "a", True).status == PASS
    assert "other bits" in stage_bits.verdict("b", make_run(), "b", "a", True).reason
    assert stage_bits.verdict("b", make_run(returncode=1), None, "a", True).status == FAIL
    idle = make_run(summary=summary_of_pump(operations=0))
    assert "no operation" in stage_bits.verdict("b", idle, "a", "a", True).reason
    assert stage_bits.verdict("b", idle, "a", "a", False).status == PASS


def bits_items(monkeypatch: pytest.MonkeyPatch, context: Context) -> list[Item]:
    """Returns the items of the stage, with programs that all train to the same bits."""

    class Ended:
        def finish(self, _limit_s: float) -> Run:
            return make_run('{"sha256": "a", "weights_sha256": "a", "peak_bytes": 4096}')

    monkeypatch.setattr(stage_bits, "known_policies", lambda _: ["demand", "window"])
    monkeypatch.setattr(running, "start", lambda *_args, **_more: Ended())
    monkeypatch.setattr(running, "tool", lambda *_args, **_more: make_run("4096"))
    return list(stage_bits.run(context))


def test_bits_asks_pytorch_before_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(tmp_path, tmp_path, tmp_path, make_machine())
    names = [item.name for item in bits_items(monkeypatch, context)]
    parts = [name.partition(".")[0] for name in names]
    assert parts == sorted(parts, reverse=True) and {*parts} == {"torch", "example"}
    assert "torch.half.window" in names and "example.naive" in names


def test_a_training_that_is_too_large_for_the_machine_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make_machine(host_available_bytes=stage_bits.TORCH_MOST_BYTES)
    context = Context(tmp_path, tmp_path, tmp_path, small)
    found = {item.name: item for item in bits_items(monkeypatch, context)}
    assert found["torch"].status == UNAVAILABLE and "may be" in found["torch"].reason
    assert found["example.half.window"].status == PASS


# ---- failures ----------------------------------------------------------------

WORKER = ["pumpd-worker"]
LOST = {"worker_losses": 1, "shim": summary_of_pump()["shim"]}


def survivor(**more: object) -> Run:
    facts: dict[str, object] = {
        "summary": LOST,
        "stderr": "pump: ...: pumpd's worker died 1 time(s)\n",
    }
    return make_run(**(facts | more))


def killed(done: Run, names: list[str]) -> tuple[str, str]:
    item = stage_failures.kill_verdict("k", make_run(), done, names, 30.0)
    return item.status, item.reason


def test_a_job_that_lost_its_worker_passes_when_it_says_so_and_keeps_its_bits() -> None:
    assert killed(survivor(), WORKER) == (PASS, "")


@pytest.mark.parametrize(
    ("done", "names", "why"),
    [
        (survivor(), [], "nothing was killed"),
        (survivor(returncode=-11), WORKER, "did not survive"),
        (survivor(stdout='{"sha256": "b"}'), WORKER, "other bits"),
        (survivor(seconds=99.0), WORKER, "30.0 are enough"),
        (survivor(stderr=""), WORKER, "does not say so"),
        (survivor(left=("pumpd",)), WORKER, "left behind"),
    ],
)
def test_a_job_that_lost_its_worker_fails_otherwise(done: Run, names: list[str], why: str) -> None:
    status, reason = killed(done, names)
    assert status == FAIL and why in reason


SAID = "pump: out of memory: 4 MiB more ... limit of 40 MiB (PUMP_LIMIT); raise it with --limit\n"


@pytest.mark.parametrize(
    ("returncode", "stderr", "status"),
    [
        (9, f"{SAID}GpuError: CUDA_ERROR_OUT_OF_MEMORY\n", PASS),
        (0, SAID, FAIL),
        (9, "GpuError: CUDA_ERROR_OUT_OF_MEMORY\n", FAIL),
        (9, f"{SAID.replace('40', '39')}GpuError: CUDA_ERROR_OUT_OF_MEMORY\n", FAIL),
        (-11, SAID, FAIL),
    ],
)
def test_a_limit_is_the_programs_own_error_and_pumps_line_names_the_remedy(
    returncode: int, stderr: str, status: str
) -> None:
    done = make_run("", returncode=returncode, stderr=stderr)
    item = stage_failures.limit_verdict("l", done, 9, "CUDA_ERROR_OUT_OF_MEMORY")
    assert item.status == status


def test_memory_that_stays_used_on_the_card_fails() -> None:
    assert stage_failures.memory_verdict(100 * MIB, 120 * MIB).status == PASS
    assert stage_failures.memory_verdict(100 * MIB, 400 * MIB).status == FAIL
    assert stage_failures.memory_verdict(None, None).status == UNAVAILABLE


# ---- probe -------------------------------------------------------------------


def answer(status: str, reason: str = "", value: int = 0) -> dict[str, object]:
    return {"status": status, "reason": reason, "seconds": 1.0, "result": {"value": value}}


def test_every_question_becomes_an_item_by_its_status() -> None:
    report = {
        "questions": {
            "a": answer("ok"),
            "b": answer("failed", "an error"),
            "c": answer("timeout", "too slow"),
            "d": answer("unsupported", "no discard"),
            "e": answer("skipped", "the time limit of 60 s is spent"),
            "f": answer("timeout", "no answer within 1 s"),
        }
    }
    limits = {"c": 1.0, "f": 9.0}
    items = {item.name: item for item in stage_probe.answers(report, limits)}
    statuses = [items[f"question.{name}"].status for name in "abcdef"]
    assert statuses == [PASS, FAIL, FAIL, *[UNAVAILABLE] * 3]
    assert items["question.f"].reason == LATE, "cut off by the end of the call's time"
    assert items["question.e"].reason == LATE
    assert items["question.d"].reason == "no discard"


def test_answers_of_two_calls_become_one_report() -> None:
    earlier = {"seconds": 5, "questions": {"a": answer("ok", value=1), "b": answer("skipped")}}
    newer = {"seconds": 7, "questions": {"a": answer("skipped"), "b": answer("ok", value=2)}}
    merged = stage_probe.merge(earlier, newer)
    assert [merged["questions"][name]["result"]["value"] for name in "ab"] == [1, 2]
    assert merged["seconds"] == 12


def test_answers_of_a_call_that_was_killed_are_not_lost(tmp_path: Path) -> None:
    report, part = tmp_path / "report.json", tmp_path / "part.json"
    assert stage_probe.kept(report, part) == {}
    report.write_text('{"questions": {"a": {"status": "ok"}}}')
    assert set(stage_probe.kept(report, part)["questions"]) == {"a"}
    part.write_text('{"questions": {"a": {"status": "skipped"}, "b": {"status": "ok"}}}')
    kept = stage_probe.kept(report, part)["questions"]
    assert {name: answer["status"] for name, answer in kept.items()} == {"a": "ok", "b": "ok"}


def test_a_virtual_gpu_has_a_cards_memory_in_whole_blocks() -> None:
    assert stage_probe.whole_blocks(71577 * 2 * MIB, 71577 * 2 * MIB + 65536)
    assert not stage_probe.whole_blocks(71576 * 2 * MIB, 71577 * 2 * MIB + 65536)


def test_the_profile_of_a_card_is_based_on_a_similar_one() -> None:
    assert stage_probe.base_for("NVIDIA H200") == "h200-pcie5"
    assert stage_probe.base_for("NVIDIA GeForce RTX 5090") == "rtx5090"
    assert stage_probe.base_for("NVIDIA A100-SXM4-40GB") == "a100-pcie4"


# ---- no memory ---------------------------------------------------------------

GUARDED = (
    "pump: out of memory: 64 MiB more on device 0 would exceed the headroom of 1 GiB in this "
    "host's memory (reserve: 4 GiB); in use: 0 bytes; free host "
    "memory or use a machine with more\n"
)
LIMITED = "pump: out of memory: 4 MiB more would exceed this job's limit of 40 MiB (PUMP_LIMIT)\n"


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ({"stderr": f"{GUARDED}torch.OutOfMemoryError: CUDA out of memory\n"}, UNAVAILABLE),
        ({"log": GUARDED, "stderr": "torch.OutOfMemoryError: CUDA out of memory\n"}, UNAVAILABLE),
        (
            {"stderr": "Unable to allocate 1 GiB\nMemoryError\n"},
            UNAVAILABLE,
        ),
        ({"returncode": -9, "killed_for_memory": True}, UNAVAILABLE),
        ({"returncode": -9}, FAIL),
        ({"stderr": f"{LIMITED}torch.OutOfMemoryError: CUDA out of memory\n"}, FAIL),
        ({"stderr": "GpuError: CUDA_ERROR_OUT_OF_MEMORY\n"}, FAIL),
    ],
)
def test_a_run_that_is_refused_host_memory_is_no_verdict_on_pump(
    ended: dict[str, object], status: str
) -> None:
    refused = make_run("", **{"returncode": 1, **ended})
    for item in (
        stage_bits.verdict("b", refused, None, "a", True),
        comparing.judge("b", CASE, make_run(), refused, make_machine()),
        comparing.broken("b", refused),
    ):
        found = child.settled(item)
        assert found.status == status, found.reason
        assert (NO_MEMORY in found.reason) == (status == UNAVAILABLE)


def test_lines_about_memory_mean_nothing_after_a_good_end() -> None:
    fine = make_run(stderr=GUARDED)
    assert fine.refused() == "" and stage_bits.verdict("b", fine, "a", "a", True).status == PASS


def test_what_the_kernel_kills_for_memory_is_told_from_other_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([3, 4, 4, 4])
    monkeypatch.setattr(processes, "memory_kills", lambda: next(kills))
    context = Context(tmp_path, tmp_path, tmp_path, make_machine())
    words = ["sh", "-c", "kill -9 $$"]
    runs = [running.Program(context, words, dict(os.environ)).finish(20) for _ in range(2)]
    assert [(run.returncode, run.killed_for_memory) for run in runs] == [(-9, True), (-9, False)]


def test_the_kernels_count_of_kills_is_read_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert processes.memory_kills() == 0
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 7\noom_kill_other 9\n")
    assert processes.memory_kills() == 7


# ---- items of a stage --------------------------------------------------------


def test_an_item_that_breaks_off_takes_none_of_the_others_with_it() -> None:
    def broken() -> Item:
        raise OSError("no space left")

    jobs = {"a": broken, "b": lambda: Item("b", PASS), "c": broken}
    found = {item.name: item for item in stage_shim.together(jobs)}
    assert [found[name].status for name in "abc"] == [FAIL, PASS, FAIL]
    assert "no space left" in found["a"].reason


def test_memory_that_may_not_be_asked_for_makes_an_item_unavailable() -> None:
    def greedy() -> Item:
        raise RefusedError("5120 MiB asked for")

    assert comparing.attempt("a", greedy).status == UNAVAILABLE
