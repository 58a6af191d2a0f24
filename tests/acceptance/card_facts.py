"""Asks NVML and the driver what card is there: one JSON line on stdout. Run as a program.

A process of its own, since a driver that hangs or crashes must take nothing with it. Allocates
nothing but a context. Exit status 1 and one line on stderr when there is no usable card.
"""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from typing import Any


def check(call: str, answer: Any) -> Any:
    """Value of a cuda-bindings answer. Raises RuntimeError."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"{call}: {status.name}")
    return values[0] if len(values) == 1 else values


def of_driver() -> dict[str, Any]:
    """Name, identity and memory of device 0. Raises RuntimeError, ImportError."""
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
    """Driver version, link and used memory of that card. Raises what pynvml raises."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(identity.encode())
        version = pynvml.nvmlSystemGetDriverVersion()
        found = {
            "driver": version if isinstance(version, str) else version.decode(),
            "used_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        }
        # What a machine hides here is not missed.
        with contextlib.suppress(pynvml.NVMLError):
            found["pcie_generation"] = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
            found["pcie_width"] = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
        return found
    finally:
        pynvml.nvmlShutdown()


def main() -> int:
    try:
        found = of_driver()
    except Exception as error:  # no driver, no device, no cuda-bindings: no usable card
        print(error or type(error).__name__, file=sys.stderr)
        return 1
    try:
        found |= of_nvml(found["uuid"])
    except Exception as error:  # none on the virtual GPU, nor in some containers
        found["nvml"] = str(error)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
