"""The virtual driver under cuda-python and NVRTC, in fresh processes."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from virtual_driver import GIB, MIB, needs_bindings_of_13, profile, run

from pump.base import nvml

pytest.importorskip("cuda.bindings.nvrtc")

UNSUPPORTED, INVALIDATED, UNJOINED = 900, 901, 904
LAYOUT_OF_ADD = [[0, 8], [8, 8], [16, 8], [24, 4]]


# -- kernels and modules --


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_in_compute_mode_kernels_really_compute(kind: str) -> None:
    assert run("vector_add", kind, mode="compute").found is True


@pytest.mark.parametrize(("gib", "found"), [("100", True), ("2", 2)])
def test_with_fewer_addresses_there_is_less_managed_memory_until_there_is_none(
    gib: str, found: object
) -> None:
    """The card of 1 GiB needs 4 GiB of addresses for managed memory and 2 GiB for plain memory.
    Valgrind gives a program 128 GiB."""
    outcome = run("few_addresses", gib, mode="compute")
    assert outcome.found == found
    assert ("cannot reserve" in outcome.stderr) == (found == 2)


@pytest.mark.parametrize("mode", ["compute", "timing"])
def test_a_process_is_told_once_that_timing_mode_computes_nothing(mode: str) -> None:
    launches, none = run("many_threads", mode=mode), run("allocate", "3", mode=mode)
    assert launches.stderr.count("compute nothing") == (mode == "timing")
    assert none.stderr == "", "nothing was launched"


def test_a_kernel_with_no_host_function_fails_and_is_named() -> None:
    outcome = run("missing_kernel", mode="compute", env={"PUMP_VIRTUAL_KERNELS": ""})
    assert outcome.found == 500
    assert "pump_host_scale" in outcome.stderr


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_parameter_layouts_are_the_same_for_functions_and_kernels(kind: str) -> None:
    found = run("parameters", kind).found
    assert found["add"] == LAYOUT_OF_ADD
    assert found["through_struct"] == [[0, 24], [24, 1]]
    assert found["max_threads"] == 256
    assert found["shared_bytes"] == 256
    assert found["kernels"] == ["add", "scale", "through_struct"]
    assert found["missing"] == 500


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_globals_have_their_initial_values(kind: str) -> None:
    found = run("globals_of_module", kind).found
    assert found == {"counter": [7, 4], "table_bytes": 400, "managed": 1, "missing": 500}


def test_a_kernel_handle_launches_and_pointers_in_structs_arrive() -> None:
    assert run("kernel_handle_launch", mode="compute").found is True


def test_images_that_make_no_sense_are_refused_with_the_right_code() -> None:
    invalid_image, invalid_ptx, no_binary, no_file = 200, 218, 209, 301
    assert run("bad_images").found == [
        invalid_image, invalid_ptx, invalid_ptx, invalid_image, no_binary, no_file,
    ]  # fmt: skip


@pytest.mark.parametrize("packed", ["", "liblz4.so.1", "libzstd.so.1"])
def test_fat_binaries_give_the_entry_that_fits_the_device(packed: str) -> None:
    if packed:
        try:
            ctypes.CDLL(packed)
        except OSError:
            pytest.skip(f"needs {packed}")
    found = run("fat_binary", packed).found
    assert found == {"ptx": 3, "cubin": 3, "foreign": -209, "broken": -200, "short": -200}


# -- memory --


def test_plain_memory_is_limited_by_the_card_and_managed_memory_is_not() -> None:
    found = run("memory_limit", memory_bytes=256 * MIB).found
    assert found["total"] == 256 * MIB
    assert found["free"] == 256 * MIB
    assert found["codes"] == [2, 0, 0]


def test_oversubscription_costs_faults_and_time_and_fitting_does_not() -> None:
    fits = run("oversubscribed", "16", "3", memory_bytes=256 * MIB)
    over = run("oversubscribed", "48", "3", memory_bytes=256 * MIB)
    assert fits.report["evictions"] == 0
    assert over.report["evictions"] > 100
    assert over.report["faults"] > 3 * fits.report["faults"]
    assert over.found["event_ms"] > 10 * fits.found["event_ms"]
    assert over.report["peak_resident_bytes"] <= 256 * MIB
    assert over.report["violations"] == 0


def test_the_time_that_passes_is_the_time_that_the_model_says() -> None:
    """Wall time is at least the model's. A late host adds to it, but one of eight runs is close."""
    for _ in range(8):
        found = run("oversubscribed", "48", "3", memory_bytes=256 * MIB).found
        assert found["seconds"] >= 0.99 * found["event_ms"] / 1e3
        if found["seconds"] <= 1.25 * found["event_ms"] / 1e3:
            return
    raise AssertionError(f"{found['seconds']} s for {found['event_ms']} ms of the model")


