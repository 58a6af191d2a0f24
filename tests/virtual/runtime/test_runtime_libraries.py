"""The stand-ins for libcudart, libcublas, libcublasLt and libcudnn, called by name."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import virtual_driver as virtual

from pump_lab.cli.virtual import STAND_INS
from pump_lab.paths import library

HERE = Path(__file__).resolve().parent
RUNTIME = virtual.ROOT / "lab" / "runtime"
OTHERS = ("cublas", "cublasLt", "cudnn")  # their headers come with the frameworks
HEADERS_OF = {
    "cudart": "cuda_runtime_api.h",
    "cublas": "cublas_v2.h",
    "cublasLt": "cublasLt.h",
    "cudnn": "cudnn.h",
}


def libraries() -> list[str]:
    return [library(f"virtual/runtime/{name}") for name in STAND_INS]


def run(
    program: str,
    *arguments: str,
    mode: str = "compute",
    script: str = "runtime_programs.py",
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a function of the script in a fresh process, with the stand-ins preloaded."""
    environ = virtual.environment(mode, 64 * virtual.MIB, LD_PRELOAD=":".join(libraries()))
    environ["PUMP_VIRTUAL_KERNELS"] += f":{libraries()[1]}"
    return subprocess.run(
        [sys.executable, str(HERE / script), program, *arguments],
        env={name: value for name, value in {**environ, **env}.items() if value},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def found(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "complex64", "complex128"])
def test_products_of_every_type_are_those_of_numpy(name: str) -> None:
    cases = found(run("products", name))
    assert len(cases) >= 4
    for case, worst in cases.items():
        assert worst < 1, f"{case}: {worst} of what rounding explains"


def test_vectors_and_matrices_go_to_the_card_and_back_by_their_strides() -> None:
    assert found(run("vectors")) == {
        "there": [10.0, 0.0, 11.0, 0.0, 12.0, 0.0],
        "back": [10.0, -1.0, -1.0, 11.0, -1.0, -1.0, 12.0],
        "dense": [1.0, 2.0, 3.0, 4.0],
        "matrix": [[1.0, 2.0], [4.0, 5.0], [7.0, 8.0]],
        "refused": [7, 7],
        "nothing": 0,
    }


def test_the_cards_pools_are_found_by_device_and_by_location() -> None:
    assert found(run("pools")) == {"same": [True, True, True], "access": 3, "host": 801}


def test_a_product_is_one_launch_that_touches_its_matrices_alone(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    log = found(run("run_matmul", PUMP_VIRTUAL_REPORT=str(report)))
    assert log == {"status": 0}
    written = json.loads(report.read_text())
    assert written["calls"]["cuLaunchKernel"] == 1
    assert written["kernels"] == {"pump_gemm": 1}


def test_a_report_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    report, mine = tmp_path / "report.json", tmp_path / "thesis"
    mine.write_text("mine")
    for _ in range(2):
        assert found(run("run_matmul", PUMP_VIRTUAL_REPORT=str(report)))
        assert json.loads(report.read_text())["virtual"] is True
    files = {"PUMP_VIRTUAL_REPORT": str(mine), "PUMP_VIRTUAL_EVENTS": str(mine)}
    done = run("run_matmul", mode="timing", **files)
    assert found(done) == {"status": 0}
    assert mine.read_text() == "mine"
    assert "is not a report of the virtual GPU; choose another file" in done.stderr


def test_a_product_takes_the_time_of_its_multiplications(tmp_path: Path) -> None:
    """2048 cubed in float, at 64 a cycle on each of 108 multiprocessors at 1.41 GHz."""
    report = tmp_path / "report.json"
    for side, least_us in ((64, 0), (2048, (2048**3) / 64 / 108 / 1410)):
        assert found(run("run_matmul", str(side), mode="timing", PUMP_VIRTUAL_REPORT=str(report)))
        busy_us = json.loads(report.read_text())["compute_busy_ns"] / 1e3
        assert least_us * 0.999 <= busy_us <= least_us * 1.05 + 50


def test_memory_copies_and_errors_are_those_of_the_runtime() -> None:
    assert found(run("memory")) == {
        "round_trip": True,
        "nothing": 0,
        "free_of_nothing": [0, 0],
        "unknown_free": 1,
        "last_error": [1, 0],
        "types": [2, 3, 1, 0],
        "advised": [0, 1, 0, 1, 1],
        "direction": 21,
        "kernel": 98,
    }


def test_flags_of_the_device_are_those_of_its_context_to_be() -> None:
    assert found(run("flags")) == [0, 12, 12, 12, 1, 1]


def test_per_thread_default_streams_are_streams_of_their_own() -> None:
    assert found(run("per_thread")) == {"set": True, "other": True}


def test_what_is_not_implemented_says_its_name_and_answers_not_supported() -> None:
    done = run("stubs", PUMP_VIRTUAL_LOG="stderr")
    assert found(done) == {"cudaGraphDebugDotPrint": 801, "cublasSsyrk_v2": 15}
    assert "cudaGraphDebugDotPrint is not implemented" in done.stderr
    assert "cublasSsyrk_v2 is not implemented" in done.stderr


def test_without_the_virtual_gpu_they_refuse_and_load_no_driver(tmp_path: Path) -> None:
    """On a machine with its own driver, no program may get the stand-ins by mistake."""
    source = tmp_path / "driver.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) "
        '{ fputs("DRIVER LOADED\\n", stderr); }\n'
        "int cuGetProcAddress_v2(void) { return 0; }\n"
    )
    virtual.compile_c(tmp_path / "libcuda.so.1", "-shared", "-fPIC", source)
    done = run("start", PUMP_VIRTUAL_PROFILE="", LD_LIBRARY_PATH=str(tmp_path))
    assert found(done) == {"cudaFree": 35, "cublasCreate_v2": 1}
    assert done.stderr.count("need the virtual GPU") == 2, "each library, once"
    assert "DRIVER LOADED" not in done.stderr


