"""Arbitrary bytes from others: all kept inputs, and guided runs.

Guided runs follow the executed code with Atheris and its libFuzzer: a short run per target, and
long runs (--long). Findings go into found/TARGET.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import bounds
import fuzz_targets
import image_seeds
import pytest
import targets
from bounds import TooSlowError, bounded

SECONDS_SHORT, RUNS_SHORT = 1, 20_000
"""Limits of a short guided run."""
SECONDS_LONG = 120
CUTS = 50
"""Number of positions for cutting an input."""

can_guide = pytest.mark.skipif(bool(fuzz_targets.MISSING), reason=fuzz_targets.MISSING)


@pytest.mark.parametrize("target", targets.NAMES)
def test_no_input_that_is_kept_does_harm_even_cut_anywhere(target: str) -> None:
    assert len(fuzz_targets.seeds(target)) >= 8
    one = targets.load(target).target
    for data in fuzz_targets.all_inputs(target).values():
        for end in (len(data), *range(0, len(data), 1 + len(data) // CUTS)):
            with bounded():
                one(data[:end])


@pytest.mark.parametrize("target", fuzz_targets.C_TARGETS)
def test_no_input_that_is_kept_does_harm_in_c(target: str, tmp_path: Path) -> None:
    files = fuzz_targets.as_files(fuzz_targets.all_inputs(target), tmp_path)
    fuzz_targets.run([fuzz_targets.built(target), *files], 300)


def test_an_image_of_many_kernels_and_sections_is_read_in_time(tmp_path: Path) -> None:
    """Three readings take at most the 2 s of CPU time that fuzz_main.c allows."""
    files = fuzz_targets.as_files({"crowded": image_seeds.crowded(5000)}, tmp_path)
    fuzz_targets.run([fuzz_targets.built("image"), *files], 300)


def make_corpus(target: str, folder: Path) -> Path:
    """Makes a corpus of all kept inputs of the target."""
    corpus = folder / target / "corpus"
    corpus.mkdir(parents=True)
    fuzz_targets.as_files(fuzz_targets.all_inputs(target), corpus)
    return corpus


def explored(told: str) -> int:
    """Checks that libFuzzer ended by itself; returns its number of inputs."""
    (last,) = [line for line in told.splitlines() if "\tDONE" in line]
    return int(last.split()[0].removeprefix("#"))


@pytest.fixture(scope="module")
def short_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str]]]:
    """Runs a short guided run of every target, as many in parallel as there are CPU cores."""
    folder = tmp_path_factory.mktemp("guided")
    for target in fuzz_targets.C_TARGETS:  # one after another: some share objects
        fuzz_targets.built(target)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            target: pool.submit(
                fuzz_targets.guided,
                target,
                make_corpus(target, folder),
                1,
                SECONDS_SHORT,
                RUNS_SHORT,
            )
            for target in fuzz_targets.TARGETS
        }


@can_guide
@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
def test_a_short_guided_run_finds_nothing(target: str, short_runs: dict[str, Future[str]]) -> None:
    assert explored(short_runs[target].result()) >= len(fuzz_targets.all_inputs(target))


@pytest.mark.long
@can_guide
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
def test_a_long_guided_run_finds_nothing(target: str, seed: int, tmp_path: Path) -> None:
    told = fuzz_targets.guided(target, make_corpus(target, tmp_path), seed, SECONDS_LONG)
    assert explored(told) > len(fuzz_targets.all_inputs(target)) and "\tNEW" in told


def test_an_input_that_takes_too_long_or_too_much_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.1)
    with pytest.raises(TooSlowError), bounded():
        while True:
            pass
    with pytest.raises(MemoryError), bounded():
        bytearray(1 << 30)