def test_model_time_is_the_same_in_every_run_that_the_host_does_not_delay() -> None:
    """A host that is late with a launch adds to the time, so the two shortest times count."""
    times: list[float] = []
    moved = set()
    for _ in range(8):
        one = run("oversubscribed", "48", "3", memory_bytes=256 * MIB)
        times.append(one.found["event_ms"])
        moved.add(one.report["h2d_bytes"])
        assert len(moved) == 1, moved
        if len(times) > 1 and sorted(times)[1] <= 1.02 * min(times):
            return
    raise AssertionError(f"no two of them agree: {times} ms")


def test_what_is_profiled_is_counted_apart() -> None:
    """Each sweep goes through more than the memory, and brings all of it."""
    outcome = run("profiled", "2", memory_bytes=256 * MIB)
    whole, part = outcome.report["counters"], outcome.report["profiled"]
    assert (whole["kernels"], part["kernels"]) == (6 * 48, 3 * 48)
    assert part["h2d_demand_bytes"] == 3 * 48 * 8 * MIB == whole["h2d_demand_bytes"] * 3 // 5
    assert part["d2h_evict_bytes"] > 0
    assert part["populated_bytes"] == 0 < whole["populated_bytes"]


@needs_bindings_of_13
@pytest.mark.parametrize(("where", "last"), [("host", -1), ("device", 0)])
def test_prefetches_move_and_freed_memory_refuses_them(where: str, last: int) -> None:
    outcome = run("prefetch", where)
    assert outcome.found == {"last": last, "batch": 0, "freed": 1}
    assert outcome.report["violations_by_check"]["prefetch_unknown"] == 1
    key = "prefetch_out_blocks" if where == "host" else "prefetch_resident_blocks"
    assert outcome.report["counters"][key] >= 8


@needs_bindings_of_13
@pytest.mark.parametrize(("advice", "left"), [("1", 0), ("1 2", 4)])
def test_under_read_mostly_a_prefetch_to_the_host_frees_nothing(advice: str, left: int) -> None:
    """Without the advice the prefetch frees it. The last requested location is always reported."""
    outcome = run("read_mostly", advice)
    assert outcome.found == {"last": -1, "read_mostly": left == 0}
    counters = outcome.report["counters"]
    assert counters["d2h_prefetch_bytes"] == left * 2 * MIB
    assert counters["d2h_ahead_bytes"] == (4 - left) * 2 * MIB, "a copy that frees nothing"


@needs_bindings_of_13
@pytest.mark.parametrize(("advice", "accessed_by"), [("5", 0), ("5 6", -2), ("", -2), ("6", -2)])
def test_memory_under_accessed_by_is_read_and_written_where_it_lies(
    advice: str, accessed_by: int
) -> None:
    """The end of the advice removes no mapping: then, too, the kernel moves nothing."""
    outcome = run("accessed_by", advice, mode="compute")
    assert outcome.found == {"right": True, "accessed_by": [accessed_by]}
    counters, whole = outcome.report["counters"], 3 * 16 * MIB
    in_place = advice.startswith("5")
    assert counters["h2d_demand_bytes"] == (0 if in_place else whole)
    copied = 4 * MIB  # the result, by a copy engine
    assert counters["h2d_remote_bytes"] == (whole + copied if in_place else 0)
    assert (counters["d2h_remote_bytes"] > 0) == in_place
    assert outcome.report["violations"] == 0


