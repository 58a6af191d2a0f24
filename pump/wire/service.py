"""Frames between a job's pumpd and the system service. No I/O.

One datagram is one frame. A connection begins with a hello and a welcome, which agree on the
version of the protocol. The service accepts its own version and the previous one. So the service
can be upgraded under running jobs, and jobs under a running service. Every later frame is a JSON
object; its tag field names the kind.

    pumpd -> service   Join, once. Report, when something has changed. Beat otherwise.
    any user -> service AskJobs, AskService. The answers are Jobs, ServiceState.
    service -> pumpd   Grant, whenever a budget changes, and as the answer to each Beat, which
                       shows that the service is there. Refused, before it closes the connection.

`LATER` lists fields of later versions. Frames to an older peer omit them; in frames from an older
peer, they have their defaults. Every byte comes from another process: an invalid frame raises
FrameError. msgspec checks types and bounds; pump.control, which jobs' own programs import, does
without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Union

import msgspec
from msgspec import Meta, Struct

from pump.base.names import printable
from pump.wire.strict import FrameError, one_line, pack, short, unpack

MAGIC: Final = 0x56524553504D5550
VERSION: Final = 2
OLDEST: Final = max(1, VERSION - 1)

# Hello: magic, oldest and newest version, zero. Welcome: magic, version, status, zero.
HELLO: Final = struct.Struct("<QHHI")
OK, OTHER_VERSION, REFUSED, BUSY = range(4)
REASONS: Final = {
    OTHER_VERSION: "it does not support this release's protocol",
    REFUSED: "it does not serve this user",
    BUSY: "it has too many connections; try again later",
}

FRAME_BYTES: Final = 8192
"""Most bytes of a client's frame."""
REPLY_BYTES: Final = 65536
"""Most bytes of the service's frame."""
GPUS: Final = 16
JOBS_SHOWN: Final = 64
"""Most jobs in one reply; AskJobs.after asks for more."""
NAME_CHARACTERS: Final = 64
PATH_CHARACTERS: Final = 107
PRIORITY_MOST: Final = 10
BYTES_MOST: Final = 2**62
FAULT_CHARACTERS: Final = 150
COUNT_MOST: Final = 2**63 - 1
USE_MOST: Final = 1000

