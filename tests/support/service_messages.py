"""One message of each kind of the service's frames, and damaged frames."""

from __future__ import annotations

import random
from typing import Any

from pump.wire import service as wire

GPU = "0123456789abcdef" * 2
MESSAGES: list[tuple[Any, tuple[type, ...]]] = [
    (wire.Join("train", -3, "/run/user/5/pump/1-aa/socket", 77), wire.FROM_CLIENTS),
    (
        wire.Report(5, 2, 1 << 40, 0, (wire.GpuReport(GPU, *range(5), 1000, True, True),)),
        wire.FROM_CLIENTS,
    ),
    (wire.Report(0, 0, 0, 0), wire.FROM_CLIENTS),
    (wire.Beat(), wire.FROM_CLIENTS),
    (wire.AskJobs(9), wire.FROM_CLIENTS),
    (wire.AskService(), wire.FROM_CLIENTS),
    (wire.Grant(1, 2000, (wire.GpuGrant(GPU, 8 << 20, True),)), wire.FROM_SERVICE),
    (wire.Refused("no more jobs"), wire.FROM_SERVICE),
    (
        wire.Jobs(
            1,
            (
                wire.JobState(
                    *range(1, 5), "n", 0, "", 1, 2, 3, 4, (wire.GpuLease(GPU, *range(5), True),)
                ),
            ),
        ),
        wire.FROM_SERVICE,
    ),
    (wire.ServiceState("0.1", *range(13)), wire.FROM_SERVICE),
]
TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"-", b"1e9", b"0.5", b"NaN", b"null", b"true"),
    *(b"99999999999999999999", b"-1", b"\\u0000", b"\xff", b'"say"', b'"gpus"', b'"x":1,'),
)


def mutated(data: bytes, source: random.Random) -> bytes:
    """Returns a frame with a few random injuries."""
    found = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 5))):
        place = source.randrange(len(found) + 1)
        match source.randrange(6):
            case 0:
                del found[place : place + source.randrange(1, 9)]
            case 1:
                found[place:place] = source.randbytes(source.randrange(1, 9))
            case 2 if place < len(found):
                found[place] ^= 1 << source.randrange(8)
            case 3:
                found[place:place] = source.choice(TOKENS)
            case 4:
                other = source.randrange(len(found) + 1)
                found[place:place] = found[min(place, other) : max(place, other)][:64]
            case _:
                found = found[:place]
    return bytes(found)
