"""Reads identities and metrics of GPUs from NVML (nvidia-ml-py), for the service and `pump top`.

The first call imports nvidia-ml-py, which takes half as long as the start of pump-run. A call may
take seconds, or never return if the driver is broken. So call these functions only in a process or
thread that nothing waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

KIB = 1024


class Identity(NamedTuple):
    """The names of a GPU. None, "": not known."""

    number: int | None
    """Index in nvidia-smi."""
    minor: int | None
    """N of the device file /dev/nvidiaN."""
    model: str


class Card(NamedTuple):
    """The metrics of one GPU at one moment. None: NVML does not report this value for the GPU."""

    uuid: str
    total_bytes: int
    used_bytes: int
    processes: int | None
    """Processes with a compute context on the GPU."""
    busy: float | None
    """Share of the last sample period (at most 1 s) in which a kernel ran, 0 to 1."""
    to_gpu_bytes_per_s: int | None
    """PCIe throughput in the last 20 ms."""
    to_host_bytes_per_s: int | None


def plain_uuid(text: str | bytes) -> str:
    """Returns a UUID "GPU-..." as 32 hexadecimal digits."""
    words = text.decode() if isinstance(text, bytes) else text
    return words.removeprefix("GPU-").replace("-", "").lower()


def gpu_uuid(plain: str) -> str:
    """Returns 32 hexadecimal digits in the form of nvidia-smi's UUIDs: "GPU-..."."""
    parts = (plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:])
    return "GPU-" + "-".join(parts)


def handles() -> dict[str, Any]:
    """Returns NVML's handles of this machine's GPUs by plain UUID, in NVML's order. Raises
    ImportError, pynvml.NVMLError."""
    import pynvml

    pynvml.nvmlInit()
    every = [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]
    return {plain_uuid(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in every}


def identity(handle: Any) -> Identity:
    """Returns the names that NVML reports for a GPU. Raises nothing."""
    import pynvml

    model = _answer(pynvml.nvmlDeviceGetName, handle) or ""
    return Identity(
        _answer(pynvml.nvmlDeviceGetIndex, handle),
        _answer(pynvml.nvmlDeviceGetMinorNumber, handle),
        model if isinstance(model, str) else model.decode(errors="replace"),
    )


def memory(handle: Any) -> tuple[int, int]:
    """Returns the total and used bytes of a GPU; used bytes include the driver's own. Raises
    pynvml.NVMLError."""
    import pynvml

    found = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(found.total), int(found.total) - int(found.free)


def card(uuid: str, handle: Any) -> Card:
    """Returns all metrics of a GPU. Takes about 40 ms, in which NVML counts bytes on the link.
    Raises pynvml.NVMLError if NVML does not report the GPU's memory."""
    import pynvml

    processes = _answer(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    rates = _answer(pynvml.nvmlDeviceGetUtilizationRates, handle)
    throughput = [
        _answer(pynvml.nvmlDeviceGetPcieThroughput, handle, counter)
        for counter in (pynvml.NVML_PCIE_UTIL_RX_BYTES, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    ]
    return Card(
        uuid,
        *memory(handle),
        None if processes is None else len(processes),
        None if rates is None else int(rates.gpu) / 100,
        *(None if kib is None else int(kib) * KIB for kib in throughput),
    )


def _answer(ask: Callable[..., Any], *words: Any) -> Any:
    """Returns NVML's answer; None if NVML refuses."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        return ask(*words)
    return None
