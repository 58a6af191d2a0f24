"""Stage "shim": does pump load under each framework, does it see everything, what does it cost?

Each framework runs the same arithmetic once without pump and once with pump. With pump, it is
active from the first operation and has memory for half of the data. Both results must be equal and
correct, and pump's counters must show converted memory and operations. A program that does not run
without pump either cannot be tested here.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acceptance import running, shim_measures
from acceptance.comparing import AT_ONCE, JAX_NEEDS, LEAST_S, TORCH_NEEDS, Case, attempt, compared
from acceptance.contract import FAIL, MIB, UNAVAILABLE, Context, Item, late

NAME = "shim"
LIMIT_S = 90.0
WHAT = "pump under each framework and under nvcc's programs, operations counted, cost of a hook"

PROGRAMS = Path(__file__).with_name("programs")
FOOTPRINT_BYTES = 128 * MIB
CONVERTED_LEAST_BYTES = 64 * MIB
BUDGET_BYTES = 64 * MIB
CPUS_A_JOB = 4
NVCC_WAYS = ("static", "shared", "none")
"""How the program gets the CUDA runtime: static, shared, or only driver functions."""


@dataclass(frozen=True)
class Framework:
    """A program in `programs`. `packages`: any one of them must be installed.

    `needs`: environment that makes the framework pageable, set by the check and named in the
    result. `stream_ordered`: its memory is stream-ordered; pump counts but does not convert it.
    """

    name: str
    file: str
    packages: tuple[str, ...]
    needs: Mapping[str, str] = field(default_factory=dict)
    stream_ordered: bool = False


FRAMEWORKS = (
    Framework("torch", "use_torch.py", ("torch",), TORCH_NEEDS),
    Framework("triton", "use_triton.py", ("triton",), TORCH_NEEDS),
    Framework("jax", "use_jax.py", ("jax",), JAX_NEEDS),
    Framework("cupy", "use_cupy.py", ("cupy-cuda13x", "cupy-cuda12x", "cupy")),
    Framework("cuda-bindings", "use_cuda_bindings.py", ("cuda-bindings",)),
    Framework("cuda-core", "use_cuda_core.py", ("cuda-core",), stream_ordered=True),
    Framework("numba-cuda", "use_numba_cuda.py", ("numba-cuda",)),
)


def run(context: Context) -> Iterator[Item]:
    context.managed(FOOTPRINT_BYTES)
    jobs: dict[str, Callable[[], Item]] = {}
    for framework in FRAMEWORKS:
        jobs[item_name(framework)] = functools.partial(_framework, context, framework)
    for way in NVCC_WAYS:
        jobs[item_name(way)] = functools.partial(_nvcc, context, way)
    yield from together({name: job for name, job in jobs.items() if name not in context.done})
    yield from shim_measures.counts(context)
    yield from shim_measures.cost(context)


# ---- frameworks --------------------------------------------------------------


def item_name(asked: Framework | str) -> str:
    """Returns the item name of a framework, or of one of NVCC_WAYS."""
    return f"nvcc.{asked}" if isinstance(asked, str) else f"framework.{asked.name}"


def together(jobs: Mapping[str, Callable[[], Item]]) -> Iterator[Item]:
    """Yields the items of several jobs as they finish; jobs run in parallel if CPU cores allow.

    Imports take most of their time, and nothing is timed here.
    """
    workers = max(1, min(AT_ONCE, len(os.sched_getaffinity(0)) // CPUS_A_JOB))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(attempt, name, job) for name, job in jobs.items()]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def _framework(context: Context, framework: Framework) -> Item:
    name = item_name(framework)
    if not any(package in context.machine.packages for package in framework.packages):
        return Item(name, UNAVAILABLE, f"{framework.packages[0]} is not installed here")
    words = [sys.executable, str(PROGRAMS / framework.file)]
    return _judged(context, name, words, framework.needs, framework.stream_ordered)


def _judged(
    context: Context,
    name: str,
    words: list[str],
    needs: Mapping[str, str] | None = None,
    stream_ordered: bool = False,
) -> Item:
    case = Case(words, BUDGET_BYTES, CONVERTED_LEAST_BYTES, needs or {}, stream_ordered)
    return compared(context, name, case)


# ---- nvcc --------------------------------------------------------------------


def _nvcc(context: Context, way: str) -> Item:
    name = item_name(way)
    if not context.machine.has_nvcc:
        return Item(name, UNAVAILABLE, "no nvcc here")
    if context.left_s() < LEAST_S:
        return late(name)
    nvcc = context.machine.tools["nvcc"]
    program = context.work / f"use-{way}"
    made = running.tool(
        context, [nvcc, "-O2", *_source(context, way), "-o", str(program)], limit_s=60
    )
    if not made.ok:
        return Item(name, UNAVAILABLE, f"nvcc cannot build it: {made.trouble()}", made.evidence())
    run_words = [str(program)]
    if way == "none":
        ptx = context.work / "kernels.ptx"
        source = str(context.root / "examples" / "kernels.cu")
        image = ["-ptx", "-arch=compute_80", "-o", str(ptx), source]
        compiled = running.tool(context, [nvcc, *image], limit_s=60)
        if not compiled.ok:
            why = f"nvcc cannot compile examples/kernels.cu: {compiled.trouble()}"
            return Item(name, FAIL, why, compiled.evidence())
        run_words += ["sweep", str(ptx)]
    return _judged(context, name, run_words)


def _source(context: Context, way: str) -> list[str]:
    """Returns nvcc's arguments: the source, and how to link the runtime."""
    if way == "none":
        words = ["-x", "c", "-DDIRECT", str(PROGRAMS / "use_driver.c"), "-cudart", "none"]
        return [*words, "-Xlinker", str(driver_library(context))]
    words = [str(PROGRAMS / "use_runtime.cu"), "-cudart", way]
    if way == "shared":  # nvcc does not record the runtime's folder in the program
        words += ["-Xlinker", f"-rpath={runtime_folder(context.machine.tools['nvcc'])}"]
    return words


def runtime_folder(nvcc: str) -> Path:
    """Returns a toolkit's folder that contains libcudart.so."""
    return Path(nvcc).resolve().parents[1] / "lib64"


def driver_library(context: Context) -> Path:
    """Returns the libcuda.so.1 that programs will load."""
    if context.machine.virtual:
        return running.library_folder(context.root) / running.VIRTUAL_DRIVER
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libcuda.so" in path:
            return Path(f"/{path}")
    return Path("libcuda.so.1")
