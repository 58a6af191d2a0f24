"""Builds and runs the targets, and lists their inputs. Python: targets/. C: fuzz_*.c.

An input that takes more than 2 s of CPU time, or 512 MiB at once, is a failure (bounds.py,
fuzz_main.c). A run starts with sound inputs (seeds) and the findings of earlier runs (found/TARGET,
base64: one file per fault). Then follow inputs with which earlier runs reached new code
(corpus/TARGET.zip, written by keep.py).
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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import command_seeds
import host_seeds
import image_seeds
import targets

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIM, CORE = ROOT / "shim", ROOT / "daemon" / "core"
INPUT_BYTES = 9000
MEMORY_MIB = 512
"""Limit of one allocation in a C target."""
PROCESS_MIB = 2048
"""Limit of a guided process, which keeps its inputs and the sanitizer's freed memory."""
BLOCKED_S = 20
"""Time limit of an input that waits."""

C_TARGETS = {
    "image": [*sorted((ROOT / "lab" / "image").glob("image*.c"))],
    "ring": [CORE / "batch.c"],
    "command": [SHIM / "execute" / f"{name}.c" for name in ("schedule", "validate")],
    "jobs": [SHIM / "life" / "job_rules.c"],
    "ledger": [SHIM / "base" / "settings.c"],  # the target includes both files of claims
    "host": [SHIM / "memory" / "host_memory.c"],
    "schedule": [*sorted(CORE.rglob("*.c"))],
}
FLAGS = ["-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-Wall", "-Wextra"]
FLAGS += ["-DPUMP_ASSERTIONS"]
FLAGS += ["-Wconversion", "-Wshadow", "-Werror", "-fno-omit-frame-pointer"]
FLAGS += ["-fsanitize=address,undefined", f"-I{ROOT}", f"-I{SHIM / 'include'}"]
ENVIRON = {
    **os.environ,
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "ASAN_OPTIONS": f"max_allocation_size_mb={MEMORY_MIB}",
}

ATHERIS = importlib.util.find_spec("atheris")
CXX = os.environ.get("CXX", "c++")
"""The linker: libFuzzer is C++."""
MISSING = (
    "Atheris is not installed (pip install '.[fuzz]')"
    if ATHERIS is None
    else f"there is no {CXX} (apt-get install g++)"
    if shutil.which(CXX) is None
    else ""
)
"""The reason why no run can be guided; "" if runs can be guided."""
TARGETS = (*targets.NAMES, *C_TARGETS)


def seeds(target: str) -> dict[str, bytes]:
    """Returns sound inputs by name."""
    if target not in C_TARGETS:
        return {f"seed-{i}": data for i, data in enumerate(targets.load(target).seeds())}
    if target == "image":
        return image_seeds.SEEDS
    if target == "command":
        return command_seeds.SEEDS
    if target in host_seeds.SEEDS:
        return host_seeds.SEEDS[target]
    return {"none": b"", "rows": ring_rows()} if target == "ring" else schedule_words()


def found(target: str) -> dict[str, bytes]:
    """Returns the findings of earlier runs by name."""
    paths = sorted((HERE / "found" / target).glob("*.b64"))
    return {path.stem: base64.b64decode(path.read_text()) for path in paths}


def kept(target: str) -> dict[str, bytes]:
    """Returns the inputs with which earlier runs reached new code."""
    path = HERE / "corpus" / f"{target}.zip"
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as corpus:
        return {name: corpus.read(name) for name in corpus.namelist()}


def all_inputs(target: str) -> dict[str, bytes]:
    return seeds(target) | found(target) | kept(target)


def as_files(inputs: dict[str, bytes], folder: Path) -> list[Path]:
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in inputs]


def ring_rows() -> bytes:
    """Returns three kernels of one extent each, as fuzz_ring.c reads them."""
    extent = (7).to_bytes(4, "little") + bytes(20)
    record = bytes(24) + (1).to_bytes(2, "little") + (1).to_bytes(2, "little")
    rows = (b"\0" + record.ljust(48, b"\0") + extent.ljust(72, b"\0")) * 3
    return bytes(8) + b"\3" + rows