Bytes = Annotated[int, Meta(ge=0, le=BYTES_MOST)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MOST)]
Clients = Annotated[int, Meta(ge=0, le=4096)]
Pid = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Priority = Annotated[int, Meta(ge=-PRIORITY_MOST, le=PRIORITY_MOST)]
Use = Annotated[int, Meta(ge=0, le=USE_MOST)]
Name = Annotated[str, Meta(max_length=NAME_CHARACTERS)]
Path = Annotated[str, Meta(max_length=PATH_CHARACTERS)]
Gpu = Annotated[str, Meta(pattern=r"^(?#a GPU's UUID)[0-9a-f]{32}\Z")]


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object of a frame. LATER: fields that came after protocol version 1, with their
    version."""

    LATER: ClassVar[dict[str, int]] = {}


class Frame(Words, frozen=True, forbid_unknown_fields=True, tag_field="say"):
    """The content of one datagram."""


# ---- kinds of frames ----


class Join(Frame, frozen=True, tag="join"):
    """Registers a job, by its pumpd; the socket's credentials identify its process and user.

    `name`: for users. `priority`: a higher one is served sooner; the service may lower it.
    `socket`: path of the job's own socket, which the service only passes on to users that may
    control the job. `job_pid`: the job's first process, in pumpd's process namespace.
    """

    name: Name = ""
    priority: Priority = 0
    socket: Path = ""
    job_pid: Pid = 0


class GpuReport(Words, frozen=True):
    """One GPU that clients of the job use; bytes are sums over the clients.

    `gpu`: UUID in hexadecimal. `total_bytes`: memory of the GPU. `usable_bytes`: the most that a
    client could use when it began. `wanted_bytes`: live memory, or the user's budget if that is
    less. `adopted_bytes`: the budgets in force. `resident_bytes`: resident, arriving or leaving.
    `use`: share of the time with operations, in parts of USE_MOST. `used`: whether it ran something
    since its last report, or waits for its turn. `ready`: whether it has something to run most of
    the time, except for long pauses; it then takes turns. A job that sends neither counts as used.
    `least_bytes`: with less, kernels wait for their memory on the GPU.
    """

    LATER: ClassVar[dict[str, int]] = {"used": 2, "ready": 2, "least_bytes": 2}

    gpu: Gpu
    total_bytes: Bytes
    usable_bytes: Bytes
    wanted_bytes: Bytes
    adopted_bytes: Bytes
    resident_bytes: Bytes
    use: Use
    used: bool = True
    ready: bool = False
    least_bytes: Bytes = 0


class Report(Frame, frozen=True, tag="report"):
    """The state of a job. `grant`: number of the newest grant that it has adopted, 0: none.

    `converted_bytes`: of all its clients. `host_bytes`: the part on the host, by the workers'
    models.
    """

    grant: Count
    clients: Clients
    converted_bytes: Bytes
    host_bytes: Bytes
    gpus: Annotated[tuple[GpuReport, ...], Meta(max_length=GPUS)] = ()


class Beat(Frame, frozen=True, tag="beat"):
    """Asks for the newest grant again, and shows that the job is alive."""


class GpuGrant(Words, frozen=True):
    """The bytes that the job's clients together may keep resident on one GPU. `waits`: other jobs
    have their turn, so launches there wait for the next grant. `yields`: a job of higher priority
    uses the GPU, so each launch waits for its memory before it takes the GPU."""

    LATER: ClassVar[dict[str, int]] = {"waits": 2, "yields": 2}

    gpu: Gpu
    budget_bytes: Bytes
    waits: bool = False
    yields: bool = False


class Grant(Frame, frozen=True, tag="grant"):
    """All leases of a job; they replace the earlier ones.

    `number`: 1, 2, ... within a connection. `beat_ms`: longest time between two frames of the job.
    The leases expire after several such times without a frame.
    """

    number: Count
    beat_ms: Annotated[int, Meta(ge=10, le=60_000)]
    gpus: Annotated[tuple[GpuGrant, ...], Meta(max_length=GPUS)] = ()


class Refused(Frame, frozen=True, tag="refused"):
    """The service's reason for closing the connection."""

    reason: Annotated[str, Meta(max_length=500)]


class AskJobs(Frame, frozen=True, tag="jobs?"):
    """Asks for the user's jobs; root gets the jobs of all users. after: only jobs with a higher
    number."""

    after: Count = 0


class GpuLease(Words, frozen=True):
    """One job on one GPU, as last reported. granted_bytes: 0 before the first grant. waits: whether
    it waits for its turn."""

    LATER: ClassVar[dict[str, int]] = {"waits": 2}

    gpu: Gpu
    granted_bytes: Bytes
    adopted_bytes: Bytes
    resident_bytes: Bytes
    wanted_bytes: Bytes
    use: Use
    waits: bool = False


class JobState(Words, frozen=True):
    """One job, as last reported. age_ms: the time since it joined. heard_ms: the time since its
    last frame."""

    number: Count
    user: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    pid: Pid
    job_pid: Pid
    name: Name
    priority: Priority
    socket: Path
    clients: Clients
    age_ms: Count
    heard_ms: Count
    converted_bytes: Bytes
    gpus: Annotated[tuple[GpuLease, ...], Meta(max_length=GPUS)] = ()


class Jobs(Frame, frozen=True, tag="jobs"):
    """The answer to AskJobs. more: 1 if there are jobs with higher numbers."""

    more: Annotated[int, Meta(ge=0, le=1)]
    jobs: Annotated[tuple[JobState, ...], Meta(max_length=JOBS_SHOWN)] = ()


class AskService(Frame, frozen=True, tag="service?"):
    """Asks for the service's own numbers."""


