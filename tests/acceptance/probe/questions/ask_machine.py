"""Question: the machine and its GPU."""

from __future__ import annotations

import ctypes

from probe.driver import INT, bindings, call, must
from probe.gpu import Gpu
from probe.host import describe_host, describe_link
from probe.registry import Notes, question


@question(30, "whether this machine's figures count at all, and for which profile", managed=False)
def ask_machine(gpu: Gpu, out: Notes) -> None:
    driver = bindings()
    out["host"] = describe_host()
    version = INT(0)
    call("cuDriverGetVersion", ctypes.byref(version))
    free, total = gpu.memory_info()
    attributes = {}
    for which in driver.CUdevice_attribute:
        code, value = driver.cuDeviceGetAttribute(which, gpu.device)
        if int(code) == 0:
            attributes[which.name.removeprefix("CU_DEVICE_ATTRIBUTE_").lower()] = int(value)
    name = must(driver.cuDeviceGetName(128, gpu.device), "cuDeviceGetName")
    try:
        from cuda.bindings import __version__ as bindings_version
    except ImportError:
        bindings_version = "unknown"
    out["device"] = {
        "name": name.split(b"\0")[0].decode(errors="replace"),
        "uuid": bytes(must(driver.cuDeviceGetUuid(gpu.device), "cuDeviceGetUuid").bytes).hex(),
        "driver_version": version.value,
        "cuda_bindings": bindings_version,
        "free_bytes": free,
        "total_bytes": total,
        "prefetch_symbol": gpu.prefetch_call[0],
        "link": describe_link(),
        "attributes": attributes,
    }
