"""The memory hooks' calls of the driver and their answers to the program."""

from pathlib import Path

import pytest
from loader_build import environment, run_client

MIB = 1 << 20
WORK = {"FAKE_MODE": "work", "FAKE_CONCURRENT": "1"}
ATTRIBUTES = {"type": 2, "host": 4, "managed": 8, "size": 12}


def steps(tmp_path: Path, *commands: str, **env: str) -> tuple[list[str], list[str]]:
    """Runs the steps; returns their answers and the driver's log."""
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    done = run_client(
        "client_memory", *commands, env=environment(WORK | {"FAKE_LOG": str(log)} | env)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), log.read_text().splitlines()


def calls(log: list[str]) -> list[str]:
    return [line for line in log if line.split()[0] in ("plain", "managed", "pitch", "free")]


def test_device_memory_from_two_mib_up_becomes_managed_in_whole_blocks(tmp_path: Path) -> None:
    answers, log = steps(tmp_path, f"alloc:{2 * MIB}", "free", f"alloc:{3 * MIB + 1}", "free")
    assert answers == ["0"] * 4
    assert calls(log) == [f"managed {2 * MIB} 1", "free 1", f"managed {4 * MIB} 1", "free 1"]


def test_smaller_allocations_stay_device_memory(tmp_path: Path) -> None:
    answers, log = steps(tmp_path, f"alloc:{2 * MIB - 1}", "free", "alloc:0")
    assert answers == ["0", "0", "1"]
    assert calls(log) == [f"plain {2 * MIB - 1}", "free 1", "plain 0"]


def test_a_device_that_cannot_page_is_left_alone_and_pump_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = environment(WORK | {"FAKE_CONCURRENT": "0", "FAKE_LOG": str(log)})
    done = run_client("client_memory", f"alloc:{8 * MIB}", "free", env=env)
    assert calls(log.read_text().splitlines()) == [f"plain {8 * MIB}", "free 1"]
    assert done.stderr.count("concurrentManagedAccess") == 1


def test_pitched_memory_is_converted_with_the_drivers_own_pitch(tmp_path: Path) -> None:
    answers, log = steps(tmp_path, "pitch:1000:4096", "range", "free")
    assert answers == ["pitch 1024", "0", f"range 1 {4 * MIB}", "0", "0"]
    assert calls(log) == ["pitch 1024 1", "free 1", f"managed {4 * MIB} 1", "free 1"]
    assert calls(steps(tmp_path, "pitch:1000:8")[1]) == ["pitch 1024 8"]


def test_untracked_pointers_reach_the_driver_as_they_are(tmp_path: Path) -> None:
    answers, log = steps(
        tmp_path, "free:null", f"alloc:{4 * MIB}", "free:64", f"free:{2 * MIB}", "free", "free"
    )
    assert answers == ["0", "0", "1", "1", "0", "1"]
    assert calls(log).count("free 1") == 4


def test_a_refused_free_leaves_the_range_as_it_was(tmp_path: Path) -> None:
    answers, _ = steps(
        tmp_path,
        f"alloc:{4 * MIB}",
        "free",
        "range",
        f"ask:{ATTRIBUTES['managed']}",
        "info",
        FAKE_FAIL="cuMemFree_v2",
    )
    assert answers[1] == "999"
    assert answers[2] == f"range 1 {4 * MIB}"
    assert answers[4] == "0 0"  # still answers as device memory
    assert free_mib(answers[5]) == free_mib(steps(tmp_path, "info")[0][0]) - 4


def free_mib(answer: str) -> int:
    return int(answer.split()[1])