class ServiceState(Frame, frozen=True, tag="service"):
    """Counters of the service since its start, over the jobs of all users.

    `memory_bytes`: memory of all GPUs that jobs may share. `held_bytes`: the part that jobs hold,
    which the service cannot grant again. `slowed_down`: how often a peer sent too fast and had to
    wait.
    """

    release: Annotated[str, Meta(max_length=32)]
    pid: Pid
    jobs: Count
    connections: Count
    memory_bytes: Bytes
    held_bytes: Bytes
    jobs_joined: Count
    jobs_left: Count
    jobs_expired: Count
    grants: Count
    frames: Count
    refused_connections: Count
    refused_frames: Count
    slowed_down: Count


FROM_CLIENTS: Final = (Join, Report, Beat, AskJobs, AskService)
FROM_SERVICE: Final = (Grant, Refused, Jobs, ServiceState)


# ---- hello and welcome ----


def pack_hello(oldest: int = OLDEST, newest: int = VERSION) -> bytes:
    """Returns the first datagram of a connection."""
    return HELLO.pack(MAGIC, oldest, newest, 0)


def check_hello(data: bytes) -> tuple[int, int]:
    """Returns the status for a hello and the version to use (0 unless OK)."""
    if len(data) != HELLO.size:
        return REFUSED, 0
    magic, oldest, newest, zero = HELLO.unpack(data)
    if magic != MAGIC or zero != 0 or not 1 <= oldest <= newest:
        return REFUSED, 0
    version = min(newest, VERSION)
    return (OK, version) if version >= max(oldest, OLDEST) else (OTHER_VERSION, 0)


def pack_welcome(status: int, version: int) -> bytes:
    """Returns the answer to a hello."""
    return HELLO.pack(MAGIC, version, status, 0)


def check_welcome(data: bytes) -> int:
    """Returns the version to use. Raises FrameError, with a text for users, for a refusal."""
    if len(data) != HELLO.size:
        raise FrameError("an answer instead of the service's welcome")
    magic, version, status, zero = HELLO.unpack(data)
    if magic != MAGIC or zero != 0:
        raise FrameError("an answer instead of the service's welcome")
    if status != OK:
        raise FrameError(f"the service refused: {REASONS.get(status, 'it gave no reason')}")
    if not OLDEST <= version <= VERSION:
        raise FrameError(f"the service chose version {version}, which this program did not offer")
    return int(version)


# ---- frames ----


def encode(message: Frame, version: int = VERSION) -> bytes:
    """Returns `message` as a frame for a peer of `version`."""
    words = msgspec.to_builtins(message)
    for part, name in list(_later(message, words, version)):
        del part[name]
    return pack(words)


def decode(data: bytes, kinds: tuple[type[Frame], ...], version: int = VERSION) -> Any:
    """Returns the content of a frame, one of `kinds`. Raises FrameError."""
    words = unpack(data, FRAME_BYTES if kinds is FROM_CLIENTS else REPLY_BYTES)
    message = converted(words, Union[kinds])  # noqa: UP007
    for _, name in _later(message, words, version):
        raise FrameError(f"unknown key {short(name)} in a frame")
    return message


def refusal(reason: str) -> Refused:
    """Returns the frame for a reason of any length."""
    return Refused(one_line(reason)[:500])


def fitting(text: str, most: int = NAME_CHARACTERS) -> str:
    """Returns as much of a text as a frame can carry, with "?" for unprintable characters."""
    return printable(text)[:most]


def converted(words: object, kind: Any) -> Any:
    """Returns JSON's `words` as a `kind`. Raises FrameError."""
    try:
        return msgspec.convert(words, kind)
    except (msgspec.ValidationError, UnicodeError) as error:  # half of a surrogate pair
        raise FrameError(one_line(str(error))[:FAULT_CHARACTERS]) from None


def _later(message: Words, words: Any, version: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields (object, key) of fields in `words`, the JSON of `message`, newer than `version`."""
    for name, since in message.LATER.items():
        if since > version and name in words:
            yield words, name
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, tuple):
            for item, part in zip(value, words.get(name, ()), strict=False):
                yield from _later(item, part, version)
