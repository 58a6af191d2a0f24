"""Pump's own CUDA declarations agree with NVIDIA's cuda.h and cudaTypedefs.h.

The headers come with the nvidia-cuda-runtime wheel; without it these tests are skipped.
"""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[2] / "shim"
VIRTUAL = SHIM.parent / "lab" / "driver"


def cuda_include() -> Path:
    """Returns the folder of cuda.h, from any installed NVIDIA wheel."""
    spec = importlib.util.find_spec("nvidia")
    for location in (spec.submodule_search_locations if spec else None) or ():
        for header in Path(location).glob("*/include/cudaTypedefs.h"):
            return header.parent
    pytest.skip("no cuda.h: the nvidia-cuda-runtime wheel is not installed")


def compile_check(tmp_path: Path, text: str, *arguments: str) -> str:
    """Compiles without linking; returns the compiler's messages."""
    source = tmp_path / "check.c"
    source.write_text(text)
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-fsyntax-only", *arguments, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


SIGNATURES = """
#include <cuda.h>
#include <cudaTypedefs.h>
typedef CUresult (*PFN_cuProfilerStart_v4000)(void); /* cudaProfiler.h is not in the wheel */
typedef CUresult (*PFN_cuProfilerStop_v4000)(void);
#define CHECK(pfn, parameters)                                                \\
  _Static_assert(__builtin_types_compatible_p(CUresult(*) parameters, PFN_##pfn), #pfn);
#define TWIN_NONE(name, version, parameters)
#define TWIN_SZ(name, version, parameters) CHECK(name##_v##version##_ptsz, parameters)
#define TWIN_DS(name, version, parameters) CHECK(name##_v##version##_ptds, parameters)
#define TWIN_EZ TWIN_SZ
#define PUMP_DRIVER(shim, level, twin, symbol, name, version, twin_version, p, a) \\
  CHECK(name##_v##version, p) TWIN_##twin(name, twin_version, p)
#include "shim/driver/functions.h"
"""
TWINS = {"NONE": "", "SZ": "_ptsz", "DS": "_ptds", "EZ": "_ptsz"}


def table(*shim: str) -> dict[str, str]:
    """Returns ELF names by signature ("cuMemAlloc_v3020") for the rows whose shim action is one of
    `shim`, or for all rows if `shim` is empty. Includes per-thread twins."""
    text = "".join(path.read_text() for path in sorted((SHIM / "driver").glob("functions_*.h")))
    rows = re.findall(r"^PUMP_DRIVER\((\w+), \w+, (\w+), (\w+), (\w+), (\d+), (\d+),", text, re.M)
    assert len(rows) == text.count("PUMP_DRIVER(") > 300
    found = {}
    for does, twin, symbol, name, version, twin_version in rows:
        if shim and does not in shim:
            continue
        found[f"{name}_v{version}"] = symbol
        if twin != "NONE":
            found[f"{name}_v{twin_version}{TWINS[twin]}"] = symbol + TWINS[twin]
    return found


def test_every_driver_function_has_the_signature_of_the_real_header(tmp_path: Path) -> None:
    complaints = compile_check(
        tmp_path,
        SIGNATURES,
        f"-I{cuda_include()}",
        f"-I{SHIM.parent}",
        "-D__CUDA_API_VERSION_INTERNAL",
    )
    assert complaints == ""


def test_a_wrong_signature_would_be_noticed(tmp_path: Path) -> None:
    wrong = SIGNATURES + "CHECK(cuMemFree_v3020, (unsigned int address))\n"
    complaints = compile_check(
        tmp_path, wrong, f"-I{cuda_include()}", f"-I{SHIM.parent}", "-D__CUDA_API_VERSION_INTERNAL"
    )
    assert "cuMemFree_v3020" in complaints


def elf_name(signature: str, exported: str) -> bool:
    """Returns whether an ELF name fits a signature, as cuMemAlloc_v2 fits cuMemAlloc_v3020."""
    base, _, rest = re.match(r"(\w+?)_v(\d+)(\w*)$", signature).groups()  # type: ignore[union-attr]
    twin = rest
    return bool(re.fullmatch(rf"{base}(_v\d)?{twin}", exported))


def test_each_elf_name_belongs_to_its_signature() -> None:
    functions = table()
    wrong = [(name, pfn) for pfn, name in functions.items() if not elf_name(pfn, name)]
    assert wrong == []
    assert len(set(functions.values())) == len(functions)


