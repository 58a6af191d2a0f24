"""Describes this process's environment: kernel, container, driver files, link. Reads only."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from probe.figures import Json
from probe.transfer import GVISOR, is_gvisor


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def detect_runtime() -> Json:
    """Detects gVisor, a VM, a container or bare metal, and returns the evidence."""
    dmi = {k: read_text(f"/sys/class/dmi/id/{k}") for k in ("sys_vendor", "product_name")}
    cgroup = read_text("/proc/1/cgroup")
    marks = ("docker", "kubepods", "containerd", "libpod", "lxc")
    gvisor = is_gvisor(platform.release(), platform.version())
    vm = " hypervisor" in read_text("/proc/cpuinfo")
    container = (
        Path("/.dockerenv").exists()
        or Path("/run/.containerenv").exists()
        or any(mark in cgroup for mark in marks)
    )
    kind = GVISOR if gvisor else "vm" if vm else "bare metal"
    return {"kind": kind, "gvisor": gvisor, "vm": vm, "container": container, "dmi": dmi}


def describe_host() -> Json:
    version = read_text("/proc/driver/nvidia/version")
    parameters = {
        path.name: read_text(str(path))
        for path in sorted(Path("/sys/module/nvidia_uvm/parameters").glob("*"))
    }
    maps = read_text("/proc/self/maps").splitlines()
    flavour = "open" if "Open Kernel Module" in version else "proprietary" if version else "unknown"
    watched = ("CUDA_", "LD_PRELOAD", "NVIDIA_")
    return {
        "runtime": detect_runtime(),
        "kernel": f"{platform.release()} {platform.version()}",
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "cpu_model": next(
            (
                line.partition(":")[2].strip()
                for line in read_text("/proc/cpuinfo").splitlines()
                if line.startswith("model name")
            ),
            "",
        ),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "nvidia_version_file": version,
        "kernel_module": flavour,
        "uvm_parameters": parameters,
        "libcuda": next((line.split()[-1] for line in maps if "libcuda.so" in line), ""),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(watched)},
        # Only names: values of pump's or the virtual GPU's settings must not influence an answer.
        "pump_variables": sorted(name for name in os.environ if name.startswith("PUMP_")),
    }


def describe_link() -> Json:
    """Returns PCIe generation and width, if pynvml is importable and NVML answers. Reads only."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            f"{which}_{what}": getattr(pynvml, f"nvmlDeviceGet{which.title()}PcieLink{call_name}")(
                handle
            )
            for which in ("curr", "max")
            for what, call_name in (("generation", "Generation"), ("width", "Width"))
        }
    except Exception as error:
        return {"unavailable": f"{type(error).__name__}: {error}"}
