"""Kernels of Triton, numba and nvcc, and PyTorch's matrix products, with compared results.

The virtual GPU runs no machine code. In compute mode a C function with the kernel's name replaces
the kernel. So these tests cover everything around a kernel, with real data in real memory. The
programs belong to the hardware acceptance; they compare their results with numpy.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from framework_runs import HERE, MIB, Bench, Outcome

pytestmark = pytest.mark.frameworks

ACCEPTANCE = HERE.parent / "acceptance" / "programs"
KERNEL = """
#include <stdint.h>
#include <string.h>
void pump_kernel(void **parameters, const unsigned grid[3], const unsigned block[3])
    __asm__("pump_host_%(name)s");
void pump_kernel(void **parameters, const unsigned grid[3], const unsigned block[3]) {
  uint32_t *values;
  int32_t count;
  (void)grid, (void)block;
  memcpy(&values, parameters[%(pointer)d], sizeof values);
  memcpy(&count, parameters[%(count)d], sizeof count);
  for (int32_t i = 0; i < count; i++) values[i] = values[i] * 3u + 7u;
}
"""


def host_kernel(bench: Bench, name: str, pointer: int, count: int) -> Path:
    """Compiles kernel `name` as a C function; `pointer` and `count` are parameter positions."""
    source, library = bench.folder / "kernel.c", bench.folder / "kernel.so"
    source.write_text(KERNEL % {"name": name, "pointer": pointer, "count": count})
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True, timeout=60)
    return library


def the_kernel(outcome: Outcome) -> str:
    """Returns the kernel's name as its compiler made it."""
    (name,) = [name for name in outcome.kernels() if "mix" in name]
    return name


def check_values(bench: Bench, command: tuple[str | Path, ...], places: tuple[int, int]) -> None:
    """Finds the kernel's name in timing mode, where the result is wrong. With the C function the
    result is right, without pump and with pump on a GPU of half the size."""
    env = {"ACCEPTANCE_ROUNDS": "2"}
    timed = bench.run(*command, pump=False, env=env)
    assert timed.found["right"] is False
    kernels = host_kernel(bench, the_kernel(timed), *places)
    plain = bench.run(*command, pump=False, mode="compute", kernels=kernels, env=env)
    pumped = bench.run(
        *command, pump=True, mode="compute", kernels=kernels, env=env, memory_bytes=64 * MIB
    )
    assert plain.found["right"] is True
    assert pumped.found == plain.found
    assert pumped.seen() == pumped.operations()
    assert pumped.kernels() == plain.kernels()
    assert pumped.violations() == 0


def test_pytorch_multiplies_matrices_that_the_gpu_does_not_hold_at_once(bench: Bench) -> None:
    plain = bench.program("products", pump=False, mode="compute")
    pumped = bench.program("products", pump=True, mode="compute", memory_bytes=24 * MIB)
    assert (plain.found["wrong"], plain.found["right"]) == ([], True)
    assert pumped.found == plain.found
    assert pumped.kernels() == plain.kernels()
    assert pumped.seen() == pumped.operations()
    assert sum(report["evictions"] for report in pumped.reports.values()) > 0


def test_what_pytorch_repeats_is_predicted_and_right(bench: Bench) -> None:
    """The slow link makes some launches find their blocks still in flight."""
    plain = bench.program("rounds", pump=False, mode="compute")
    assert plain.found["right"] is True
    pumped = bench.program(
        "rounds",
        pump=True,
        mode="compute",
        memory_bytes=40 * MIB,
        env={"PUMP_POLICY": "planned"},
        settings=("link.prefetch_h2d_gbps=4",),
    )
    assert pumped.found == plain.found
    assert pumped.seen() == pumped.operations()
    assert pumped.violations() == 0
    (summary,) = pumped.summaries.values()
    assert summary["worker"]["predicted"] > summary["worker"]["operations"] / 2


def test_a_triton_kernel_computes(bench: Bench) -> None:
    check_values(bench, (bench.python, ACCEPTANCE / "use_triton.py"), (0, 1))


def test_a_numba_kernel_computes(bench: Bench) -> None:
    """An array is seven parameters; the fifth is the address, the third the length."""
    check_values(bench, (bench.python, ACCEPTANCE / "use_numba_cuda.py"), (4, 2))


@pytest.mark.parametrize("runtime", ["shared", "none", "per-thread"])
def test_a_program_of_nvcc_computes(runtime: str, bench: Bench) -> None:
    """With "none" the program links the runtime by name, as a custom build may do."""
    nvcc = next(bench.frameworks.glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc"), None)
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("no nvcc in the environment of the frameworks, or no g++")
    program, library = bench.folder / "use_runtime", bench.folder / "libcudart.so"
    library.symlink_to(nvcc.parents[1] / "lib" / "libcudart.so.13")
    link = {
        "shared": ["-cudart=shared", f"-L{bench.folder}", f"-L{nvcc.parents[1] / 'lib'}"],
        "none": ["-cudart=none", "-Xlinker", str(library)],
    }
    link["per-thread"] = [*link["shared"], "--default-stream=per-thread"]
    source = ACCEPTANCE / "use_runtime.cu"
    command = [nvcc, "-arch=sm_80", "-o", program, source, *link[runtime]]
    subprocess.run(command, check=True, timeout=300)
    check_values(bench, (program,), (0, 1))
