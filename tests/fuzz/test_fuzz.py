"""Bytes from others, whatever they are: seeds, what earlier runs found, and guided runs.

Python targets: targets.py. C targets: fuzz_image.c (module images), fuzz_ring.c and fuzz_plan.c
(what a worker reads of a client's mapping: events, ends of commands, plans). Guided runs (--long)
follow the code that an input executes, by Atheris and the libFuzzer that it brings; what they
find goes into found/TARGET (base64).
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import image_seeds
import pytest
import targets

HERE = Path(__file__).resolve().parent
SHIM = HERE.parents[1] / "shim"
SECONDS = 120
"""Of each guided run."""
INPUT_BYTES = 9000

C_TARGETS = {
    "image": ["image/image.c", *(f"image/image_{part}.c" for part in ("elf", "fatbin", "ptx"))],
    "ring": ["core/batch.c"],
    "plan": [
        str(path.relative_to(SHIM))
        for kind in ("batch", "extents*", "learner*", "model_*", "serve*")
        for path in sorted((SHIM / "core").glob(f"{kind}.c"))
    ],
}
LEAST_RUNS = {"plan": 300}
"""Of a guided run; a thousand of other targets, which have nothing to learn first."""
FLAGS = ["-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-Wall", "-Wextra"]
FLAGS += ["-Wconversion", "-Wshadow", "-Werror", "-fno-omit-frame-pointer"]
FLAGS += ["-fsanitize=address,undefined", f"-I{SHIM}", f"-I{SHIM / 'include'}"]
ENVIRON = {
    **os.environ,
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "ASAN_OPTIONS": "allocator_may_return_null=1",
}

ATHERIS = importlib.util.find_spec("atheris")
needs_atheris = pytest.mark.skipif(
    ATHERIS is None, reason="Atheris is not installed (pip install '.[fuzz]')"
)
CXX = os.environ.get("CXX", "c++")
"""Links: libFuzzer is C++."""
needs_cxx = pytest.mark.skipif(
    shutil.which(CXX) is None, reason=f"there is no {CXX} (apt-get install g++)"
)


def found(target: str) -> dict[str, bytes]:
    """What earlier runs found, by name; kept as text."""
    paths = sorted((HERE / "found" / target).glob("*.b64"))
    return {path.stem: base64.b64decode(path.read_text()) for path in paths}


def seeds(target: str) -> dict[str, bytes]:
    """Sound inputs of a C target, by name."""
    if target == "image":
        return image_seeds.SEEDS
    return {"none": b"", "rows": ring_rows()} if target == "ring" else plan_words()


def as_files(inputs: dict[str, bytes], folder: Path) -> list[Path]:
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in inputs]


def ring_rows() -> bytes:
    """Three kernels of one extent each, as fuzz_ring.c takes them."""
    extent = (7).to_bytes(4, "little") + bytes(20)
    record = bytes(24) + (1).to_bytes(2, "little") + (1).to_bytes(2, "little")
    rows = (b"\0" + record.ljust(48, b"\0") + extent.ljust(72, b"\0")) * 3
    return bytes(8) + b"\3" + rows


def plan_words() -> dict[str, bytes]:
    """A client that goes on, and writes each word that fuzz_plan.c knows into each place."""
    goes_on = bytes([0, 0, 0xA7, 9, 5, 0, 3, 3])  # issues; a tick; all is carried out; executes
    found = {"honest": goes_on * 20}
    for place in range(7, 18):
        for word in range(12):
            where = [0] if 8 <= place <= 12 else []
            written = bytes([place, 0, word, 1, 1, *where])
            found[f"{place}-{word}"] = (written + goes_on) * 8
    for loss in range(4):  # the window, a policy, what was learned, all ranges
        found[f"loss-{loss}"] = (bytes([0xA7, loss]) + goes_on * 3) * 6
    return found


def run(command: list[str | Path], seconds: float) -> str:
    done = subprocess.run(
        command, env=ENVIRON, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stderr


@functools.cache
def built(target: str, guided: bool) -> Path:
    """A C target: plain, which runs the files it is given once, or guided."""
    folder = Path(tempfile.mkdtemp(prefix="pump-fuzz-"))
    compiler = [os.environ.get("CC", "cc"), *FLAGS]
    sources = [HERE / f"fuzz_{target}.c", *(SHIM / name for name in C_TARGETS[target])]
    program = folder / target
    if not guided:
        run([*compiler, *sources, HERE / "fuzz_main.c", "-o", program], 300)
        return program
    objects = []
    for source in sources:
        objects.append(folder / f"{source.stem}.o")
        traced = "-fsanitize-coverage=trace-pc,trace-cmp"
        run([*compiler, traced, "-c", source, "-o", objects[-1]], 300)
    main = folder / "main.o"
    run([*compiler, "-DGUIDED", "-c", HERE / "fuzz_main.c", "-o", main], 300)
    assert ATHERIS is not None and ATHERIS.origin is not None
    library = Path(ATHERIS.origin).parents[1] / "libclang_rt.fuzzer_no_main.a"
    link = [CXX, "-fsanitize=address,undefined"]
    link += ["-Wl,--wrap=__sanitizer_cov_trace_pc"]
    run([*link, main, *objects, library, "-lm", "-pthread", "-o", program], 300)
    return program


@pytest.mark.parametrize("target", targets.TARGETS)
def test_seeds_and_what_was_found_do_no_harm(target: str) -> None:
    inputs = targets.seeds(target)
    assert len(inputs) >= 8
    for data in [*inputs, *found(target).values()]:
        targets.TARGETS[target](data)
        for end in range(0, len(data), 1 + len(data) // 50):  # and cut anywhere
            targets.TARGETS[target](data[:end])


@pytest.mark.parametrize("target", C_TARGETS)
def test_seeds_and_what_was_found_do_no_harm_in_c(target: str, tmp_path: Path) -> None:
    run([built(target, False), *as_files(seeds(target) | found(target), tmp_path)], 60)


def options(seed: int) -> list[str]:
    words = {"max_total_time": SECONDS, "seed": seed, "max_len": INPUT_BYTES, "rss_limit_mb": 0}
    words |= {"timeout": 20, "len_control": 0}  # inputs as long as that from the beginning
    return [f"-{name}={value}" for name, value in words.items()]


def explored(told: str, least: int) -> None:
    """libFuzzer ended by itself after so many inputs at least, and kept new ones."""
    (last,) = [line for line in told.splitlines() if "\tDONE" in line]
    assert int(last.split()[0].removeprefix("#")) > least
    assert "\tNEW" in told


@pytest.mark.long
@needs_atheris
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", targets.TARGETS)
def test_a_guided_run_finds_nothing(target: str, seed: int, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command = [sys.executable, HERE / "guided.py", target, corpus, *options(seed)]
    explored(run([*command, f"-artifact_prefix={tmp_path}/"], SECONDS * 3), 1000)


@pytest.mark.long
@needs_atheris
@needs_cxx
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", C_TARGETS)
def test_a_guided_run_finds_nothing_in_c(target: str, seed: int, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    as_files(seeds(target), corpus)
    command = [built(target, True), corpus, *options(seed), f"-artifact_prefix={tmp_path}/"]
    explored(run(command, SECONDS * 3), LEAST_RUNS.get(target, 1000))