def test_memory_info_counts_what_the_program_allocated(tmp_path: Path) -> None:
    """total: the GPU's; free: budget minus allocated memory, never more than really free."""
    plenty = 15 * 1024  # free MiB of the fake driver
    answers, _ = steps(tmp_path, "info", f"alloc:{512 * MIB}", "info", "free", "info")
    before, during, after = (free_mib(answers[i]) for i in (0, 3, 6))
    assert before == after
    assert plenty * 0.96 < before < plenty * 0.98
    assert during == before - 512
    assert answers[0].endswith(f"total {16 * 1024}")
    assert answers[1] == "0"  # the same query with a NULL output


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(str(1 << 30), 1024), ("25%", 4096), ("200%", None), ("", None), ("plenty", None)],
)
def test_a_budget_bounds_what_is_free(tmp_path: Path, budget: str, expected: int | None) -> None:
    answers, _ = steps(tmp_path, "info", f"alloc:{1000 * MIB}", "info", PUMP_BUDGET=budget)
    first = free_mib(answers[0])
    assert first == (expected if expected is not None else free_mib(steps(tmp_path, "info")[0][0]))
    assert free_mib(answers[3]) == max(0, first - 1000)


def test_a_budget_that_is_no_budget_is_named(tmp_path: Path) -> None:
    env = environment(WORK | {"PUMP_BUDGET": "plenty"})
    done = run_client("client_memory", "info", env=env)
    assert "ignoring PUMP_BUDGET=plenty: must be a size" in done.stderr


def test_converted_memory_answers_as_device_memory_in_every_call(tmp_path: Path) -> None:
    asks = [f"ask:{ATTRIBUTES[k]}" for k in ("type", "managed", "host", "size")]
    answers, _ = steps(tmp_path, f"alloc:{3 * MIB}", *asks, "asks", "range")
    assert answers[1:] == [
        "0 2",
        "0 0",
        "1 none",
        f"0 {3 * MIB}",
        f"0 2 0 none {3 * MIB}",
        f"range 1 {3 * MIB}",
        "0",
    ]


def test_the_programs_own_managed_memory_stays_what_it_is(tmp_path: Path) -> None:
    asks = [f"ask:{ATTRIBUTES[k]}" for k in ("type", "managed", "host", "size")]
    answers, log = steps(tmp_path, f"managed:{3 * MIB}", *asks, "asks", "range", "free")
    size = 3 * MIB
    assert answers[1:] == [
        "0 2",
        "0 1",
        "0 address",
        f"0 {size}",
        f"0 2 1 address {size}",
        f"range 1 {size}",
        "0",
        "0",
    ]
    assert calls(log) == [f"managed {size} 1", "free 1"]


def test_where_managed_memory_is_refused_the_program_gets_what_it_asked_for(
    tmp_path: Path,
) -> None:
    """The program gets CUDA_ERROR_UNKNOWN; pump makes no further calls for it."""
    answers, log = steps(tmp_path, f"alloc:{4 * MIB}", FAKE_FAIL="cuMemAllocManaged")
    assert answers == ["999"]
    assert calls(log) == []


def test_the_limit_answers_out_of_memory_and_names_itself(tmp_path: Path) -> None:
    env = environment(WORK | {"PUMP_LIMIT": str(64 * MIB)})
    done = run_client(
        "client_memory", f"alloc:{48 * MIB}", f"alloc:{32 * MIB}", "info", f"alloc:{MIB}", env=env
    )
    assert done.stdout.splitlines()[:2] == ["0", "2"]
    assert done.stdout.splitlines()[-1] == "0"
    assert "limit" in done.stderr


def test_memory_of_a_destroyed_context_is_forgotten(tmp_path: Path) -> None:
    answers, _ = steps(
        tmp_path,
        "info",
        f"alloc:{512 * MIB}",
        "destroy",
        "create",
        "info",
        f"alloc:{4 * MIB}",
        "free",
        "free",
        PUMP_LIMIT=str(600 * MIB),
    )
    assert answers[0] == answers[5]
    assert answers[-3:] == ["0", "0", "1"]
    again, _ = steps(
        tmp_path,
        f"alloc:{512 * MIB}",
        "destroy",
        "create",
        f"alloc:{512 * MIB}",
        PUMP_LIMIT=str(600 * MIB),
    )
    assert again == ["0"] * 4


def test_a_context_that_is_detached_ends_with_its_last_use(tmp_path: Path) -> None:
    commands = ["info", f"alloc:{512 * MIB}", "info", "detach", "info", "detach", "create", "info"]
    answers, _ = steps(tmp_path, *commands, "free", FAKE_USES="2")
    told = [line for line in answers if line.startswith("free ")]
    assert told[1] == told[2] != told[0] == told[3]
    assert answers[-1] == "1"
    # The program may still free its remaining memory.
    answers, _ = steps(tmp_path, f"alloc:{8 * MIB}", "detach", "free", FAKE_USES="2")
    assert answers == ["0"] * 3


