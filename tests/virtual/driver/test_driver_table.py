"""The virtual driver's table: names, versions, flags, and its exports."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import virtual_driver as virtual

HERE = Path(__file__).resolve().parent
NOT_FOUND = 500
# cuda-bindings asks for them in CUDA 12.8, but cuda.h has them since 12.9.
ASKED_TOO_EARLY = {
    "cuLogsCurrent",
    "cuLogsDumpToFile",
    "cuLogsDumpToMemory",
    "cuLogsRegisterCallback",
    "cuLogsUnregisterCallback",
}


@functools.cache
def client() -> Path:
    source = HERE / "client_table.c"
    return virtual.compile_c(virtual.folder() / "client_table", "-O1", source, "-ldl")


def asked(*questions: tuple[str, int, int], **env: str) -> dict[str, list[str]]:
    """Returns answers by "NAME/VERSION/FLAGS": result, status, symbol, library."""
    words = [str(word) for question in questions for word in question]
    done = subprocess.run(
        [str(client()), *words],
        env=virtual.environment("timing", virtual.GIB, **env),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {key: rest for key, *rest in (line.split() for line in done.stdout.splitlines())}


def exported() -> set[str]:
    library = virtual.build() / "libcuda.so.1"
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemPrefetchAsync", 8000, 0, "cuMemPrefetchAsync"),
        ("cuMemPrefetchAsync", 12010, 0, "cuMemPrefetchAsync"),
        ("cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"),
        ("cuMemPrefetchAsync", 13000, 2, "cuMemPrefetchAsync_v2_ptsz"),
        ("cuMemAdvise", 12020, 0, "cuMemAdvise_v2"),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemcpyHtoD", 13000, 1, "cuMemcpyHtoD_v2"),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernelEx", 12000, 2, "cuLaunchKernelEx_ptsz"),
        ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"),
        ("cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"),
        ("cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"),
        ("cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync"),
        ("cuMemcpyBatchAsync", 13000, 0, "cuMemcpyBatchAsync_v2"),
        ("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiate", 13000, 0, "cuGraphInstantiateWithFlags"),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
        ("cuCtxSynchronize", 12000, 0, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"),
        ("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"),
        ("cuLinkCreate", 6000, 0, "cuLinkCreate"),
        ("cuLinkCreate", 13000, 0, "cuLinkCreate_v2"),
        ("cuGraphicsMapResources", 13000, 2, "cuGraphicsMapResources_ptsz"),
        ("cuCtxEnablePeerAccess", 13000, 0, "cuCtxEnablePeerAccess"),
    ],
)
def test_the_newest_abi_that_is_not_newer_than_asked_is_answered(
    name: str, version: int, flags: int, symbol: str
) -> None:
    found = asked((name, version, flags))[f"{name}/{version}/{flags}"]
    assert found == ["0", "0", symbol, "libcuda.so.1"]


def test_an_empty_name_with_version_0_is_an_error_and_no_crash() -> None:
    found = asked(("", 0, 0), ("", 13000, 2))
    assert int(found["(empty)/0/0"][0]) != 0
    assert int(found["(empty)/13000/2"][0]) != 0


def test_unknown_names_are_not_found_and_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = asked(("cuNoSuchCall", 13000, 0), ("cuMemAlloc", 1000, 0), PUMP_VIRTUAL_LOG=str(log))
    assert found["cuNoSuchCall/13000/0"][:2] == [str(NOT_FOUND), "1"]
    assert found["cuMemAlloc/1000/0"][:2] == [str(NOT_FOUND), "2"], "version too old"
    assert '"cuNoSuchCall"' in log.read_text()


def test_the_first_version_of_the_query_and_dlsym_give_the_same_address() -> None:
    assert asked()["v1"] == ["0", "1"]


def test_every_name_that_cuda_bindings_asks_for_is_found() -> None:
    program = (
        "from cuda.bindings._internal.driver import _inspect_function_pointers as asked\n"
        "found = asked()\n"
        "print(len(found), *(name.strip('_') for name in found if not found[name]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=virtual.environment("timing", virtual.GIB),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    count, *missing = done.stdout.split()
    assert int(count) > 400
    assert set(missing) <= ASKED_TOO_EARLY


def test_a_function_that_is_lacking_says_so_once_the_driver_is_initialised() -> None:
    found = asked()["lacking"]
    assert found == ["3", "801"], "not initialised, then not supported"


def test_an_older_driver_has_no_newer_function_that_is_lacking() -> None:
    name = "cuGraphGetId"
    found = asked((name, 13050, 0), PUMP_VIRTUAL_VERSION="12020")[f"{name}/13050/0"]
    assert found[:2] == [str(NOT_FOUND), "2"]


def test_there_is_no_private_table() -> None:
    assert asked()["export_table"] == [str(NOT_FOUND), "1"]


def test_only_driver_functions_and_those_for_nvml_and_pump_are_exported() -> None:
    others = {"pump_card_read", "pump_card_lacks", "pump_page_map", "pump_virtual_block"}
    names = exported() - others
    assert len(exported()) == len(names) + len(others)
    assert len(names) > 250
    assert all(re.fullmatch(r"cu[A-Z]\w+", name) for name in names), names


def test_the_table_holds_our_functions_even_when_a_library_exports_the_same_names() -> None:
    source = virtual.folder() / "interposer.c"
    source.write_text(
        "int cuMemAlloc_v2(void *p, long n);\nint cuMemAlloc_v2(void *p, long n)"
        " { (void)p, (void)n; return 999; }\n"
    )
    preload = virtual.compile_c(virtual.folder() / "pre.so", "-shared", "-fPIC", source)
    found = asked(("cuMemAlloc", 13000, 0), LD_PRELOAD=str(preload))
    assert found["cuMemAlloc/13000/0"] == ["0", "0", "cuMemAlloc_v2", "libcuda.so.1"]


def test_the_layouts_are_those_of_the_real_header(tmp_path: Path) -> None:
    nvidia = pytest.importorskip("nvidia", reason="needs the headers of nvidia-cuda-runtime")
    headers = [
        path for folder in nvidia.__path__ for path in Path(folder).glob("**/include/cuda.h")
    ]
    if not headers:
        pytest.skip("needs the headers of nvidia-cuda-runtime")
    include = virtual.SHIM / "include"
    places = (include / "pump_cuda.h", include / "pump_cuda_graph.h")
    own = virtual.DRIVER / "base/driver_types.h"
    types = "".join(path.read_text() for path in (*places, own))
    lines = []
    for name in re.findall(r"^\} (\w+);$", types, re.MULTILINE):
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
    for struct, fields in {
        "CUDA_MEMCPY2D": ("srcHost", "srcPitch", "dstDevice", "dstPitch", "Height"),
        "CUDA_MEMCPY3D": ("srcLOD", "srcPitch", "dstHost", "dstHeight", "Depth"),
        "CUmemPoolProps": ("location", "maxSize"),
        "CUDA_GRAPH_INSTANTIATE_PARAMS": ("hErrNode_out", "result_out"),
        "CUgraphNodeParams": ("kernel.kern", "memcpy.copyParams", "memset.height", "reserved2"),
        "CUDA_MEM_ALLOC_NODE_PARAMS": ("accessDescs", "bytesize", "dptr"),
        "CUgraphExecUpdateResultInfo": ("errorNode", "errorFromNode"),
    }.items():
        lines += [f'printf("%zu\\n", offsetof({struct}, {field}));' for field in fields]
    for name, value in re.findall(r"\b(CU\w+) = (-?\d+)", types):
        lines.append(f'printf("{name} %d\\n", (int)({value}) == (int){name});')
    body = "#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n" + "\n".join(lines) + "}\n"
    outputs = []
    for number, header in enumerate((own, "cuda.h")):
        source = tmp_path / f"layout{number}.c"
        source.write_text(f'#include "{header}"\n{body}')
        folders = [*virtual.INCLUDES]
        if header == "cuda.h":
            folders = [f"-I{headers[0].parent}"]
        program = virtual.compile_c(tmp_path / f"layout{number}", *folders, source)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == outputs[1]
