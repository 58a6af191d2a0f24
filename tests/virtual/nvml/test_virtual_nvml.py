"""NVML on the virtual GPU, called by nvidia-ml-py in jobs of pump-run."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from places import ROOT

BIN = Path(sys.executable).parent
MIB = 1 << 20
JOB = """
import ctypes, json, os, sys
import pynvml as nvml
def asked(call, *words):
    try:
        return call(*words)
    except nvml.NVMLError as error:
        return f"error {error.value}"
def memory():
    found = nvml.nvmlDeviceGetMemoryInfo(card)
    return [found.total, found.free, found.used]
def processes():
    return [[one.pid, one.usedGpuMemory] for one in nvml.nvmlDeviceGetComputeRunningProcesses(card)]
def allocate(mib):
    cuda = ctypes.CDLL("libcuda.so")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return [total.value, free.value, total.value - free.value]
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
"""


def job(program: str, *options: str, **environ: str) -> Any:
    """Returns the JSON that a job on the virtual GPU prints, without pump's shim."""
    done = subprocess.run(
        [
            BIN / "pump-run",
            "--virtual",
            "a100-pcie4",
            *options,
            sys.executable,
            "-c",
            JOB + program,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PUMP_DISABLE": "1", **environ},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_card_is_found_by_index_uuid_and_place_and_is_cudas() -> None:
    found = job("""
from cuda.bindings import driver
uuid, place = nvml.nvmlDeviceGetUUID(card), nvml.nvmlDeviceGetPciInfo(card)
driver.cuInit(0)
of_cuda = driver.cuDeviceGetUuid(0)[1].bytes.hex()
pci = driver.cuDeviceGetPCIBusId(32, 0)[1].partition(b"\\0")[0].decode()
same = [nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(place.busId)]
same += [nvml.nvmlDeviceGetHandleByPciBusId(one) for one in (pci, "00000000:01:00")]
print(json.dumps({
    "count": nvml.nvmlDeviceGetCount(), "name": nvml.nvmlDeviceGetName(card),
    "cuda_name": driver.cuDeviceGetName(96, 0)[1].partition(b"\\0")[0].decode(),
    "uuid": uuid.removeprefix("GPU-").replace("-", ""), "cuda_uuid": of_cuda,
    "places": [place.busIdLegacy, pci], "index": nvml.nvmlDeviceGetIndex(card),
    "same": [ctypes.addressof(one.contents) == ctypes.addressof(card.contents) for one in same],
    "capability": nvml.nvmlDeviceGetCudaComputeCapability(card),
    "versions": [nvml.nvmlSystemGetCudaDriverVersion(), driver.cuDriverGetVersion()[1]],
    "other": [asked(nvml.nvmlDeviceGetHandleByIndex, 1),
              asked(nvml.nvmlDeviceGetHandleByUUID, "GPU-0"),
              asked(nvml.nvmlDeviceGetHandleByPciBusId, "0000:02:00.0"),
              asked(nvml.nvmlDeviceGetHandleByPciBusId, "here")],
}))
""")
    assert (found["count"], found["index"], found["capability"]) == (1, 0, [8, 0])
    assert found["name"] == found["cuda_name"] and "pump virtual" in found["name"]
    assert found["uuid"] == found["cuda_uuid"]
    assert found["places"][0] == found["places"][1] == "0000:01:00.0"
    assert found["same"] == [True] * 4
    assert found["versions"][0] == found["versions"][1]
    invalid, missing = (
        f"error {code}"
        for code in (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND)
    )
    assert found["other"] == [invalid, missing, missing, invalid]


def test_memory_is_what_cuda_says_in_both_versions() -> None:
    found = job(
        """
before, nothing = memory(), processes()
cuda = allocate(64)
second = nvml.nvmlDeviceGetMemoryInfo(card, nvml.nvmlMemory_v2)
wrong = asked(nvml.nvmlDeviceGetMemoryInfo, card, 77)
print(json.dumps({"before": before, "nothing": nothing, "cuda": cuda, "now": memory(),
    "wrong": wrong, "second": [second.total, second.free, second.used, second.reserved],
    "processes": processes(), "pid": os.getpid()}))
""",
        "--virtual-set",
        "memory=1GiB",
    )
    assert found["before"] == [1024 * MIB, 1024 * MIB, 0] and found["nothing"] == []
    assert found["now"] == found["cuda"] == [1024 * MIB, 960 * MIB, 64 * MIB]
    assert found["second"] == [*found["now"], 0]
    assert found["wrong"] == f"error {pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}"
    assert found["processes"] == [[found["pid"], 64 * MIB]]


def test_a_tool_sees_the_processes_of_a_shared_card_and_joins_none(tmp_path: Path) -> None:
    shared = ("--virtual-set", "shared=watched")
    look = "print(json.dumps([memory()[2], processes()]))"
    found = job(
        f"""
import subprocess
allocate(32)
tool = [sys.executable, "-c", {JOB + look!r}]
seen = json.loads(subprocess.run(tool, stdout=subprocess.PIPE, check=True).stdout)
print(json.dumps([os.getpid(), seen, memory()[2], processes()]))
""",
        *shared,
        PUMP_VIRTUAL_CARDS=str(tmp_path),
    )
    pid, seen, used, own = found
    assert seen == [used, own] == [32 * MIB, [[pid, 32 * MIB]]]
    assert job(look, *shared, PUMP_VIRTUAL_CARDS=str(tmp_path)) == [0, []]
    assert list(tmp_path.iterdir()) == [], "a tool makes no card"


def test_what_the_model_lacks_is_not_supported_and_not_invented(tmp_path: Path) -> None:
    found = job(
        """
print(json.dumps([asked(call, card) for call in (nvml.nvmlDeviceGetUtilizationRates,
    nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetMaxPcieLinkGeneration)]
    + [asked(nvml.nvmlDeviceGetTopologyCommonAncestor, card, card),
       asked(nvml.nvmlDeviceGetTemperature, card, 0), nvml.nvmlSystemGetDriverVersion()]))
""",
        PUMP_VIRTUAL_LOG=str(tmp_path / "log"),
    )
    assert found == [f"error {pynvml.NVML_ERROR_NOT_SUPPORTED}"] * 5 + ["pump-virtual"]
    assert "nvmlDeviceGetPowerUsage is not implemented" in (tmp_path / "log").read_text()


def test_every_function_that_nvidias_package_asks_for_is_there() -> None:
    found = job("""
import inspect, re
names = set(re.findall(r'_nvmlGetFunctionPointer\\("(\\w+)"\\)', inspect.getsource(nvml)))
library = ctypes.CDLL("libnvidia-ml.so.1")
print(json.dumps([len(names), sorted(name for name in names if not hasattr(library, name))]))
""")
    assert found[0] > 300 and found[1] == []


def test_without_a_start_or_a_virtual_gpu_there_is_an_error() -> None:
    found = job("""
nvml.nvmlShutdown()
late = [asked(nvml.nvmlDeviceGetCount), asked(nvml.nvmlShutdown)]
environ = {name: value for name, value in os.environ.items() if name != "PUMP_VIRTUAL_PROFILE"}
os.execve(sys.executable, [sys.executable, "-c", "import json, pynvml, sys\\n"
    "try: pynvml.nvmlInit()\\nexcept pynvml.NVMLError as error:"
    f" print(json.dumps([*{late!r}, error.value]))"], environ)
""")
    none = f"error {pynvml.NVML_ERROR_UNINITIALIZED}"
    assert found == [none, none, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("nvmlPciInfo_t", pynvml.nvmlPciInfo_t),
        ("nvmlPciInfo_v2_t", pynvml.nvmlPciInfo_v2_t),
        ("nvmlMemory_t", pynvml.c_nvmlMemory_t),
        ("nvmlMemory_v2_t", pynvml.c_nvmlMemory_v2_t),
        ("nvmlProcessInfo_t", pynvml.c_nvmlProcessInfo_v3_t),
    ],
)
def test_layouts_are_those_of_nvidias_package(ours: str, theirs: Any, tmp_path: Path) -> None:

    members = [name for name, *_ in theirs._fields_ if not name.startswith("reserved")]
    rows = [f"offsetof({ours}, {name})" for name in members]
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "lab/nvml/nvml.h"\n'
        f"int main(void) {{ size_t rows[] = {{sizeof({ours}), {', '.join(rows)}}};\n"
        'for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) printf("%zu ", rows[i]); }\n'
    )
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{ROOT}", source, "-o", program], check=True, timeout=60)
    told = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    wanted = [ctypes.sizeof(theirs), *(getattr(theirs, name).offset for name in members)]
    assert list(map(int, told.stdout.split())) == wanted


def test_what_the_library_answers_it_exports() -> None:
    """PyTorch looks up functions by name, so a function on no list would stay hidden."""
    sources = (ROOT / "lab" / "nvml").glob("*.c")
    names = {one for c in sources for one in re.findall(r"^NVML\((nvml\w+)", c.read_text(), re.M)}
    assert "nvmlInit_v2" in names
    look = f"""
library = ctypes.CDLL("libnvidia-ml.so.1")
print(json.dumps([name for name in {sorted(names)} if not hasattr(library, name)]))
"""
    assert job(look) == []