def test_their_folder_is_on_no_path_that_a_program_is_loaded_from() -> None:
    """They are not in the virtual driver's folder, which is on a job's path."""
    folder = Path(libraries()[0]).parent
    assert folder.name == "runtime"
    assert list(folder.glob("libcuda.so*")) == []
    done = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcublasLt.so.13')"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder.parent), "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert str(folder) not in done.stderr
    assert done.returncode == 0 or "cannot open shared object" in done.stderr


def implemented() -> dict[str, str]:
    """Returns names and parameters of all functions that the sources define, as C."""
    functions = {}
    for source in sorted(RUNTIME.glob("*.c")):
        text = re.sub(r"\\\n", " ", source.read_text())
        for match in re.finditer(r"^(?:RT|BLAS|DNN)_\w+\((?:[\w *]+, )?(\w+),\s*\(", text, re.M):
            depth, end = 1, match.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            functions[match[1]] = " ".join(text[match.end() - 1 : end].split())
    return functions


def listed(name: str) -> set[str]:
    lines = (RUNTIME / "names" / f"{name}.txt").read_text().split("\n")
    return {line for line in lines if line and not line.startswith("#")}


def test_every_function_is_exported_under_a_listed_name() -> None:
    functions = implemented()
    assert {"cudaMalloc", "cudaStreamCreate", "cublasGemmEx", "cublasLtMatmul"} <= set(functions)
    sources = "".join(file.read_text() for file in RUNTIME.glob("*.c"))
    twins = re.findall(r"^RT_\w*TWINS\((\w+), (\w+),", sources, re.M)
    assert len(twins) > 20
    assert {name + suffix for suffix, name in twins} <= listed("cudart")
    assert set(functions) <= listed("cudart").union(*map(listed, OTHERS))


CRT = """
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __specialization_static static
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __CUDA_DEPRECATED_OR_NOTHING
"""
# Types of device code: their headers need a part of the toolkit that no wheel here has.
NO_DEVICE_TYPES = (
    "-D__CUDA_FP16_H__",
    "-D__CUDA_BF16_H__",
    "-D__CUDA_FP8_H__",
    "-D__half=short",
    "-D__nv_bfloat16=short",
)
STRUCTS = (
    *("cudaDeviceProp", "cudaFuncAttributes", "cudaPointerAttributes", "cudaMemPoolProps"),
    *("cudaMemAccessDesc", "cudaMemLocation", "cudaChannelFormatDesc", "cudaExtent", "cudaPos"),
    *("cudaPitchedPtr", "cudaMemcpy3DParms", "cudaResourceDesc", "cudaTextureDesc"),
    *("cudaResourceViewDesc", "cudaKernelNodeParams", "cudaMemsetParams", "cudaHostNodeParams"),
    *("cudaMemAllocNodeParams", "cudaMemcpy3DPeerParms", "cudaMemcpyNodeParams"),
    *("cudaKernelNodeParamsV2", "cudaGraphNodeParams"),
)
# A field that the oldest supported headers lack, and the structure that ends with it.
YOUNGER, GROWN = "functionType", "cudaKernelNodeParamsV2"