@needs_bindings_of_13
def test_duplicates_change_no_bit_of_what_a_program_computes() -> None:
    """Under READ_MOSTLY, buffers are read, partly written and evicted in a memory that is too
    small. After it, they are read again."""
    outcome = run("duplicates", mode="compute", memory_bytes=64 * MIB)
    assert outcome.found == {"wrong": 0}
    counters = outcome.report["counters"]
    assert counters["clean_bytes"] > 0, "no block left without a copy"
    assert counters["collapsed_pages"] > 0, "no duplicated page was written"
    assert outcome.report["violations"] == 0


@needs_bindings_of_13
def test_what_was_discarded_and_evicted_reads_as_garbage_in_compute_mode() -> None:
    outcome = run("discarded", mode="compute", memory_bytes=64 * MIB)
    assert outcome.report["evictions"] > 0
    assert outcome.found == {"kept": 1.0, "dead_is_ones": False}


@needs_bindings_of_13
@pytest.mark.parametrize(
    ("call", "moved"),
    [("cuMemPrefetchBatchAsync", 16 * MIB), ("cuMemDiscardAndPrefetchBatchAsync", 0)],
)
def test_what_is_discarded_in_the_call_that_brings_it_needs_room_and_no_transfer(
    call: str, moved: int
) -> None:
    outcome = run("dead_on_the_host", call, mode="compute")
    assert outcome.found == [9], "what is written behind the call counts"
    counters = outcome.report["counters"]
    assert counters["h2d_prefetch_bytes"] == moved
    assert (counters["fault_pages"], outcome.report["violations"]) == (0, 0)


# -- order --


def test_events_order_work_of_two_streams() -> None:
    assert run("stream_order").found == 0


def test_pageable_memory_may_be_reused_when_the_call_returns() -> None:
    assert run("pageable_source").found == 0


def test_copies_of_two_and_three_dimensions_respect_pitches() -> None:
    assert run("copies_2d_3d").found is True


def test_host_functions_run_in_order_on_a_thread_of_the_driver() -> None:
    assert run("host_function").found == {"values": [3, 4], "elsewhere": True}


def test_effects_happen_although_no_thread_calls_the_driver() -> None:
    assert run("effect_without_a_call").found == 17


@pytest.mark.alone
def test_effects_in_one_stream_do_not_wait_for_long_work_in_another() -> None:
    second = profile("timing", GIB, **{"kernel.scale.min_us": "1000000"})
    found = run("effect_beside_a_long_wait", env={"PUMP_VIRTUAL_PROFILE": second}).found
    assert found["busy"] == 600, "the other stream still works"
    assert found["ms"] < 20


def test_a_stream_waits_for_a_word_and_managed_words_are_refused() -> None:
    outcome = run("wait_value")
    assert outcome.found == {"before": [600, 600], "refused": 1}
    assert outcome.report["violations_by_check"]["managed_stream_operations"] == 1


# -- capture --


def test_captured_work_runs_at_replay_and_not_before() -> None:
    found = run("capture", mode="compute").found
    assert found == {"status": 1, "untouched": 1.0, "value": 22.0}


def test_unsafe_calls_end_the_captures_that_concern_the_thread() -> None:
    found = run("capture_rules").found
    ended, fine = [UNSUPPORTED, INVALIDATED], [0, 0]
    assert found["alloc"] == ended
    assert found["managed"] == ended
    assert found["relaxed"] == fine
    assert found["other_thread_global"] == ended
    assert found["other_thread_local"] == fine
    assert found["synchronize"] == ended


