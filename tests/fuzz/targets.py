"""What is fuzzed of pump's Python: each target takes any bytes and raises for what must not be.

A target's first byte chooses among its decoders; the rest is what one is given. SEEDS holds
sound inputs to begin with.
"""

from __future__ import annotations

import atexit
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pump.report import gather
from pump.report.page import page
from pump.trace import format as form
from pump.trace.format import TraceError
from pump.trace.writer import Rows, TraceWriter
from pump.wire import control
from pump.wire import service as wire
from pump.wire.strict import FrameError

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))

from trace_rows import RowMaker, random_record

FILE = Path(tempfile.gettempdir()) / f"pump-fuzz-{os.getpid()}"
atexit.register(FILE.unlink, missing_ok=True)


def frames(data: bytes) -> None:
    """Frames of the system service, from either side and in either version."""
    if not data:
        return
    which, rest = data[0] % 4, data[1:]
    try:
        if which < 2:
            kinds = (wire.FROM_CLIENTS, wire.FROM_SERVICE)[which]
            message = wire.decode(rest, kinds)
            assert wire.decode(wire.encode(message), kinds) == message
        elif which == 2:
            status, version = wire.judge_hello(rest)
            assert (status == wire.OK) == (version > 0)
        else:
            assert wire.OLDEST <= wire.check_welcome(rest) <= wire.VERSION
    except FrameError as error:
        one_line(error)


def control_frames(data: bytes) -> None:
    """Frames that steer a job, from either side, and those between supervisor and worker."""
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
            control.judge_hello(rest)
        else:
            control.check_welcome(rest)
    except FrameError as error:
        one_line(error)


def recording(data: bytes) -> None:
    """A chunk of a recording, its sums right, and the page that is made of it."""
    if len(data) < 3:
        return
    kind = (form.CHUNK_EVENTS, form.CHUNK_END, form.CHUNK_HEADER)[data[0] % 3]
    rows, body = int.from_bytes(data[1:3], "little"), data[3:]
    start = body if kind == form.CHUNK_HEADER else b"{}"
    file = [form.file_start(), form.pack_chunk(form.CHUNK_HEADER, 0, start, 0)]
    if kind != form.CHUNK_HEADER:
        file.append(form.pack_chunk(kind, rows, body, 0))
    FILE.write_bytes(b"".join(file))
    try:
        page(gather.report(str(FILE)))
    except TraceError as error:
        one_line(error)


def one_line(error: Exception) -> None:
    assert "\n" not in str(error) and len(str(error)) < 1000


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": frames,
    "control": control_frames,
    "recording": recording,
}


def seeds(target: str) -> list[bytes]:
    """Sound inputs."""
    return {"frames": _frames, "control": _control, "recording": _recording}[target]()


def _frames() -> list[bytes]:
    gpu = "0123456789abcdef" * 2
    lease = wire.GpuLease(gpu, *range(5))
    job = wire.JobState(*range(1, 5), "n", 0, "", 1, 2, 3, 4, (lease,))
    said: list[tuple[int, Any]] = [
        (0, wire.Join("train", -3, "/run/user/5/pump/1-aa/socket", 77)),
        (0, wire.Report(5, 2, 1 << 40, 0, (wire.GpuReport(gpu, *range(5), 1000),))),
        (0, wire.Beat()),
        (0, wire.AskJobs(9)),
        (0, wire.AskService()),
        (1, wire.Grant(1, 2000, (wire.GpuGrant(gpu, 8 << 20),))),
        (1, wire.Refused("no more jobs")),
        (1, wire.Jobs(1, (job,))),
        (1, wire.ServiceState("0.1", *range(13))),
    ]
    found = [bytes([which]) + wire.encode(message) for which, message in said]
    return [*found, b"\2" + wire.pack_hello(), b"\3" + wire.pack_welcome(wire.OK, 1)]


def _control() -> list[bytes]:
    device = control.DeviceState(0, "ab" * 16, *range(3), False, True, *range(15))
    client = control.ClientState(7, None, "window", (device,), {"operations": 1}, {"ticks": 2})
    return [
        b"\0" + control.encode_request(control.Request("state")),
        b"\0" + control.encode_request(control.Request("set", 4, "demand", 1 << 33, 0)),
        b"\1" + control.encode_reply([client, control.failed(3, "gone")]),
        b"\1" + control.encode_error("no"),
        b"\2" + control.encode_client(client),
        b"\3" + control.numbered(9, b"{}"),
        b"\4" + control.pack_hello(),
        b"\5" + control.pack_welcome(control.OK),
    ]


def _recording() -> list[bytes]:
    found = [b"\1\0\0{}", b'\2\0\0{"pump":"0.1","device":[{"index":0}]}']
    for seed in range(6):
        dice = random.Random(seed)
        maker = RowMaker()
        for _ in range(1 + 4 * seed):
            maker.add(random_record(dice))
        found.append(_events(maker.made()))
    return found


def _events(rows: Rows) -> bytes:
    """The one chunk of events that a writer makes of these rows, as an input."""
    with tempfile.TemporaryFile() as file:
        writer = TraceWriter(file.fileno(), {})
        writer.events(rows)
        writer.flush()
        file.seek(form.FILE_START.size)
        for _ in range(2):  # the header comes before
            frame = form.unpack_frame(file.read(form.FRAME_BYTES))
            body = form.unpack_body(frame, file.read(frame.stored_bytes))
    return b"\0" + frame.rows.to_bytes(2, "little") + body
