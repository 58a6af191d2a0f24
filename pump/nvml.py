"""Figures of GPUs by NVML (nvidia-ml-py), for the service and `pump top`.

The first call imports nvidia-ml-py, which takes as long as half of pump-run's start. A call may
take seconds, or never return when the driver is broken: make it in a process or a thread that
nothing waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

KIB = 1024


class Identity(NamedTuple):
    """What a GPU is called. None, "": not known."""

    number: int | None
    """As nvidia-smi counts."""
    minor: int | None
    """Of its device file /dev/nvidiaN."""
    model: str


class Card(NamedTuple):
    """One GPU at one moment. None: NVML has no such figure of this GPU."""

    uuid: str
    total_bytes: int
    used_bytes: int
    processes: int | None
    """Processes with a compute context on it."""
    busy: float | None
    """Share of the last sample (1 s at most) in which a kernel ran, 0 to 1."""
    to_gpu_bytes_per_s: int | None
    """Over PCIe, in the last 20 ms."""
    to_host_bytes_per_s: int | None


def plain_uuid(text: str | bytes) -> str:
    """Return "GPU-..." as 32 hexadecimal digits."""
    words = text.decode() if isinstance(text, bytes) else text
    return words.removeprefix("GPU-").replace("-", "").lower()


def gpu_uuid(plain: str) -> str:
    """Return 32 hexadecimal digits as nvidia-smi writes a GPU's UUID: "GPU-..."."""
    parts = (plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:])
    return "GPU-" + "-".join(parts)


def handles() -> dict[str, Any]:
    """NVML's handles of this machine's GPUs, by plain UUID, in NVML's order. Raises ImportError,
    pynvml.NVMLError."""
    import pynvml

    pynvml.nvmlInit()
    every = [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]
    return {plain_uuid(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in every}


def identity(handle: Any) -> Identity:
    """What NVML calls a GPU. Raises nothing."""
    import pynvml

    model = _answer(pynvml.nvmlDeviceGetName, handle) or ""
    return Identity(
        _answer(pynvml.nvmlDeviceGetIndex, handle),
        _answer(pynvml.nvmlDeviceGetMinorNumber, handle),
        model if isinstance(model, str) else model.decode(errors="replace"),
    )


def memory(handle: Any) -> tuple[int, int]:
    """(total, used) bytes of a GPU; used: what is not free, the driver's own part included.
    Raises pynvml.NVMLError."""
    import pynvml

    found = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(found.total), int(found.total) - int(found.free)


def card(uuid: str, handle: Any) -> Card:
    """All figures of a GPU. Takes about 40 ms, in which NVML counts bytes on the link. Raises
    pynvml.NVMLError where NVML has no memory figures of it."""
    import pynvml

    processes = _answer(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    rates = _answer(pynvml.nvmlDeviceGetUtilizationRates, handle)
    throughput = [
        _answer(pynvml.nvmlDeviceGetPcieThroughput, handle, way)
        for way in (pynvml.NVML_PCIE_UTIL_RX_BYTES, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    ]
    return Card(
        uuid,
        *memory(handle),
        None if processes is None else len(processes),
        None if rates is None else int(rates.gpu) / 100,
        *(None if kib is None else int(kib) * KIB for kib in throughput),
    )


def _answer(ask: Callable[..., Any], *words: Any) -> Any:
    """NVML's answer; None where it refuses."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        return ask(*words)
    return None
