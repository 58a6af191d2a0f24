"""Prints facts about the real GPU as one JSON line. Run it as a program.

{"name", "free_bytes", "link_bytes_per_second"}. Without a usable GPU, it exits with status 1 and
prints the reason on stderr. The link's speed is measured with copies from pinned memory. It
uses 256 MiB of the GPU for a moment.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SIZE_BYTES = 256 << 20
COPIES = 5


def check(answer: Any) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(status.name)
    return values[0] if len(values) == 1 else values


def describe(driver: Any) -> dict[str, Any]:
    """Returns name, free memory and link speed of GPU 0. Raises RuntimeError with the driver's
    reason."""
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    name = check(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode()
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))
    free_bytes, _ = check(driver.cuMemGetInfo())
    host = check(driver.cuMemHostAlloc(SIZE_BYTES, 0))
    there = check(driver.cuMemAlloc(SIZE_BYTES))
    best = float("inf")
    for _ in range(COPIES):
        started = time.perf_counter()
        check(driver.cuMemcpyHtoD(there, host, SIZE_BYTES))
        check(driver.cuCtxSynchronize())
        best = min(best, time.perf_counter() - started)
    check(driver.cuMemFree(there))
    check(driver.cuMemFreeHost(host))
    check(driver.cuDevicePrimaryCtxRelease(device))
    return {"name": name, "free_bytes": free_bytes, "link_bytes_per_second": SIZE_BYTES / best}


def main() -> int:
    try:
        from cuda.bindings import driver

        print(json.dumps(describe(driver)))
    except Exception as error:  # no driver, no device, no permission: all mean "no GPU here"
        print(f"no usable GPU: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
