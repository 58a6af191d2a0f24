"""What a job's pumpd and the system service say to each other: frames, no I/O.

One datagram is one frame. A connection begins with a hello and a welcome, which settle the
version of the protocol: the service accepts its own and the one before, so that it can be
upgraded under running jobs, and jobs under a running service. Every frame after that is a
JSON object; "say" tells which kind.

    pumpd -> service   Join, once; Report when something has changed; Beat when not
    any user -> service AskJobs, AskService; answered by Jobs, ServiceState
    service -> pumpd   Grant, whenever a budget changes; Refused, before it hangs up

A field that came with a later version says so (`since`); towards an older peer it is left
out, and from one it has its default. Every byte comes from another process: whatever is not
exactly right raises FrameError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

from pump.wire.strict import FrameError, as_object, one_line, pack, printable, short, unpack

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
COUNT_MOST: Final = 2**63 - 1
USE_MOST: Final = 1000
HEXADECIMAL: Final = frozenset("0123456789abcdef")

T = TypeVar("T")


# ---- kinds of fields ----


def _whole(most: int, least: int = 0, since: int = 1, **default: int) -> Any:
    def check(name: str, value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise FrameError(f"{name} is not a whole number from {least} to {most}")
        return value

    return field(metadata={"check": check, "since": since}, **default)  # type: ignore[call-overload]


def _text(most: int, since: int = 1, **default: str) -> Any:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise FrameError(f"{name} is not a text of at most {most} characters")
        return value

    return field(metadata={"check": check, "since": since}, **default)  # type: ignore[call-overload]


def _gpu() -> Any:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or len(value) != 32 or not set(value) <= HEXADECIMAL:
            raise FrameError(f"{name} is not the UUID of a GPU in 32 hexadecimal digits")
        return value

    return field(metadata={"check": check, "since": 1})


def _several(kind: type, most: int, since: int = 1) -> Any:
    def check(name: str, value: object, version: int) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise FrameError(f"{name} is not a list of at most {most}")
        return tuple(_build(kind, as_object(item, name), version) for item in value)

    return field(default=(), metadata={"check": check, "since": since, "of": kind})


# ---- what is said ----


@dataclass(frozen=True)
class Join:
    """A job's pumpd makes itself known; credentials of the socket tell its process and user.

    name: for people. priority: the higher, the sooner served; the service may lower it.
    socket: path of the job's own socket, for those who may steer it; the service only
    passes it on. job_pid: the job's first process, as its pumpd sees it.
    """

    SAY: ClassVar[str] = "join"
    name: str = _text(NAME_CHARACTERS, default="")
    priority: int = _whole(PRIORITY_MOST, -PRIORITY_MOST, default=0)
    socket: str = _text(PATH_CHARACTERS, default="")
    job_pid: int = _whole(2**31 - 1, default=0)


@dataclass(frozen=True)
class GpuReport:
    """One GPU that clients of the job use; bytes are sums over them.

    gpu: UUID in hexadecimal. total_bytes: the card's. usable_bytes: what the client that
    found most free could take. wanted_bytes: live memory, or the user's budget if that is
    less. adopted_bytes: the budgets in force. resident_bytes: there or on the way.
    use: share of the time with operations, of USE_MOST.
    """

    gpu: str = _gpu()
    total_bytes: int = _whole(BYTES_MOST)
    usable_bytes: int = _whole(BYTES_MOST)
    wanted_bytes: int = _whole(BYTES_MOST)
    adopted_bytes: int = _whole(BYTES_MOST)
    resident_bytes: int = _whole(BYTES_MOST)
    use: int = _whole(USE_MOST)


@dataclass(frozen=True)
class Report:
    """How a job stands. grant: number of the newest grant that it has acted upon, 0: none.

    converted_bytes: of all its clients. host_bytes: of them, believed to be on the host.
    """

    SAY: ClassVar[str] = "report"
    grant: int = _whole(COUNT_MOST)
    clients: int = _whole(4096)
    converted_bytes: int = _whole(BYTES_MOST)
    host_bytes: int = _whole(BYTES_MOST)
    gpus: tuple[GpuReport, ...] = _several(GpuReport, GPUS)


@dataclass(frozen=True)
class Beat:
    """Nothing has changed since the last report."""

    SAY: ClassVar[str] = "beat"


@dataclass(frozen=True)
class GpuGrant:
    """What the job's clients together may keep on one GPU."""

    gpu: str = _gpu()
    budget_bytes: int = _whole(BYTES_MOST)


@dataclass(frozen=True)
class Grant:
    """All leases of a job, in place of the earlier ones.

    number: 1, 2, ... within a connection. beat_ms: the service wants to hear from the job
    that often, and takes the leases back after some silence.
    """

    SAY: ClassVar[str] = "grant"
    number: int = _whole(COUNT_MOST)
    beat_ms: int = _whole(60_000, 10)
    gpus: tuple[GpuGrant, ...] = _several(GpuGrant, GPUS)


@dataclass(frozen=True)
class Refused:
    """The service says why it hangs up."""

    SAY: ClassVar[str] = "refused"
    reason: str = _text(500)