@pytest.mark.parametrize("allocate", ["async", "pool"])
@pytest.mark.parametrize("free", ["freeasync", "free"])
def test_stream_ordered_memory_counts_until_it_is_freed(
    tmp_path: Path, allocate: str, free: str
) -> None:
    native = {"PUMP_KEEP_DEVICE": "stream-ordered"}
    answers, log = steps(
        tmp_path, "info", f"{allocate}:{512 * MIB}", "info", free, "info", free, **native
    )
    before, during, after = (free_mib(answers[i]) for i in (0, 3, 6))
    assert before == after == during + 512
    assert answers[-1] == "1"
    assert log.count(f"async {512 * MIB}") == 1


def test_a_refused_stream_ordered_free_leaves_the_memory_counted(tmp_path: Path) -> None:
    answers, _ = steps(
        tmp_path,
        f"async:{512 * MIB}",
        "info",
        "freeasync",
        "info",
        FAKE_FAIL="cuMemFreeAsync",
        PUMP_KEEP_DEVICE="stream-ordered",
    )
    assert answers[3] == "999"
    assert answers[1] == answers[4]


def test_converted_memory_is_freed_in_stream_order_although_the_driver_refuses(
    tmp_path: Path,
) -> None:
    """The driver takes plain memory there, but refuses managed memory."""
    answers, _ = steps(tmp_path, f"alloc:{4 * MIB}", "info", "freeasync", "info", "free")
    assert answers[3] == "0"
    assert free_mib(answers[4]) == free_mib(answers[1]) + 4
    assert answers[6] == "1", "it was freed already"


def test_our_own_calls_hold_relaxed_capture_mode_although_no_capture_has_begun(
    tmp_path: Path,
) -> None:
    """Another thread may begin a GLOBAL capture between a test for captures and the call."""
    _, log = steps(tmp_path, f"alloc:{4 * MIB}")
    ours = log.index("cuMemGetInfo_v2")
    before = log[:ours].count("cuThreadExchangeStreamCaptureMode")
    assert before % 2 == 1, "the mode is exchanged, and not yet back"
    assert "cuThreadExchangeStreamCaptureMode" in log[ours:], "it is given back"


@pytest.mark.parametrize(
    ("step", "call"), [("green", "cuGreenCtxDestroy"), ("reset", "cuDevicePrimaryCtxReset_v2")]
)
def test_our_threads_leave_all_contexts_before_one_ends_that_pump_cannot_name(
    tmp_path: Path, step: str, call: str
) -> None:
    """A green context, or a primary one that the runtime got from private driver tables."""
    env = {"PUMP_ACTIVE": "always", "FAKE_PRIMARY": "1"}
    answers, log = steps(tmp_path, f"alloc:{4 * MIB}", step, **env)
    assert answers == ["0"] * 2
    at = log.index(call)
    assert "left" in log[:at] and "left" not in log[at:]


@pytest.mark.parametrize("old", [False, True])
def test_memory_that_a_peer_may_reach_stays_on_its_device(tmp_path: Path, old: bool) -> None:
    """Before and after the call that gives another GPU access; small memory is device memory."""
    advice = "cuMemAdvise" if old else "cuMemAdvise_v2"
    env = environment(WORK | {"FAKE_LOG": str(tmp_path / "log")}, driver="old" if old else True)
    words = [f"alloc:{4 * MIB}", "peer", f"alloc:{8 * MIB}", "alloc:4096", "peer"]
    done = run_client("client_memory", *words, env=env)
    assert done.stdout.split() == ["0"] * 5, done.stderr
    log = (tmp_path / "log").read_text().splitlines()
    assert log.count(advice) == 2
    allowed, second = log.index("cuCtxEnablePeerAccess"), log.index(f"managed {8 * MIB} 1")
    at = [i for i, line in enumerate(log) if line == advice]
    assert allowed < at[0] < second < at[1]
