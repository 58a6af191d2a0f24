"""Workers of one job that allocate at the same time until an allocation fails.

Usage: limit_job.py WORKERS MIB. Each worker allocates pieces of MIB until it gets an error, and
keeps them until all workers have finished. Prints the sum in MiB.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

PIECES_MOST = 1000


def allocate(piece_bytes: int) -> int:
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    print("ready", flush=True)
    sys.stdin.readline()
    pieces = 0
    while pieces < PIECES_MOST and driver.cuMemAlloc_v2(
        ctypes.byref(address), ctypes.c_size_t(piece_bytes)
    ) == 0:  # fmt: skip
        pieces += 1
    return pieces


def main() -> None:
    workers, mib = int(sys.argv[1]), int(sys.argv[2])
    if workers == 0:
        print(allocate(mib << 20) * mib, flush=True)
        sys.stdin.readline()
        return
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "0", str(mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(workers)
    ]
    for one in started:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    print(sum(int(one.stdout.readline()) for one in started if one.stdout is not None))
    for one in started:
        one.communicate("done\n")


if __name__ == "__main__":
    main()