def schedule_words() -> dict[str, bytes]:
    """Returns inputs in which a client works and writes each kind of word to each place."""
    goes_on = bytes([0, 0, 0xA7, 9, 5, 0, 3, 3])  # issue; tick; carry out all; execute
    words = {"honest": goes_on * 20}
    for place in range(7, 18):
        for word in range(12):
            where = [0] if 8 <= place <= 12 else []
            written = bytes([place, 0, word, 1, 1, *where])
            words[f"{place}-{word}"] = (written + goes_on) * 8
    for word in range(12):
        words[f"valid-{word}"] = (bytes([13, 1, word, 1, 1]) + goes_on) * 8
    for slot in range(10):  # an operation that was not predicted, before all is carried out
        words[f"deviates-{slot}"] = (bytes([2, slot, 5, 0]) + goes_on * 3) * 8
    for loss in range(5):  # the window, a policy, the learner, all ranges, schedules
        words[f"loss-{loss}"] = (bytes([0xA7, loss]) + goes_on * 3) * 6
    return words


def run(command: list[str | Path], seconds: float) -> str:
    """Returns the command's stderr; raises AssertionError with its last output if it fails."""
    done = subprocess.run(
        command, env=ENVIRON, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stderr


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="pump-fuzz-"))


@functools.cache
def _object(source: Path, traced: bool) -> Path:
    made = _folder() / f"{source.parent.name}-{source.stem}-{traced}.o"
    trace = ["-fsanitize-coverage=trace-pc,trace-cmp"] if traced else []
    run([os.environ.get("CC", "cc"), *FLAGS, *trace, "-c", source, "-o", made], 300)
    return made


@functools.cache
def built(target: str) -> Path:
    """Builds a C target: guided if possible, else a program that runs the given files."""
    sources = [HERE / f"fuzz_{target}.c", *C_TARGETS[target]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _object(source, not MISSING), sources))
    program, main = _folder() / target, HERE / "fuzz_main.c"
    if MISSING:
        compiler = [os.environ.get("CC", "cc"), *FLAGS]
        run([*compiler, main, *objects, "-ldl", "-lm", "-pthread", "-o", program], 300)
        return program
    guide = _folder() / "main.o"
    run([os.environ.get("CC", "cc"), *FLAGS, "-DGUIDED", "-c", main, "-o", guide], 300)
    assert ATHERIS is not None and ATHERIS.origin is not None
    library = Path(ATHERIS.origin).parents[1] / "libclang_rt.fuzzer_no_main.a"
    link = [CXX, "-fsanitize=address,undefined", "-Wl,--wrap=__sanitizer_cov_trace_pc"]
    run([*link, guide, *objects, library, "-ldl", "-lm", "-pthread", "-o", program], 300)
    return program


def guided(target: str, corpus: Path, seed: int, seconds: int, runs: int = -1) -> str:
    """Returns libFuzzer's output. Runs for `seconds`, or at most `runs` inputs (-1: no limit).

    corpus: a folder with the first inputs, which also gets inputs that reach new code. Raises
    AssertionError if an input does harm; that input is saved next to the corpus.
    """
    words = {"max_total_time": seconds, "runs": runs, "seed": seed, "max_len": INPUT_BYTES}
    words |= {"timeout": BLOCKED_S, "rss_limit_mb": PROCESS_MIB, "malloc_limit_mb": MEMORY_MIB}
    words |= {"len_control": 0}  # allows long inputs from the start
    options: list[str | Path] = [f"-{name}={value}" for name, value in words.items()]
    options += [f"-artifact_prefix={corpus.parent}/", corpus]
    if target in C_TARGETS:
        return run([built(target), *options], 60 + 2 * seconds)
    return run([sys.executable, HERE / "guided.py", target, *options], 60 + 2 * seconds)
