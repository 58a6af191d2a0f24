"""Fuzzes the learner of extents under sanitizers, and compares it with naive models."""

import random
from pathlib import Path

import pytest
from c_build import build, run
from extents_client import MIB, Client, words

SOURCES = [
    f"extents{part}.c"
    for part in ("", "_cache", "_formula", "_names", "_params", "_segments", "_tables")
]
SANITIZER = "address,undefined"


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_neither_crashes_it_nor_gets_an_answer_outside_a_range(seed: int) -> None:
    run(build(SANITIZER, "extents_fuzz", *SOURCES), "noise", str(seed), "20000")


@pytest.mark.parametrize("seed", range(3))
def test_starts_agree_with_a_naive_model(seed: int) -> None:
    run(build(SANITIZER, "extents_fuzz", *SOURCES), "starts", str(seed), "20000")


def test_more_starts_than_may_be_known_are_answered_and_not_kept() -> None:
    run(build(SANITIZER, "extents_fuzz", *SOURCES), "full", "0", "0")


def test_many_kernels_and_signatures_leave_its_memory_as_it_is() -> None:
    """All caches are filled once; after that the process must not grow."""

    def resident_kib() -> int:
        text = Path("/proc/self/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * 4

    client = Client([64 * MIB])
    chosen = random.Random(5)

    def launches(count: int) -> None:
        for _ in range(count):
            parameters = words(chosen.randrange(2, 1 << 31), client.at(MIB), client.at(9 * MIB))
            client.launch(chosen.randrange(1 << 40), parameters)

    launches(60_000)
    before = resident_kib()
    launches(30_000)
    assert resident_kib() - before < 2048


@pytest.mark.parametrize("seed", range(3))
def test_unnamed_kernels_without_parameters_get_the_distance_to_the_next_start(seed: int) -> None:
    """Compares with a naive model: a pointer reaches to the nearest start at least 1 MiB away."""
    chosen = random.Random(seed)
    client = Client([256 * MIB])
    known = {0}
    for function in range(300):
        offsets = sorted({chosen.randrange(1, 512) * MIB // 2 for _ in range(3)})
        believed = client.launch(
            function + 1, words(*(client.at(offset) for offset in offsets)), tell=False
        )
        known |= set(offsets)
        for offset, length in zip(offsets, believed.values(), strict=True):
            ends = [start for start in known if start - offset >= MIB]
            assert length == min(ends, default=256 * MIB) - offset


@pytest.mark.long
def test_fuzzing_for_long_finds_nothing_more() -> None:
    program = build(SANITIZER, "extents_fuzz", *SOURCES)
    for seed in range(100, 140):
        run(program, "noise", str(seed), "100000", timeout_s=300)
        run(program, "starts", str(seed), "50000", timeout_s=300)