def test_a_stream_that_joined_a_capture_must_be_joined_back() -> None:
    assert run("forked_capture").found == [0, UNJOINED]


# -- handles, threads, processes --


def test_stale_handles_answer_invalid_handle() -> None:
    assert run("handles").found == [400, 400, 400, 400]


@needs_bindings_of_13
def test_contexts_are_checked_call_by_call() -> None:
    found = run("contexts").found
    assert found == {
        "none": 0, "without": 201, "inactive": 0, "same": True, "version": True, "destroyed": 201,
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["compute", "timing"])
def test_many_threads_get_their_own_results(mode: str) -> None:
    outcome = run("many_threads", mode=mode, env={"PUMP_VIRTUAL_DELAY_US": "200:7"})
    assert outcome.found == [8, 0]


@needs_bindings_of_13
@pytest.mark.parametrize(
    ("locks", "context", "waits"),
    [("none", "same", False), ("context", "same", True), ("context", "another", False)],
)
def test_a_launch_waits_for_a_prefetch_to_the_host_in_its_own_context_alone(
    locks: str, context: str, waits: bool
) -> None:
    # The call takes 0.8 s, and ends on time with any number of CPU cores.
    changes = {"uvm.cpu_pte_us": "100", "uvm.call_work_share": "0", "locks": locks}
    slow = profile("timing", GIB, **changes)
    beside = run("felt_in", context, env={"PUMP_VIRTUAL_PROFILE": slow}).found
    # One launch returns before the call begins, and one as it ends.
    assert beside <= 2 if waits else beside > 4


@needs_bindings_of_13
@pytest.mark.parametrize(("context", "answered"), [("same", False), ("another", True)])
def test_with_lazy_loading_a_first_launch_keeps_its_context_until_the_gpu_is_idle(
    context: str, answered: bool
) -> None:
    slow = profile("timing", GIB, **{"kernel.add.gbps": "0.13", "locks": "lazy"})
    waited, answers = run("first_launch", context, env={"PUMP_VIRTUAL_PROFILE": slow}).found
    assert waited
    assert answers > 4 if answered else answers <= 2  # the load may begin late


@needs_bindings_of_13
@pytest.mark.parametrize(("locks", "loading"), [("none", "LAZY"), ("lazy", "EAGER")])
def test_a_first_launch_of_loaded_code_waits_for_nothing(locks: str, loading: str) -> None:
    slow = profile("timing", GIB, **{"kernel.add.gbps": "0.13", "locks": locks})
    environment = {"PUMP_VIRTUAL_PROFILE": slow, "CUDA_MODULE_LOADING": loading}
    assert run("first_launch", "same", env=environment).found[0] is False


def test_threads_that_end_give_their_default_streams_back() -> None:
    assert run("default_streams").found == [1200, 0]


def test_after_a_fork_an_initialised_driver_is_unusable_in_the_child() -> None:
    assert run("fork_after_init").found == 0


def test_a_child_may_initialise_what_its_parent_never_did() -> None:
    assert run("fork_before_init", mode="compute").found == [0, True]


def test_a_process_ends_although_its_streams_never_will() -> None:
    outcome = run("exit_while_busy", timeout=20)
    assert outcome.found == "ended"
    assert outcome.report["kernels"] == {"scale": 500}


# -- environment and report --


def test_without_a_profile_there_is_no_device_and_the_way_in_is_named() -> None:
    outcome = run("init_only", env={"PUMP_VIRTUAL_PROFILE": ""})
    assert outcome.found == 100
    assert "pump-run --virtual" in outcome.stderr
    assert outcome.report == {}


def test_a_profile_that_makes_no_sense_is_named() -> None:
    outcome = run("init_only", env={"PUMP_VIRTUAL_PROFILE": "name=x;wrong=1"})
    assert outcome.found == 100
    assert "wrong" in outcome.stderr
    outcome = run("init_only", env={"PUMP_VIRTUAL_PROFILE": "name=x;hash=12345678901g"})
    assert outcome.found == 100
    assert '12 hexadecimal digits, not "12345678901g"' in outcome.stderr


