"""What a job's pumpd and the system service say to each other: frames, no I/O.

One datagram is one frame. A connection begins with a hello and a welcome, which settle the
version of the protocol: the service accepts its own and the one before, so that it can be
upgraded under running jobs, and jobs under a running service. Every frame after that is a
JSON object; "say" tells which kind.

    pumpd -> service   Join, once; Report when something has changed; Beat when not
    any user -> service AskJobs, AskService; answered by Jobs, ServiceState
    service -> pumpd   Grant, whenever a budget changes; Refused, before it hangs up

A field that came with a later version says so (`LATER`); towards an older peer it is left
out, and from one it has its default. Every byte comes from another process: whatever is not
exactly right raises FrameError. msgspec checks types and bounds; jobs' own programs, which may
import pump.control, get along without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Union

import msgspec
from msgspec import Meta, Struct

from pump.wire.strict import FrameError, one_line, pack, printable, short, unpack

MAGIC: Final = 0x56524553504D5550
VERSION: Final = 1
OLDEST: Final = max(1, VERSION - 1)

# Hello: magic, oldest and newest version, zero. Welcome: magic, version, status, zero.
HELLO: Final = struct.Struct("<QHHI")
OK, OTHER_VERSION, REFUSED, BUSY = range(4)
REASONS: Final = {
    OTHER_VERSION: "it speaks no version of the protocol that this release knows",
    REFUSED: "it does not serve this user",
    BUSY: "it has as many connections as it takes; try again later",
}

FRAME_BYTES: Final = 8192
"""Of what a client says."""
REPLY_BYTES: Final = 65536
"""Of what the service says."""
GPUS: Final = 16
JOBS_SHOWN: Final = 64
"""In one reply; AskJobs.after asks for more."""
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
    """A JSON object of a frame. LATER: its fields that came with a later version than 1, and
    with which."""

    LATER: ClassVar[dict[str, int]] = {}


class Frame(Words, frozen=True, forbid_unknown_fields=True, tag_field="say"):
    """What one datagram says."""


# ---- what is said ----


class Join(Frame, frozen=True, tag="join"):
    """A job's pumpd makes itself known; credentials of the socket tell its process and user.

    name: for people. priority: the higher, the sooner served; the service may lower it.
    socket: path of the job's own socket, for those who may steer it; the service only
    passes it on. job_pid: the job's first process, as its pumpd sees it.
    """

    name: Name = ""
    priority: Priority = 0
    socket: Path = ""
    job_pid: Pid = 0


class GpuReport(Words, frozen=True):
    """One GPU that clients of the job use; bytes are sums over them.

    gpu: UUID in hexadecimal. total_bytes: the card's. usable_bytes: what the client that
    found most free could take. wanted_bytes: live memory, or the user's budget if that is
    less. adopted_bytes: the budgets in force. resident_bytes: there or on the way.
    use: share of the time with operations, of USE_MOST.
    """

    gpu: Gpu
    total_bytes: Bytes
    usable_bytes: Bytes
    wanted_bytes: Bytes
    adopted_bytes: Bytes
    resident_bytes: Bytes
    use: Use


class Report(Frame, frozen=True, tag="report"):
    """How a job stands. grant: number of the newest grant that it has acted upon, 0: none.

    converted_bytes: of all its clients. host_bytes: of them, believed to be on the host.
    """

    grant: Count
    clients: Clients
    converted_bytes: Bytes
    host_bytes: Bytes
    gpus: Annotated[tuple[GpuReport, ...], Meta(max_length=GPUS)] = ()


class Beat(Frame, frozen=True, tag="beat"):
    """Nothing has changed since the last report."""


class GpuGrant(Words, frozen=True):
    """What the job's clients together may keep on one GPU."""

    gpu: Gpu
    budget_bytes: Bytes


class Grant(Frame, frozen=True, tag="grant"):
    """All leases of a job, in place of the earlier ones.

    number: 1, 2, ... within a connection. beat_ms: the service wants to hear from the job
    that often, and takes the leases back after some silence.
    """

    number: Count
    beat_ms: Annotated[int, Meta(ge=10, le=60_000)]
    gpus: Annotated[tuple[GpuGrant, ...], Meta(max_length=GPUS)] = ()


