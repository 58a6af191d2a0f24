"""Fuzzes the iteration learner under sanitizers, and compares its hashes with naive ones."""

import pytest
from c_build import build, run

PARTS = ("", "_ahead", "_branches", "_match", "_relocations", "_log", "_accesses")
SOURCES = [f"learner{part}.c" for part in PARTS]
SANITIZER = "address,undefined"


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_neither_crashes_it_nor_makes_two_learners_differ(seed: int) -> None:
    run(build(SANITIZER, "learner_fuzz", *SOURCES), "noise", str(seed), "30000")


@pytest.mark.parametrize("seed", range(2))
def test_contexts_agree_with_hashes_made_anew(seed: int) -> None:
    run(build(SANITIZER, "learner_fuzz", *SOURCES), "contexts", str(seed), "5000")


@pytest.mark.long
def test_fuzzing_for_long_finds_nothing_more() -> None:
    program = build(SANITIZER, "learner_fuzz", *SOURCES)
    for seed in range(100, 130):
        run(program, "noise", str(seed), "200000", timeout_s=300)
        run(program, "contexts", str(seed), "30000", timeout_s=300)


@pytest.mark.parametrize("seed", range(4))
def test_another_runs_story_may_be_nonsense(seed: int) -> None:
    run(build(SANITIZER, "learner_fuzz", *SOURCES), "logs", str(seed), "20000")
