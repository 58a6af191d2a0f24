"""Asks NVML and the driver which GPU is present, and prints one JSON line. Run as a program.

Runs in its own process, because a driver that hangs or crashes must not affect the caller. Creates
only a context. Without a usable GPU it prints one line to stderr and exits with status 1.
"""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from typing import Any


def check(call: str, answer: Any) -> Any:
    """Returns the value of a cuda-bindings answer. Raises RuntimeError if the call failed."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"{call}: {status.name}")
    return values[0] if len(values) == 1 else values


def of_driver() -> dict[str, Any]:
    """Returns name, identity and memory of device 0. Raises RuntimeError, ImportError."""
    from cuda.bindings import driver

    check("cuInit", driver.cuInit(0))
    device = check("cuDeviceGet", driver.cuDeviceGet(0))
    context = check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(device))
    check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
    free_bytes, total_bytes = check("cuMemGetInfo", driver.cuMemGetInfo())
    name = check("cuDeviceGetName", driver.cuDeviceGetName(256, device))
    identity = check("cuDeviceGetUuid", driver.cuDeviceGetUuid(device)).bytes
    found = {
        "name": name.split(b"\0")[0].decode(),
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(identity))}",
        "cuda": check("cuDriverGetVersion", driver.cuDriverGetVersion()),
        "free_bytes": int(free_bytes),
        "total_bytes": int(total_bytes),
    }
    check("cuDevicePrimaryCtxRelease", driver.cuDevicePrimaryCtxRelease(device))
    return found


def of_nvml(identity: str) -> dict[str, Any]:
    """Returns driver version, link and used memory of that GPU. Raises what pynvml raises."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(identity.encode())
        version = pynvml.nvmlSystemGetDriverVersion()
        found = {
            "driver": version if isinstance(version, str) else version.decode(),
            "used_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        }
        # Some machines hide the link; its values are optional.
        with contextlib.suppress(pynvml.NVMLError):
            found["pcie_generation"] = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
            found["pcie_width"] = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
        return found
    finally:
        pynvml.nvmlShutdown()


def main() -> int:
    try:
        found = of_driver()
    except Exception as error:  # no driver, no device or no cuda-bindings: no usable GPU
        print(error or type(error).__name__, file=sys.stderr)
        return 1
    try:
        found |= of_nvml(found["uuid"])
    except Exception as error:  # the virtual GPU and some containers have no NVML
        found["nvml"] = str(error)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
