"""What NVML says of the machine's GPUs: their UUIDs and memory.

In a process of its own (`python -m pumpd.cards`): NVML takes memory, may hang with a sick
driver, and is needed once.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

ANSWER_S = 10.0
CONTROL_NODES = ("/dev/nvidiactl", "/dev/dxg")

log = logging.getLogger("pumpd")


def known_gpus() -> dict[str, int]:
    """Return total bytes by UUID (32 hexadecimal digits); {} where NVML tells nothing."""
    if not any(os.path.exists(node) for node in CONTROL_NODES):  # noqa: PTH110
        return {}
    command = [sys.executable, "-P", "-m", "pumpd.cards"]
    try:
        asked = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            found = json.loads(asked.communicate(timeout=ANSWER_S)[0])
        except subprocess.TimeoutExpired:
            asked.kill()  # not waited for: in a sick driver it does not end
            raise
        return {str(uuid): int(total) for uuid, total in found.items()}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("NVML tells nothing, so jobs are believed what they say of GPUs: %s", error)
        return {}


def plain_uuid(text: str) -> str:
    """Return "GPU-..." as 32 hexadecimal digits."""
    return text.removeprefix("GPU-").replace("-", "").lower()


def main() -> None:
    """Print what NVML says as a JSON object."""
    import pynvml

    pynvml.nvmlInit()
    found = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        found[plain_uuid(text)] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