@pytest.mark.parametrize(
    ("visible", "code"),
    [("0", 0), ("GPU-70756d70-2d76", 0), ("", 100), ("1", 100), ("-1", 100), ("GPU-12345678", 100)],
)
def test_visible_devices_can_hide_the_device(visible: str, code: int) -> None:
    outcome = run("init_only", env={"CUDA_VISIBLE_DEVICES": visible})
    assert outcome.found == code
    assert ("CUDA_VISIBLE_DEVICES" in outcome.stderr) == (code != 0)


def test_the_cards_of_two_jobs_have_uuids_of_their_own_and_a_shared_card_has_one(
    tmp_path: Path,
) -> None:
    def uuid(text: str, **env: str) -> str:
        settings = {"PUMP_VIRTUAL_PROFILE": text, "PUMP_VIRTUAL_CARDS": str(tmp_path), **env}
        return str(run("uuid", env=settings).found)

    plain, shared = profile("timing", GIB), profile("timing", GIB, shared="lab")
    first, second = uuid(f"{plain};card=00c0ffee"), uuid(f"{plain};card=00c0ffef")
    assert (first, second) == (
        b"pump-virtual".hex() + "00c0ffee",
        b"pump-virtual".hex() + "00c0ffef",
    )
    visible = nvml.gpu_uuid(first)
    assert uuid(f"{plain};card=00c0ffee", CUDA_VISIBLE_DEVICES=visible) == first
    in_lab = uuid(shared)
    assert in_lab == uuid(f"{shared};card=00c0ffee") != uuid(shared.replace("lab", "other"))
    wrong = run("init_only", env={"PUMP_VIRTUAL_PROFILE": f"{plain};card=c0ffee"})
    assert wrong.found == 100 and "card must be 8 hexadecimal digits" in wrong.stderr


def test_a_process_that_never_initialised_writes_no_report() -> None:
    outcome = run("version_only")
    assert outcome.found == 13050
    assert outcome.report == {}


def test_the_report_carries_mode_scale_and_the_hash_of_the_profile() -> None:
    from pump_lab import profiles

    report = run("allocate", "3", memory_bytes=GIB).report
    assert report["virtual"] is True
    assert report["mode"] == "timing"
    assert report["time_scale"] == 1
    changed = profiles.load("a100-pcie4").changed({"memory": str(GIB)})
    assert report["profile"] == "a100-pcie4"
    assert report["profile_hash"] == changed.hash()
    assert report["calls"]["cuMemAlloc_v2"] == 3


def test_any_call_fails_on_request() -> None:
    outcome = run("allocate", "4", env={"PUMP_VIRTUAL_FAIL": "cuMemAlloc_v2:2:2"})
    assert outcome.found == [0, 2, 0, 0]
    assert outcome.report["calls_failed_on_request"] == 1


def test_a_request_for_failure_that_makes_no_sense_is_refused() -> None:
    outcome = run("init_only", env={"PUMP_VIRTUAL_FAIL": "cuNoSuchCall:1:2"})
    assert outcome.found == 1
    assert re.search(r'must be SYMBOL:N:CODE, not "cuNoSuchCall:1:2"', outcome.stderr)


def test_handles_for_other_processes_are_those_of_device_memory_alone() -> None:
    found = run("handles_for_others").found
    assert found == {"managed": 1, "nothing": 1, "same process": 201, "no handle": 1}


def test_events_are_for_others_only_where_they_were_made_for_it() -> None:
    found = run("events_for_others").found
    assert found == {
        "timed": 1,
        "not made for it": 400,
        "same process": 201,
        "no handle": 1,
        "query": 0,
        "wait": 0,
    }
