"""Virtual memory management on managed memory: programs can rely on it with and without pump."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import host_kernels, pump_run
from places import PROGRAMS

OUT_OF_MEMORY = 2
NOT_SUPPORTED = 801
INVALID_VALUE = 1
# Memory of the virtual GPU.
ROOM = "128MiB"


def run(
    step: str, folder: Path, *options: str, program: str = "mapped_job.py", **env: str
) -> tuple[Any, str]:
    """Returns the step's output and pump's lines. Checks that pump made no call that violates the
    virtual driver's rules."""
    command = sys.executable, str(PROGRAMS / program), *step.split()
    report = folder / "report.json"
    done = pump_run(*options, "--", *command, PUMP_VIRTUAL_REPORT=str(report), **env)
    found = json.loads(report.read_text())
    assert "PUMP_DISABLE" in env or found["violations"] == 0, found["violations_by_check"]
    return json.loads(done.stdout), done.stderr


SAME = [
    "contents_go_with_the_handle",
    "released_memory_lives_as_long_as_its_mapping",
    "bad_calls",
    "answers",
    "counted",
    "grown_at_a_hint",
    "threads",
    "without_a_context",
    "captured",
    "reset",
]


@pytest.mark.parametrize("step", SAME)
def test_a_program_finds_what_it_finds_without_pump(step: str, tmp_path: Path) -> None:
    room = f"--virtual-set=memory={ROOM}"
    plain, _ = run(step, tmp_path, room, PUMP_DISABLE="1")
    pumped, lines = run(step, tmp_path, room)
    assert pumped == plain
    assert "fails" not in lines


def test_memory_given_up_and_made_anew_is_there_each_time(tmp_path: Path) -> None:
    found, _ = run("slept", tmp_path, f"--virtual-set=memory={ROOM}")
    assert found == [True, 16] * 3


@pytest.mark.parametrize("version", ["", "12020"], ids=["new", "without-discards"])
def test_memory_beyond_the_device_keeps_its_bits(version: str, tmp_path: Path) -> None:
    old = {"PUMP_VIRTUAL_VERSION": version} if version else {}
    plain, _ = run("too_much", tmp_path, "--virtual-set=memory=64MiB", PUMP_DISABLE="1")
    assert plain[1] == OUT_OF_MEMORY
    found, _ = run("too_much", tmp_path, "--virtual-set=memory=64MiB", **old)
    assert found == [32, True]


def test_one_arena_as_jax_makes_it_may_be_three_times_the_budget(tmp_path: Path) -> None:
    found, _ = run("arena", tmp_path, f"--virtual-set=memory={ROOM}", "--budget=32MiB")
    assert found == [24, 0]


def test_a_thread_without_a_context_makes_pageable_memory(tmp_path: Path) -> None:
    found, lines = run("bare_arena", tmp_path, f"--virtual-set=memory={ROOM}", "--budget=32MiB")
    assert found == [24, True]
    assert "cuMemCreate" not in lines, "none is the driver's"


@pytest.mark.parametrize("env", [{}, {"PUMP_DISABLE": "1"}], ids=["pumped", "plain"])
def test_a_kernel_touches_what_is_mapped_without_a_gap(env: dict[str, str], tmp_path: Path) -> None:
    """A kernel touches nothing past a gap, although all of the reservation is managed memory."""
    found = []
    for step in ("touched_mapped", "touched_allocated"):
        run(step, tmp_path, **env)
        found.append(json.loads((tmp_path / "report.json").read_text())["compute_busy_ns"])
    assert found[0] == found[1]


def test_the_limit_counts_what_is_created_not_what_is_reserved(tmp_path: Path) -> None:
    found, lines = run("too_much", tmp_path, "--virtual-set=memory=64MiB", "--limit=96MiB")
    assert found == [24, OUT_OF_MEMORY]
    assert "exceed this job's limit of 96 MiB" in lines


def test_where_the_driver_refuses_managed_memory_the_user_is_told(tmp_path: Path) -> None:
    refused = {"PUMP_VIRTUAL_FAIL": "cuMemAllocManaged:1:2"}
    found, lines = run("counted", tmp_path, f"--virtual-set=memory={ROOM}", **refused)
    plain, _ = run("counted", tmp_path, f"--virtual-set=memory={ROOM}", PUMP_DISABLE="1")
    assert found == plain
    assert "for a reservation of addresses" in lines and "expandable_segments:False" in lines


def test_memory_has_one_address_and_the_refusal_names_the_remedy(tmp_path: Path) -> None:
    found, lines = run("aliased", tmp_path)
    assert found == NOT_SUPPORTED
    assert "cuMemMap" in lines and "can be mapped only once" in lines
    assert "--keep-device vmm" in lines
    kept, lines = run("aliased", tmp_path, "--keep-device=vmm")
    assert kept == 0 and "fails" not in lines


def test_what_was_never_mapped_can_be_exported_and_what_is_pageable_cannot(
    tmp_path: Path,
) -> None:
    """The virtual GPU exports nothing; the test only shows that pump calls the driver."""
    found, lines = run("exported", tmp_path)
    assert found == [NOT_SUPPORTED, True, NOT_SUPPORTED]
    assert "cuMemExportToShareableHandle" in lines and "--keep-device vmm" in lines


def test_pageable_memory_is_not_bound_to_a_multicast_object(tmp_path: Path) -> None:
    """The driver cannot use a handle of pump, but would dereference it."""
    found, lines = run("bound", tmp_path)
    assert found == [NOT_SUPPORTED, NOT_SUPPORTED]
    assert lines.count("cuMulticastBindMem") == 1 and "--keep-device vmm" in lines
    found, lines = run("bound", tmp_path, "--keep-device=vmm")
    assert found == [NOT_SUPPORTED, NOT_SUPPORTED] and "cuMulticastBindMem" not in lines


def test_pageable_memory_is_not_mapped_into_a_sparse_array(tmp_path: Path) -> None:
    """The driver itself only takes handles that were created as tile pools."""
    found, lines = run("in_array", tmp_path)
    assert found == [NOT_SUPPORTED, INVALID_VALUE]
    assert lines.count("cuMemMapArrayAsync") == 1 and "--keep-device vmm" in lines
    found, lines = run("in_array", tmp_path, "--keep-device=vmm")
    assert found == [NOT_SUPPORTED, NOT_SUPPORTED] and "cuMemMapArrayAsync" not in lines


def test_memory_of_the_drivers_is_refused_beside_pageable_memory(tmp_path: Path) -> None:
    found, lines = run("beside_the_drivers", tmp_path)
    assert found == NOT_SUPPORTED
    assert "--keep-device vmm" in lines


def test_a_handle_of_the_drivers_decides_about_its_own_addresses_only(tmp_path: Path) -> None:
    found, lines = run("among_the_drivers", tmp_path)
    assert found == [[True, True, True], [0, 0], 0]
    assert lines.count("fails") == 1, "is_served has tried"


BEFORE = [
    "by_a_library",
    "compressed",
    "before_a_context",
    "asked_for_an_export",
    "a_segment_of_its_own",
    "never_mapped",
]


@pytest.mark.parametrize("before", BEFORE)
def test_memory_beyond_the_device_is_pageable_whatever_was_made_before(
    before: str, tmp_path: Path
) -> None:
    library = host_kernels("nccl_like.c", tmp_path).rename(tmp_path / "libnccl.so.2")
    memory = "--virtual-set=memory=64MiB"
    found, lines = run(f"{before} {library}", tmp_path, memory, program="mapped_segment.py")
    assert found is True
    assert "fails" not in lines and "out of memory" not in lines
