"""Finds the CUDA driver, and the GPUs that a job may use.

Nothing here initialises CUDA. NVML is called only if the user named a device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pump.base import inputs
from pump.cli.support.lines import BadInputError

DRIVER = "libcuda.so.1"
LOADER_CACHE = "/etc/ld.so.cache"
LOADER_CACHE_BYTES_MOST = 64 << 20


def driver_found(environ: Mapping[str, str], loader_cache: str = LOADER_CACHE) -> bool:
    """Returns whether the command would find the CUDA driver.

    Searches LD_LIBRARY_PATH and the loader's cache first, which is cheap. Then tries the loader
    itself, which also searches default folders and hardware subfolders (ld.so(8)).
    """
    for folder in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if folder and os.path.exists(os.path.join(folder, DRIVER)):
            return True
    try:
        cache = inputs.read(loader_cache, LOADER_CACHE_BYTES_MOST)
        paths = re.findall(rb"/[^\0]*/" + re.escape(DRIVER.encode()) + rb"(?=\0)", cache)
    except OSError:
        paths = []
    return any(os.path.exists(path) for path in paths) or _driver_loads()


def _driver_loads() -> bool:
    import ctypes  # slow to import and rarely needed

    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def resolve(devices: list[str]) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES for `devices`: UUIDs, separated by commas.

    Indices are as in nvidia-smi. A UUID may be shortened if it stays unique.
    Raises BadInputError.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # ImportError, NVMLError_*, OSError
        raise BadInputError(
            f"--device: NVML cannot list the GPUs ({error}); set CUDA_VISIBLE_DEVICES "
            "instead of --device"
        ) from None
    try:
        uuids = [
            _as_text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
        slices = [name for name in devices if name.upper().startswith("MIG-")]
        for name in slices:  # not in the list above, so NVML must check them
            pynvml.nvmlDeviceGetHandleByUUID(name.encode())
    except pynvml.NVMLError as error:
        raise BadInputError(f"--device: NVML refuses '{','.join(devices)}': {error}") from None
    finally:
        pynvml.nvmlShutdown()
    chosen = [name if name in slices else _find_uuid(name, uuids) for name in devices]
    if len(set(chosen)) != len(chosen):
        raise BadInputError(f"--device: '{','.join(devices)}' names a GPU twice")
    return ",".join(chosen)


def _find_uuid(name: str, uuids: list[str]) -> str:
    if name.isdigit():
        if int(name) < len(uuids):
            return uuids[int(name)]
        count = f"{len(uuids)} GPU{'s' if len(uuids) != 1 else ''}"
        raise BadInputError(
            f"--device: there is no GPU {name}; this machine has {count}, starting at 0"
        )
    found = [uuid for uuid in uuids if uuid.lower().startswith(name.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInputError(f"--device: several UUIDs start with '{name}'; write more characters")
    raise BadInputError(f"--device: no GPU has the UUID '{name}'; nvidia-smi -L lists them")


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