def test_every_constant_has_the_value_of_the_real_header(tmp_path: Path) -> None:
    text = (SHIM / "include" / "pump_cuda.h").read_text()
    constants = re.findall(r"\b(CU\w+) = (-?\d+)", text)
    assert len(constants) > 50
    checks = "".join(f'_Static_assert((int){n} == {v}, "{n}");\n' for n, v in constants)
    checks += "".join(
        f'_Static_assert({n} == {v}, "{n}");\n'
        for n, v in re.findall(r"#define (CU_STREAM_\w+) \(\(CUstream\)(\w+)\)", text)
        if not n.endswith(("LEGACY", "PER_THREAD"))
    )
    assert compile_check(tmp_path, f"#include <cuda.h>\n{checks}", f"-I{cuda_include()}") == ""


LAYOUT = """
#include <stddef.h>
#include {header}
const unsigned long values[] = {{
  sizeof(CUresult), sizeof(CUdevice), sizeof(CUdeviceptr), sizeof(CUstream), sizeof(CUuuid),
  sizeof(CUmemLocation), sizeof(CUlaunchConfig), sizeof(cuuint64_t),
  sizeof(CUpointer_attribute), sizeof(CUmem_advise), sizeof(CUstreamCaptureMode),
  sizeof(CUstreamCaptureStatus), sizeof(CUdriverProcAddressQueryResult),
  sizeof(CUDA_LAUNCH_PARAMS), offsetof(CUDA_LAUNCH_PARAMS, hStream),
  sizeof(CUipcMemHandle), sizeof(CUmemAllocationProp), offsetof(CUmemAllocationProp, location),
  offsetof(CUmemAllocationProp, allocFlags), sizeof(CUmemGenericAllocationHandle),
  sizeof(CUDA_MEMCPY2D), sizeof(CUDA_MEMCPY3D), sizeof(CUDA_MEMCPY3D_PEER),
  sizeof(CUmemcpy3DOperand), sizeof(CUDA_MEMCPY3D_BATCH_OP), sizeof(CUstreamBatchMemOpParams),
  offsetof(CUDA_MEMCPY2D, srcDevice), offsetof(CUDA_MEMCPY2D, dstPitch),
  offsetof(CUDA_MEMCPY3D, srcPitch), offsetof(CUDA_MEMCPY3D, dstHost),
  offsetof(CUDA_MEMCPY3D, dstHeight), offsetof(CUDA_MEMCPY3D, Depth),
  offsetof(CUDA_MEMCPY3D_PEER, srcPitch), offsetof(CUDA_MEMCPY3D_PEER, dstHost),
  offsetof(CUDA_MEMCPY3D_PEER, dstHeight), offsetof(CUDA_MEMCPY3D_PEER, Depth),
  offsetof(CUmemcpy3DOperand, op.ptr.rowLength), offsetof(CUmemcpy3DOperand, op.ptr.layerHeight),
  offsetof(CUDA_MEMCPY3D_BATCH_OP, dst), offsetof(CUDA_MEMCPY3D_BATCH_OP, extent),
  sizeof(CUDA_ARRAY_DESCRIPTOR), offsetof(CUDA_ARRAY_DESCRIPTOR, NumChannels),
  sizeof(CUDA_ARRAY3D_DESCRIPTOR), offsetof(CUDA_ARRAY3D_DESCRIPTOR, Format),
  offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags), CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE,
  CUDA_ARRAY3D_DEFERRED_MAPPING, sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC),
  offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size), sizeof(CUmemDecompressParams),
  offsetof(CUmemDecompressParams, dstActBytes), offsetof(CUmemDecompressParams, dst),
  offsetof(CUmemLocation, type), offsetof(CUmemLocation, id),
  sizeof(CUarrayMapInfo), offsetof(CUarrayMapInfo, memHandle.memHandle),
  offsetof(CUlaunchConfig, gridDimX), offsetof(CUlaunchConfig, blockDimX),
  offsetof(CUlaunchConfig, sharedMemBytes), offsetof(CUlaunchConfig, hStream),
  offsetof(CUlaunchConfig, attrs), offsetof(CUlaunchConfig, numAttrs),
  (unsigned long)CU_STREAM_LEGACY, (unsigned long)CU_STREAM_PER_THREAD,
  (unsigned long)CU_LAUNCH_PARAM_END, (unsigned long)CU_LAUNCH_PARAM_BUFFER_POINTER,
  (unsigned long)CU_LAUNCH_PARAM_BUFFER_SIZE,
}};
#include <stdio.h>
int main(void) {{
  for (unsigned i = 0; i < sizeof values / sizeof *values; i++) printf("%lu ", values[i]);
  return 0;
}}
"""


