"""Fills NUMBER buffers of 32 MiB and prints a predefined time, for pump compare and pump fit.

Usage: measured_job.py NUMBER [SECONDS A UNIT [MOST]]. A unit takes four times as long above MOST.
"""

import sys
from pathlib import Path

from cuda.bindings import driver as d


def ok(answer):
    status, *values = answer
    if int(status):
        raise RuntimeError(status)
    return values[0] if values else None


number, unit = int(sys.argv[1]), float(sys.argv[2])
most = int(sys.argv[3]) if len(sys.argv) > 3 else number
ok(d.cuInit(0))
ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))))
for buffer in [ok(d.cuMemAlloc(32 << 20)) for _ in range(number)]:
    ok(d.cuMemsetD8(buffer, 1, 32 << 20))
ok(d.cuCtxSynchronize())
assert not Path("checkpoint").exists()
Path("checkpoint").write_text("of this run")
print(f"took {number * unit * (4 if number > most else 1)} s")
