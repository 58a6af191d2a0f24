"""Loads the service like a user at all limits: as many jobs, GPUs and frames as it accepts.

usage: service_flood.py SOCKET JOBS SECONDS. The benchmark runs it as another user. It prints
"ready" when all its jobs have joined.
"""

from __future__ import annotations

import random
import socket
import sys
import time

from pump.wire import service as wire

CARD_BYTES = 80 << 30
PAUSE_S = 0.05
CONNECT_S = 0.017
"""Pause between connections, just long enough for a user's rate limit."""


def joined(path: str) -> socket.socket | None:
    """Returns a connection that has joined, or None if the service did not accept it in time."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(5)
    try:
        one.connect(path)
        one.send(wire.pack_hello())
        wire.check_welcome(one.recv(wire.REPLY_BYTES))
        one.send(wire.encode(wire.Join("flood")))
        one.recv(wire.REPLY_BYTES)
    except (OSError, wire.FrameError):
        one.close()
        return None
    one.setblocking(False)
    return one


def report(dice: random.Random) -> bytes:
    """Returns a report on the sixteen GPUs of all flooding jobs; sizes change each time."""
    sizes = ((CARD_BYTES, CARD_BYTES, dice.randrange(CARD_BYTES), 1 << 30, 1 << 30)
             for _ in range(wire.GPUS))  # fmt: skip
    gpus = (wire.GpuReport(f"{k:032x}", *size, dice.randrange(1000), True, True)
            for k, size in enumerate(sizes))  # fmt: skip
    return wire.encode(wire.Report(0, 1, 1 << 30, 0, tuple(gpus)))


def main() -> None:
    path, jobs, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    dice, lines = random.Random(1), list[socket.socket]()
    while len(lines) < jobs:
        if (line := joined(path)) is not None:
            lines.append(line)
        time.sleep(CONNECT_S)
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for line in lines:
            try:
                line.send(report(dice))
                while line.recv(wire.REPLY_BYTES):
                    pass
            except OSError:
                continue
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