@dataclass(frozen=True)
class AskJobs:
    """Which jobs are there? The asker's own; all for root. after: of a number above."""

    SAY: ClassVar[str] = "jobs?"
    after: int = _whole(COUNT_MOST, default=0)


@dataclass(frozen=True)
class GpuLease:
    """One job on one GPU, as the service knows it. granted_bytes 0: no grant yet."""

    gpu: str = _gpu()
    granted_bytes: int = _whole(BYTES_MOST)
    adopted_bytes: int = _whole(BYTES_MOST)
    resident_bytes: int = _whole(BYTES_MOST)
    wanted_bytes: int = _whole(BYTES_MOST)
    use: int = _whole(USE_MOST)


@dataclass(frozen=True)
class JobState:
    """One job, as the service knows it. heard_ms: since it was last heard of."""

    number: int = _whole(COUNT_MOST)
    user: int = _whole(2**32 - 1)
    pid: int = _whole(2**31 - 1)
    job_pid: int = _whole(2**31 - 1)
    name: str = _text(NAME_CHARACTERS)
    priority: int = _whole(PRIORITY_MOST, -PRIORITY_MOST)
    socket: str = _text(PATH_CHARACTERS)
    clients: int = _whole(4096)
    age_ms: int = _whole(COUNT_MOST)
    heard_ms: int = _whole(COUNT_MOST)
    converted_bytes: int = _whole(BYTES_MOST)
    gpus: tuple[GpuLease, ...] = _several(GpuLease, GPUS)


@dataclass(frozen=True)
class Jobs:
    """The answer to AskJobs. more: 1 if there are jobs beyond."""

    SAY: ClassVar[str] = "jobs"
    more: int = _whole(1)
    jobs: tuple[JobState, ...] = _several(JobState, JOBS_SHOWN)


@dataclass(frozen=True)
class AskService:
    """How does the service do?"""

    SAY: ClassVar[str] = "service?"


@dataclass(frozen=True)
class ServiceState:
    """Figures of the service since its start; nothing in them tells of other users' jobs
    but how many there are. held_bytes: on all GPUs, what cannot be granted to others."""

    SAY: ClassVar[str] = "service"
    release: str = _text(32)
    pid: int = _whole(2**31 - 1)
    jobs: int = _whole(COUNT_MOST)
    connections: int = _whole(COUNT_MOST)
    memory_bytes: int = _whole(BYTES_MOST)
    held_bytes: int = _whole(BYTES_MOST)
    jobs_joined: int = _whole(COUNT_MOST)
    jobs_left: int = _whole(COUNT_MOST)
    jobs_expired: int = _whole(COUNT_MOST)
    grants: int = _whole(COUNT_MOST)
    frames: int = _whole(COUNT_MOST)
    refused_connections: int = _whole(COUNT_MOST)
    refused_frames: int = _whole(COUNT_MOST)
    slowed_down: int = _whole(COUNT_MOST)


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


def encode(message: Any, version: int = VERSION) -> bytes:
    """Return the frame that says `message` to a peer of `version`."""
    return pack({"say": message.SAY} | _plain(message, version))


def decode(data: bytes, kinds: Iterable[type], version: int = VERSION) -> Any:
    """Return what a frame says, one of `kinds`. Raises FrameError."""
    from_client = kinds is FROM_CLIENTS
    words = as_object(unpack(data, FRAME_BYTES if from_client else REPLY_BYTES), "a frame")
    said = words.pop("say", None)
    for kind in kinds:
        if said == kind.SAY:  # type: ignore[attr-defined]
            return _build(kind, words, version)
    raise FrameError(f"an unknown frame {short(str(said))}")


def refusal(reason: str) -> Refused:
    """Return the frame for a reason of any length."""
    return Refused(one_line(reason)[:500])


def fitting(text: str, most: int = NAME_CHARACTERS) -> str:
    """Return what a frame can carry of a text."""
    return printable(text)[:most]


@cache
def _known(kind: type, version: int) -> list[Field[Any]]:
    return [entry for entry in fields(kind) if entry.metadata["since"] <= version]


def _plain(message: Any, version: int) -> dict[str, Any]:
    words = {}
    for entry in _known(type(message), version):  # type: ignore[arg-type]
        value = getattr(message, entry.name)
        several = "of" in entry.metadata
        words[entry.name] = [_plain(item, version) for item in value] if several else value
    return words


def _build(kind: type[T], words: dict[str, Any], version: int) -> T:
    known = _known(kind, version)  # type: ignore[arg-type]
    given = {}
    for entry in known:
        if entry.name not in words:
            if entry.default is MISSING:
                raise FrameError(f"a frame without {entry.name}")
            continue
        check = entry.metadata["check"]
        value = words[entry.name]
        several = "of" in entry.metadata
        given[entry.name] = (
            check(entry.name, value, version) if several else check(entry.name, value)
        )
    if len(given) != len(words):
        strange = min(set(words) - set(given))
        raise FrameError(f"unknown key {short(strange)} in a frame")
    return kind(**given)
