"""Checks the driver in a child process, in the environment of a job.

The child loads driver and shim, so that their crash or hang does not affect this process.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from pump.base import paths
from pump.cli.doctor.finding import REINSTALL, Finding, ok, problem, warning
from pump.report.words import size

TIMEOUT_S = 30
VGPU = re.compile(r"\bGRID\b|-\d+[ABCQ]$")
"""A vGPU's name ends in its profile: "NVIDIA A40-48Q", "GRID V100D-8Q" (NVIDIA's documentation of
virtual GPU software, Virtual GPU Types)."""

CHILD = """
import ctypes, json, sys
found = {"devices": []}
try:
    loaded = ctypes.CDLL("libcuda.so.1")
    from cuda.bindings import driver as cuda
except (OSError, ImportError) as error:
    found["lacks" if isinstance(error, ImportError) else "error"] = str(error)
    print(json.dumps(found))
    sys.exit()
which = cuda.CUdevice_attribute
ASKED = {
    "managed": which.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    "concurrent": which.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    "major": which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    "integrated": which.CU_DEVICE_ATTRIBUTE_INTEGRATED,
    "minor": which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
}
def ask(call, *words):
    status, *answer = call(*words)
    if status != cuda.CUresult.CUDA_SUCCESS:
        sys.exit(f"{call.__name__} answers {int(status)}")
    return answer[0]
found["version"] = ask(cuda.cuDriverGetVersion)
found["init"] = int(cuda.cuInit(0)[0])
for number in range(ask(cuda.cuDeviceGetCount) if found["init"] == 0 else 0):
    device = ask(cuda.cuDeviceGet, number)
    name = ask(cuda.cuDeviceGetName, 96, device).partition(b"\\0")[0]
    facts = {"name": name.decode(errors="replace"), "bytes": ask(cuda.cuDeviceTotalMem, device)}
    for fact, attribute in ASKED.items():
        facts[fact] = ask(cuda.cuDeviceGetAttribute, attribute, device)
    found["devices"].append(facts)
address = ctypes.cast(loaded.cuMemAlloc_v2, ctypes.c_void_p).value
for line in open("/proc/self/maps"):
    words = line.split(maxsplit=5)
    begin, end = (int(x, 16) for x in words[0].split("-"))
    if len(words) == 6 and "libcuda.so" in words[5]:
        found["driver"] = words[5].strip()
    if begin <= address < end:
        found["allocates_in"] = words[5].strip() if len(words) == 6 else "no file"
print(json.dumps(found))
"""


def ask(environ: Mapping[str, str]) -> dict[str, Any] | str:
    """Returns the child's answer, or a sentence about its failure."""
    try:
        done = subprocess.run(
            paths.isolated("-c", CHILD),
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"loading the driver takes more than {TIMEOUT_S} s"
    except OSError as error:
        return f"cannot start a process: {error.strerror}"
    complaint = done.stderr.strip().splitlines()
    if done.returncode != 0:
        last = f": {complaint[-1]}" if complaint else ""
        return f"a process that loads the driver exits with status {done.returncode}{last}"
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return "a process that loads the driver prints nothing"
    return (
        answer if isinstance(answer, dict) else "a process that loads the driver prints no answer"
    )


def findings(answer: dict[str, Any] | str, shim: str | None) -> list[Finding]:
    """Returns the findings on the child's answer. shim: path of libpump.so, None if pump is
    disabled."""
    if isinstance(answer, str):
        remedy = "PUMP_DISABLE=1 pump doctor: if that works, report a fault of pump"
        return [problem("driver", answer, remedy)]
    if "lacks" in answer:
        text = f"cannot import cuda-python: {answer['lacks']}"
        return [problem("driver", text, REINSTALL)]
    if "error" in answer:
        remedy = "install NVIDIA's driver, or try a virtual GPU: pump doctor --virtual a100-pcie4"
        return [problem("driver", answer["error"], remedy)]
    version = f"CUDA {answer['version'] // 1000}.{answer['version'] % 1000 // 10}"
    where = f"{version}, {answer.get('driver', 'libcuda.so.1')}"
    if answer["init"] != 0:
        text = f"{where}: cuInit fails with error {answer['init']}"
        return [problem("driver", text, "run nvidia-smi, and echo $CUDA_VISIBLE_DEVICES")]
    found = [_check_version(where, answer["version"])]
    found += [_check_device(number, facts) for number, facts in enumerate(answer["devices"])]
    if not answer["devices"]:
        found.append(problem("devices", "the driver reports no GPU", "unset CUDA_VISIBLE_DEVICES"))
    if shim is not None:
        found.append(
            _check_interception(answer.get("allocates_in", ""), answer.get("driver", ""), shim)
        )
    return found


def _check_version(where: str, version: int) -> Finding:
    if version < 12000:
        return problem("driver", f"{where}: too old", "install a driver for CUDA 12.4 or newer")
    if version < 12040:
        text = f"{where}: cannot list kernel parameters, so jobs run on demand paging"
        return warning("driver", text, "install a driver for CUDA 12.4 or newer")
    return ok("driver", where)


def _check_device(number: int, facts: dict[str, Any]) -> Finding:
    text = f"{facts['name']}, {size(facts['bytes'])}, sm_{facts['major']}{facts['minor']}"
    if facts["integrated"]:
        return problem(
            f"device {number}",
            f"{text}: it uses the host's memory, so there is nothing to page",
            "use a GPU with its own memory: pump does not support Jetson",
        )
    if VGPU.search(facts["name"]):
        return problem(
            f"device {number}",
            f"{text}: a vGPU, which pump does not support: its host manages the memory",
            "pass a whole GPU or a MIG instance through",
        )
    if not facts["managed"] or not facts["concurrent"]:
        return problem(
            f"device {number}",
            f"{text}: cannot page its memory (no concurrent managed access)",
            "use Linux and a GPU of the Pascal generation or newer, neither WSL2 nor a vGPU",
        )
    return ok(f"device {number}", text)


def _check_interception(allocates_in: str, driver: str, shim: str) -> Finding:
    if allocates_in == shim:
        return ok("interception", f"programs find cuMemAlloc in {shim}")
    text = f"programs under pump-run find cuMemAlloc in {allocates_in or 'no library'}"
    if allocates_in in ("", driver):
        remedy = f"see why the loader does not preload pump: LD_PRELOAD={shim} true"
    else:
        remedy = "remove that library, which hides pump, from LD_PRELOAD"
    return problem("interception", text, remedy)