class Refused(Frame, frozen=True, tag="refused"):
    """The service says why it hangs up."""

    reason: Annotated[str, Meta(max_length=500)]


class AskJobs(Frame, frozen=True, tag="jobs?"):
    """Which jobs are there? The asker's own; all for root. after: of a number above."""

    after: Count = 0


class GpuLease(Words, frozen=True):
    """One job on one GPU, as the service knows it. granted_bytes 0: no grant yet."""

    gpu: Gpu
    granted_bytes: Bytes
    adopted_bytes: Bytes
    resident_bytes: Bytes
    wanted_bytes: Bytes
    use: Use


class JobState(Words, frozen=True):
    """One job, as the service knows it. heard_ms: since it was last heard of."""

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
    """The answer to AskJobs. more: 1 if there are jobs beyond."""

    more: Annotated[int, Meta(ge=0, le=1)]
    jobs: Annotated[tuple[JobState, ...], Meta(max_length=JOBS_SHOWN)] = ()


class AskService(Frame, frozen=True, tag="service?"):
    """How does the service do?"""


class ServiceState(Frame, frozen=True, tag="service"):
    """Figures of the service since its start; nothing in them tells of other users' jobs
    but how many there are. held_bytes: on all GPUs, what cannot be granted to others."""

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
    """Return the first datagram of a connection."""
    return HELLO.pack(MAGIC, oldest, newest, 0)


def judge_hello(data: bytes) -> tuple[int, int]:
    """Return the status for a hello and the version to speak (0 unless OK)."""
    if len(data) != HELLO.size:
        return REFUSED, 0
    magic, oldest, newest, zero = HELLO.unpack(data)
    if magic != MAGIC or zero != 0 or not 1 <= oldest <= newest:
        return REFUSED, 0
    version = min(newest, VERSION)
    return (OK, version) if version >= max(oldest, OLDEST) else (OTHER_VERSION, 0)


def pack_welcome(status: int, version: int) -> bytes:
    """Return the answer to a hello."""
    return HELLO.pack(MAGIC, version, status, 0)


def check_welcome(data: bytes) -> int:
    """Return the version to speak. Raises FrameError, in words for people, for a refusal."""
    if len(data) != HELLO.size:
        raise FrameError("an answer that is no welcome of pump's service")
    magic, version, status, zero = HELLO.unpack(data)
    if magic != MAGIC or zero != 0:
        raise FrameError("an answer that is no welcome of pump's service")
    if status != OK:
        raise FrameError(f"the service refused: {REASONS.get(status, 'it gave no reason')}")
    if not OLDEST <= version <= VERSION:
        raise FrameError(f"the service speaks version {version}, which was not offered")
    return int(version)


# ---- frames ----


def encode(message: Frame, version: int = VERSION) -> bytes:
    """Return the frame that says `message` to a peer of `version`."""
    words = msgspec.to_builtins(message)
    for part, name in list(_later(message, words, version)):
        del part[name]
    return pack(words)


def decode(data: bytes, kinds: tuple[type[Frame], ...], version: int = VERSION) -> Any:
    """Return what a frame says, one of `kinds`. Raises FrameError."""
    words = unpack(data, FRAME_BYTES if kinds is FROM_CLIENTS else REPLY_BYTES)
    message = converted(words, Union[kinds])  # noqa: UP007
    for _, name in _later(message, words, version):
        raise FrameError(f"unknown key {short(name)} in a frame")
    return message


def refusal(reason: str) -> Refused:
    """Return the frame for a reason of any length."""
    return Refused(one_line(reason)[:500])


def fitting(text: str, most: int = NAME_CHARACTERS) -> str:
    """Return what a frame can carry of a text."""
    return printable(text)[:most]


def converted(words: object, kind: Any) -> Any:
    """Return JSON's `words` as a `kind`. Raises FrameError."""
    try:
        return msgspec.convert(words, kind)
    except (msgspec.ValidationError, UnicodeError) as error:  # half of a surrogate pair
        raise FrameError(one_line(str(error))[:FAULT_CHARACTERS]) from None


def _later(message: Words, words: Any, version: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Where `words`, which say `message`, hold fields of a later version: the object, the key."""
    for name, since in message.LATER.items():
        if since > version and name in words:
            yield words, name
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, tuple):
            for item, part in zip(value, words.get(name, ()), strict=False):
                yield from _later(item, part, version)
