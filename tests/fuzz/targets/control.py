"""Frames that control a job, from either side, and frames between supervisor and worker."""

from __future__ import annotations

from pump.wire import control
from pump.wire.strict import FrameError

from . import one_line


def target(data: bytes) -> None:
    if not data:
        return
    which, rest = data[0] % 6, data[1:]
    try:
        if which == 0:
            request = control.decode_request(rest)
            assert control.decode_request(control.encode_request(request)) == request
        elif which == 1:
            for client in control.decode_reply(rest):
                control.encode_client(client)
        elif which == 2:
            client = control.decode_client(rest)
            assert control.decode_client(control.encode_client(client)) == client
        elif which == 3:
            number, frame = control.split(rest)
            assert control.numbered(number, frame) == rest
        elif which == 4:
            control.check_hello(rest)
        else:
            control.check_welcome(rest)
    except FrameError as error:
        one_line(error)


def seeds() -> list[bytes]:
    device = control.DeviceState(0, "ab" * 16, *range(3), False, True, *range(15))
    client = control.ClientState(7, None, "window", (device,), {"operations": 1}, {"ticks": 2})
    return [
        b"\0" + control.encode_request(control.Request("state")),
        b"\0" + control.encode_request(control.Request("set", 4, "demand", 1 << 33, 0)),
        b"\0"
        + control.encode_request(control.Request("set", 4, device=0, hold_ms=5000, yield_ms=0)),
        b"\1" + control.encode_reply([client, control.failed(3, "gone")]),
        b"\1" + control.encode_error("no"),
        b"\2" + control.encode_client(client),
        b"\3" + control.numbered(9, b"{}"),
        b"\4" + control.pack_hello(),
        b"\5" + control.pack_welcome(control.OK),
    ]
