"""Rules for memory that stays device memory: by size, by library on the stack, by past calls."""

import re
from pathlib import Path

import pytest
from loader_build import built, environment, run_client

MIB = 1 << 20
WORK = {"FAKE_MODE": "work", "FAKE_CONCURRENT": "1"}
DEFAULTS = "library=libnccl,library=libnvshmem,ipc"


def steps(tmp_path: Path, rules: str, *commands: str, **env: str) -> tuple[list[str], str]:
    """Runs the steps; returns "plain MIB" or "managed MIB" of each allocation, and stderr."""
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    more = {"FAKE_LOG": str(log), "PUMP_KEEP_DEVICE": rules}
    done = run_client("client_rules", *commands, env=environment(WORK | more | env))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    made = [f"{x[0]} {int(x[1]) // MIB}" for x in lines if x[0] in ("plain", "managed")]
    return made, done.stdout + done.stderr


def library(name: str) -> str:
    return f"load:{built() / name}"


def through(mib: int) -> str:
    return f"through:{mib * MIB}"


def test_what_is_smaller_than_the_rule_says_stays_device_memory(tmp_path: Path) -> None:
    made, _ = steps(tmp_path, f"below={8 * MIB}", f"alloc:{6 * MIB}", f"alloc:{8 * MIB}")
    assert made == ["plain 6", "managed 8"]


def test_a_wish_by_size_gives_way_where_the_card_has_no_room(tmp_path: Path) -> None:
    made, _ = steps(tmp_path, f"below={8 * MIB}", f"alloc:{6 * MIB}", FAKE_PLAIN_MIB="4")
    assert made == ["plain 6", "managed 6"]


def test_what_a_named_library_allocates_stays_device_memory(tmp_path: Path) -> None:
    made, _ = steps(
        tmp_path,
        DEFAULTS,
        library("libother.so"),
        through(4),
        library("libnccl.so.2"),  # loaded after the first check
        through(6),
        f"alloc:{8 * MIB}",
        library("libother.so"),
        through(10),
    )
    assert made == ["managed 4", "plain 6", "managed 8", "managed 10"]
    assert steps(tmp_path, "", library("libnccl.so.2"), through(4))[0] == ["managed 4"]


def test_a_library_that_needs_device_memory_gets_the_drivers_error(tmp_path: Path) -> None:
    made, text = steps(tmp_path, DEFAULTS, library("libnccl.so.2"), through(6), FAKE_PLAIN_MIB="4")
    assert made == ["plain 6"]
    *codes, line = text.splitlines()
    assert codes == ["0", "2"]
    assert line.endswith("out of GPU memory: pump cannot page the refused memory")


def test_the_walk_is_bounded(tmp_path: Path) -> None:
    made, _ = steps(tmp_path, DEFAULTS, library("libnccl.so.2"), f"deep:{4 * MIB}", through(6))
    assert made == ["managed 4", "plain 6"]


@pytest.mark.parametrize("call", ["handle", "range", "sync", "wait", "write", "batch"])
def test_a_refusal_for_converted_memory_is_explained_once(tmp_path: Path, call: str) -> None:
    answers, text = steps(tmp_path, "", library("libother.so"), through(4), call, call)
    assert answers == ["managed 4"]
    answered = text.splitlines()
    assert answered[:4] == ["0", "0", "1", "1"]  # the driver's answer
    (line,) = answered[4:]
    caller = "libother.so" if call == "handle" else "the program"
    rule = "library=libother" if call == "handle" else "below=5MiB"
    assert caller in line and f"--keep-device {rule}" in line


@pytest.mark.parametrize("call", ["handle", "range", "sync", "wait", "write", "batch"])
def test_memory_that_was_not_converted_is_no_business_of_pumps(tmp_path: Path, call: str) -> None:
    _, text = steps(tmp_path, f"below={8 * MIB}", library("libother.so"), through(4), call)
    assert text.splitlines() == ["0", "0", "0"]
    _, text = steps(tmp_path, "", library("libother.so"), call)
    assert text.splitlines() == ["0", "1"]  # without any allocation


def test_a_library_that_asked_for_a_handle_gets_device_memory_from_then_on(
    tmp_path: Path,
) -> None:
    commands = [library("libother.so"), through(4), "handle", through(6), f"alloc:{8 * MIB}"]
    made, text = steps(tmp_path, DEFAULTS, *commands, "handle")
    assert made == ["managed 4", "plain 6", "managed 8"]
    assert "its next 64 MiB of allocations stay device memory" in text
    made, text = steps(tmp_path, "library=libnccl", *commands)
    assert made == ["managed 4", "managed 6", "managed 8"]
    assert "stay device memory" not in text


def test_one_refused_handle_does_not_make_all_that_follows_device_memory(tmp_path: Path) -> None:
    """Four times the refused size, at least 64 MiB, stays plain; each handle renews this."""
    tried = [library("libother.so"), through(4), "handle", through(40), through(30), through(24)]
    made, _ = steps(tmp_path, DEFAULTS, *tried, through(2))
    assert made == ["managed 4", "plain 40", "managed 30", "plain 24", "managed 2"]
    made, _ = steps(tmp_path, DEFAULTS, *tried, "handle", through(50))
    assert made[3:] == ["plain 24", "plain 50"]
    made, _ = steps(tmp_path, DEFAULTS, *tried[:1], through(20), "handle", through(80), through(2))
    assert made == ["managed 20", "plain 80", "managed 2"]


@pytest.mark.parametrize("name", ["libuct_cuda.so.0", "libmpi.so.40"])
def test_a_library_that_registers_memory_with_network_cards_is_told_what_it_is(
    tmp_path: Path, name: str
) -> None:
    """Other libraries see device memory, even while such a library is loaded."""
    commands = [library(name), f"alloc:{8 * MIB}", "kind", library("libother.so"), "kind"]
    made, text = steps(tmp_path, "", *commands)
    assert made == ["managed 8"]
    assert text.splitlines() == ["0", "0", "0 1 1", "0", "0 0 0"]


def test_kernels_of_an_nccl_that_no_rule_can_name_are_told_once(tmp_path: Path) -> None:
    kernel = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    _, text = steps(tmp_path, DEFAULTS, "kernel:scale", f"kernel:{kernel}", f"kernel:{kernel}")
    (line,) = text.splitlines()[3:]
    assert "NCCL is built into 'the program'" in line
    assert "NCCL_CUMEM_ENABLE=1" in line and "--keep-device below=16MiB" in line


def test_kernels_of_an_nccl_that_a_rule_names_are_no_news(tmp_path: Path) -> None:
    _, text = steps(tmp_path, DEFAULTS, library("libnccl.so.2"), "called:ncclDevKernel_Broadcast")
    assert text.splitlines() == ["0", "0"]


def test_a_rule_that_is_none_is_named_and_the_others_hold(tmp_path: Path) -> None:
    rules = f"under=3,below={8 * MIB},,below=x,below="
    made, text = steps(tmp_path, rules, f"alloc:{6 * MIB}")
    assert made == ["plain 6"]
    named = re.findall(r"PUMP_KEEP_DEVICE: ignoring unknown rule ([^; ]+);", text)
    assert named == ["under=3", "below=x", "below="]
