"""Frames of the system service, from either side and in either version."""

from __future__ import annotations

from typing import Any

from pump.wire import service as wire
from pump.wire.strict import FrameError

from . import one_line


def target(data: bytes) -> None:
    if not data:
        return
    which, rest = data[0] % 4, data[1:]
    try:
        if which < 2:
            kinds = (wire.FROM_CLIENTS, wire.FROM_SERVICE)[which]
            message = wire.decode(rest, kinds)
            assert wire.decode(wire.encode(message), kinds) == message
        elif which == 2:
            status, version = wire.check_hello(rest)
            assert (status == wire.OK) == (version > 0)
        else:
            assert wire.OLDEST <= wire.check_welcome(rest) <= wire.VERSION
    except FrameError as error:
        one_line(error)


def seeds() -> list[bytes]:
    gpu = "0123456789abcdef" * 2
    lease = wire.GpuLease(gpu, *range(5), True)
    job = wire.JobState(*range(1, 5), "n", 0, "", 1, 2, 3, 4, (lease,))
    said: list[tuple[int, Any]] = [
        (0, wire.Join("train", -3, "/run/user/5/pump/1-aa/socket", 77)),
        (0, wire.Report(5, 2, 1 << 40, 0, (wire.GpuReport(gpu, *range(5), 1000, True, True),))),
        (0, wire.Beat()),
        (0, wire.AskJobs(9)),
        (0, wire.AskService()),
        (1, wire.Grant(1, 2000, (wire.GpuGrant(gpu, 8 << 20, True),))),
        (1, wire.Refused("no more jobs")),
        (1, wire.Jobs(1, (job,))),
        (1, wire.ServiceState("0.1", *range(13))),
    ]
    found = [bytes([which]) + wire.encode(message) for which, message in said]
    return [*found, b"\2" + wire.pack_hello(), b"\3" + wire.pack_welcome(wire.OK, 1)]