def test_types_have_the_layout_of_the_real_header(tmp_path: Path) -> None:
    seen = []
    for header, folder in (("<cuda.h>", cuda_include()), ('"pump_cuda.h"', SHIM / "include")):
        source, program = tmp_path / "layout.c", tmp_path / "layout"
        source.write_text(LAYOUT.format(header=header))
        command = [os.environ.get("CC", "cc"), "-std=gnu11", f"-I{folder}", str(source)]
        subprocess.run([*command, "-o", str(program)], check=True)
        seen.append(subprocess.run([program], capture_output=True, check=True).stdout)
    assert seen[0] == seen[1]


def test_no_version_of_a_hooked_name_is_missing_between_those_that_are_hooked() -> None:
    """If a driver hides its addresses, the shim resolves a request to the newest known version that
    is not above the requested one. A missing version would resolve to an older one."""
    header = (cuda_include() / "cudaTypedefs.h").read_text()
    known = re.search(r"NEWEST_KNOWN_VERSION (\d+)", (SHIM / "driver" / "resolve.c").read_text())
    assert known
    newest = int(known[1])
    hooked = table("HOOK")
    oldest: dict[str, int] = {}
    for signature in hooked:
        name, version = re.match(r"(\w+?)_v(\d+)", signature).groups()  # type: ignore[union-attr]
        oldest[name] = min(int(version), oldest.get(name, 1 << 30))
    missing = [
        signature
        for signature, name, version in re.findall(r"PFN_((cu\w+?)_v(\d+)\w*)\)", header)
        if signature not in hooked and oldest.get(name, 1 << 30) <= int(version) <= newest
    ]
    assert missing == []


def test_each_hooked_name_that_the_header_maps_to_another_one_is_known() -> None:
    text = (cuda_include() / "cuda.h").read_text()
    hooked = {re.sub(r"_v\d+.*", "", signature) for signature in table("HOOK")}
    mapped = re.findall(
        r"^#define (cu\w+) +(?:__CUDA_API_PT[SD][SZ]\()?(cu\w+?)(?:_v\d)?\)? *$", text, re.M
    )
    others = {(name, elf) for name, elf in mapped if name in hooked and name != elf}
    resolve = (SHIM / "driver" / "resolve.c").read_text()
    known = set(re.findall(r"PUMP_RENAMED\((cu\w+), \d+, (cu\w+)\)", resolve))
    assert others == known


TYPEDEFS = ("cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU")


def lacked() -> list[tuple[str, str, str, str]]:
    """Returns the rows of driver_lacks.h: twin, ELF name, name, version."""
    text = (VIRTUAL / "calls/driver_lacks.h").read_text()
    rows = re.findall(r"^VD_LACKS\((\w+), (\w+), (\w+), (\d+)\)$", text, re.M)
    assert len(rows) == text.count("\nVD_LACKS(") > 100
    return rows


def test_the_virtual_driver_names_every_function_of_the_headers_once() -> None:
    """Covers every version and every per-thread twin, whether it is implemented or lacking."""
    headers = "".join((cuda_include() / f"{name}Typedefs.h").read_text() for name in TYPEDEFS)
    declared = set(re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", headers))
    rows = "".join(path.read_text() for path in (SHIM / "driver").glob("functions_*.h"))
    working = re.findall(r"^PUMP_DRIVER\(\w+, \w+, (\w+), (\w+), (\w+), (\d+)", rows, re.M)
    named = [*working, *lacked()]
    assert {(name, version) for _, _, name, version in named} == {
        (name, version) for name, version, twin in declared if not twin
    }
    assert {(name, TWINS[twin]) for twin, _, name, _ in named if TWINS[twin]} == {
        (name, twin) for name, _, twin in declared if twin
    }
    symbols = [symbol + suffix for twin, symbol, _, _ in named for suffix in {"", TWINS[twin]}]
    assert len(set(symbols)) == len(symbols)


def test_each_elf_name_of_a_lacking_function_is_one_of_the_headers() -> None:
    """The versions of a name are NAME, NAME_v2, ... in this order."""
    rows = "".join(path.read_text() for path in (SHIM / "driver").glob("functions_*.h"))
    working = re.findall(r"^PUMP_DRIVER\(\w+, \w+, (\w+), (\w+), (\w+), (\d+)", rows, re.M)
    versions: dict[str, list[tuple[int, str]]] = {}
    for _, symbol, name, version in [*working, *lacked()]:
        versions.setdefault(name, []).append((int(version), symbol))
    for name, found in versions.items():
        expected = [name, *(f"{name}_v{i}" for i in range(2, len(found) + 1))]
        assert [symbol for _, symbol in sorted(found)] == expected