def include_folder(header: str) -> Path:
    """Returns the folder of that header in an NVIDIA wheel, here or among the frameworks."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (spec.submodule_search_locations if spec else None) or ()]
    frameworks = os.environ.get("PUMP_FRAMEWORKS")  # like tests/frameworks
    if frameworks:
        places += Path(frameworks).glob("lib/python*/site-packages/nvidia")
    for place in places:
        for file in sorted(place.glob(f"*/include/{header}")):
            return file.parent
    pytest.skip(f"no {header}: no wheel that brings it is installed")


def compile_against(tmp_path: Path, header: str, text: str) -> None:
    """Compiles `text` after that header, with a made-up replacement for the part from nvcc."""
    folder = include_folder(header)
    (tmp_path / "crt").mkdir()
    (tmp_path / "crt" / "host_defines.h").write_text(CRT)
    source = tmp_path / "check.c"
    source.write_text(f"#include <stddef.h>\n#include <{header}>\n{text}")
    extra = [f"-I{include_folder('cuda_runtime_api.h')}"]
    places = [f"-I{folder}", *extra, *([] if (folder / "crt").exists() else [f"-I{tmp_path}"])]
    command = ["cc", "-std=gnu11", "-fsyntax-only", "-w", *NO_DEVICE_TYPES, *places, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize(
    "name", ["cudart", *(pytest.param(n, marks=pytest.mark.frameworks) for n in OTHERS)]
)
def test_signatures_are_those_of_the_real_header(name: str, tmp_path: Path) -> None:
    """Only declared functions are checked: headers lack functions that only nvcc's code calls."""
    folder = include_folder(HEADERS_OF[name])
    declared = "".join(file.read_text(errors="replace") for file in folder.glob("cu[db]*.h"))
    wanted = {
        function: parameters
        for function, parameters in implemented().items()
        if function in listed(name)
        and re.search(rf"\b{function}\(", declared)
        and not function.startswith("__")
    }
    assert len(wanted) >= 9
    checks = []
    for function, parameters in wanted.items():
        checks.append(f"#undef {function}\nextern __typeof__({function}) *check_{function};")
        checks.append(
            f"_Static_assert(__builtin_types_compatible_p(__typeof__(*check_{function}), "
            f'{returned(function)} {parameters}), "{function}");'
        )
    compile_against(
        tmp_path, HEADERS_OF[name], "#define RT_ENUM(name) enum name\n" + "\n".join(checks)
    )


def returned(function: str) -> str:
    if function.endswith(("GetErrorName", "GetErrorString", "GetStatusName", "GetStatusString")):
        return "const char *"
    if function.endswith(("CudartVersion", "LtGetVersion", "cudnnGetVersion")):
        return "size_t"
    if function == "cudnnGetLastErrorString":
        return "void"
    if function == "cudaCreateChannelDesc":
        return "struct cudaChannelFormatDesc"
    prefix = next(name for name in ("cuda", "cublas", "cudnn") if function.startswith(name))
    return "cudaError_t" if prefix == "cuda" else f"{prefix}Status_t"


def layout(struct: str) -> str:
    text = (RUNTIME / "runtime_types.h").read_text()
    body = re.search(rf"^struct {struct} \{{(.*?)^\}};", text, re.M | re.S)
    assert body is not None
    flat, nested = body[1], re.compile(r"(?:struct|union) \{[^{}]*\}")
    while nested.search(flat):
        flat = nested.sub("", flat)
    fields = re.findall(r"(\w+)(?:\[\d+\])?(?=[,;])", flat)
    return "\n".join(
        f"_Static_assert(offsetof(struct own_{struct}, {field}) == "
        f'offsetof(struct {struct}, {field}), "{struct}.{field}");'
        for field in fields
        if field not in ("reserved", YOUNGER)  # newer headers use `reserved` for fields
    )


def test_structs_lie_in_memory_as_in_the_real_header(tmp_path: Path) -> None:
    own = (RUNTIME / "runtime_types.h").read_text()
    copies = []
    for struct in STRUCTS:
        body = re.search(rf"^struct {struct} \{{.*?^\}};", own, re.M | re.S)
        assert body is not None
        copies.append(body[0].replace(f"struct {struct} {{", f"struct own_{struct} {{"))
        size = (
            f'_Static_assert(sizeof(struct own_{struct}) == sizeof(struct {struct}), "{struct}");'
        )
        copies += [size] if struct != GROWN else []
        copies.append(layout(struct))
    text = "\n".join(copies).replace("CUuuid", "cudaUUID_t")
    compile_against(tmp_path, "cuda_runtime_api.h", text)


ASKS = """
import ctypes
driver, table = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print([driver.cuGetExportTable(ctypes.byref(table), bytes(16)) for _ in range(3)], table.value)
"""


@pytest.mark.parametrize(
    ("preloaded", "remedy"), [(False, "pump-run --virtual"), (True, "needs a real GPU")]
)
def test_one_line_tells_a_program_on_nvidias_runtime_what_to_do(
    preloaded: bool, remedy: str
) -> None:
    """The line comes in addition to error 500. The private tables themselves never exist."""
    preload = ":".join(libraries()) if preloaded else ""
    environ = virtual.environment("timing", 64 * virtual.MIB, LD_PRELOAD=preload)
    done = subprocess.run(
        [sys.executable, "-c", ASKS], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[500, 500, 500] None\n"
    (line,) = done.stderr.splitlines()
    assert "NVIDIA's CUDA runtime works only with NVIDIA's driver" in line and remedy in line
