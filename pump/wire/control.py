"""Frames of a control connection, and between a supervisor and its workers. No I/O.

One datagram is one frame. A connection begins with a hello and a welcome. Then each request (JSON,
REQUEST_BYTES at most) gets one reply (JSON, REPLY_BYTES at most). A frame between supervisor and
worker is a number, and a request or one client's state. The number links an answer to its question.

Every byte comes from another process: an invalid frame raises FrameError with a text of one line.
The hello ensures that both sides have the same version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pump.wire.strict import ERROR_CHARACTERS, as_object, one_line, pack, short, text_of, unpack
from pump.wire.strict import FrameError as FrameError  # noqa: PLC0414

MAGIC = 0x4C525443504D5550
VERSION = 1
SHIM_MAGIC = 0x4F4C4C45484D5550
"""Magic of a welcome that refuses a peer before its kind of client is known."""

# Hello: magic, version, zero. Welcome: magic, version, status.
HELLO = struct.Struct("<QII")
WELCOME_BYTES_MAX = 64
OK, OTHER_VERSION, REFUSED, BUSY = range(4)

REQUEST_BYTES = 4096
ENTRY_BYTES = 32768
"""Most bytes of one client's state."""
REPLY_BYTES = 65536

NUMBER = struct.Struct("<Q")
U64_MAX = 2**64 - 1
POLICY_CHARACTERS = 32
COUNTERS = 64
DEVICES = 16
HOLD_MS_MOST = 6000
"""Longest hold of launches; then the shim must be asked again (shim/base/limits.h)."""

STATE = "state"
SET = "set"


@dataclass(frozen=True)
class Request:
    """A request. `ask`: STATE or SET.

    `client_pid`: only that client; None: all. `policy`, `budget_bytes`: new values; SET needs one
    of these, `hold_ms` or `yield_ms`. `device`: for all of them except the policy; None: all
    devices. `hold_ms`: launches wait for the job's turn, at most this long from now; 0: release
    them. `yield_ms`: for this long, each launch waits for its own memory before it takes the GPU.
    """

    ask: str
    client_pid: int | None = None
    policy: str | None = None
    budget_bytes: int | None = None
    device: int | None = None
    hold_ms: int | None = None
    yield_ms: int | None = None


@dataclass(frozen=True)
class DeviceState:
    """One device of one client. Resident, arriving, leaving and host bytes are the worker's
    estimates."""

    index: int
    uuid: str
    total_bytes: int
    """Memory of the GPU."""
    free_at_start_bytes: int
    """Free memory when the client made its first context."""
    budget_bytes: int
    emulated: bool
    """True if the budget is below the GPU's memory by choice."""
    active: bool
    """False while everything fits: the shim then reports no operations."""
    allocated_bytes: int
    """Live ranges, in whole blocks."""
    plain_bytes: int
    """Live device memory that was not converted."""
    resident_bytes: int
    """On the GPU, including `maybe_evicted_bytes`, which the driver may have evicted."""
    maybe_evicted_bytes: int
    arriving_bytes: int
    leaving_bytes: int
    host_bytes: int
    """On the host, or not populated."""
    overshoot_bytes: int
    """Peak above the budget since the policy or the budget was last set. Until all memory has been
    within the budget once, the peak above the lowest occupancy since then."""
    blocks_used: int
    """Block uses of executed operations; in `blocks_hit` of these the block was resident."""
    blocks_hit: int
    blocks_late: int
    blocks_unseen: int
    """Blocks that arrived by fault although there was free memory or an eviction candidate; nearly
    all faults if the policy does not prefetch."""
    blocks_no_room: int
    transfers_refused: int
    held_threads: int = 0
    """Threads that wait for the job's turn."""
    least_bytes: int = 0
    """Smallest budget that holds all memory of each operation until now."""


@dataclass(frozen=True)
class ClientState:
    """One client as its worker knows it. If `error` is set, only `pid` is filled.

    shim: the fields of struct pump_shim_counters, since the client began. worker: the fields of
    struct pump_worker_counters, since its worker began.
    """

    pid: int
    error: str | None = None
    policy: str = ""
    devices: tuple[DeviceState, ...] = ()
    shim: Mapping[str, int] = field(default_factory=dict)
    worker: Mapping[str, int] = field(default_factory=dict)


# ---- hello and welcome ----


def pack_hello(version: int = VERSION) -> bytes:
    """Returns the first datagram of a control connection."""
    return HELLO.pack(MAGIC, version, 0)


def is_hello(data: bytes) -> bool:
    """Returns whether a first datagram is a control connection's; check_hello checks it."""
    return data[:8] == MAGIC.to_bytes(8, "little")


def check_hello(data: bytes) -> tuple[int, str]:
    """Returns the status for a hello, and the reason in words."""
    if len(data) != HELLO.size:
        return REFUSED, f"control hello of {len(data)} bytes, not {HELLO.size}"
    magic, version, zero = HELLO.unpack(data)
    if magic != MAGIC or zero != 0:
        return REFUSED, "the control hello is malformed"
    if version != VERSION:
        return OTHER_VERSION, f"control version {version}, pumpd's is {VERSION}"
    return OK, "ok"


def pack_welcome(status: int) -> bytes:
    """Returns the answer to a hello."""
    return HELLO.pack(MAGIC, VERSION, status)


def check_welcome(data: bytes) -> None:
    """Raises FrameError, with a text for users, unless `data` is a welcome with status OK."""
    if not HELLO.size <= len(data) <= WELCOME_BYTES_MAX:
        raise FrameError(f"an answer of {len(data)} bytes instead of pumpd's welcome")
    magic, version, status = HELLO.unpack_from(data)
    if magic not in (MAGIC, SHIM_MAGIC):
        raise FrameError("an answer instead of pumpd's welcome")
    if status == BUSY:
        raise FrameError("pumpd has too many connections; try again later")
    if status == OTHER_VERSION:
        raise FrameError(
            f"pumpd has control version {version}, this program {VERSION}; install both "
            "from one release"
        )
    if status != OK or magic != MAGIC or len(data) != HELLO.size:
        raise FrameError("pumpd refused: it belongs to another user or release")


# ---- requests ----


def encode_request(request: Request) -> bytes:
    """Returns the frame. Raises FrameError for an invalid request."""
    data = pack({key: value for key, value in asdict(request).items() if value is not None})
    decode_request(data)
    return data


def decode_request(data: bytes) -> Request:
    """Returns the request in a frame. Raises FrameError."""
    words = as_object(unpack(data, REQUEST_BYTES), "a request")
    unknown = set(words) - {entry.name for entry in fields(Request)}
    if unknown:
        raise FrameError(f"unknown key {short(min(unknown))} in a request")
    request = Request(
        text_of(words, "ask", 16),
        _optional_integer(words, "client_pid", 2**31 - 1),
        text_of(words, "policy", POLICY_CHARACTERS) if "policy" in words else None,
        _optional_integer(words, "budget_bytes", U64_MAX),
        _optional_integer(words, "device", DEVICES - 1),
        _optional_integer(words, "hold_ms", HOLD_MS_MOST),
        _optional_integer(words, "yield_ms", HOLD_MS_MOST),
    )
    on_device = (request.budget_bytes, request.hold_ms, request.yield_ms) != (None,) * 3
    sets = request.policy is not None or on_device
    if request.ask not in (STATE, SET):
        raise FrameError(f"unknown request {short(request.ask)}; known: {SET}, {STATE}")
    if request.ask == STATE and (sets or request.device is not None):
        raise FrameError("a request for the state cannot set anything")
    if request.ask == SET and not sets:
        raise FrameError("no setting given: name a policy, a budget, or both")
    if request.device is not None and not on_device:
        raise FrameError("a device needs a budget, because the policy applies to the whole client")
    return request


def _optional_integer(words: Mapping[str, Any], key: str, most: int) -> int | None:
    value = words.get(key)
    if key not in words:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise FrameError(f"{key} must be an integer from 0 to {most}")
    return value


# ---- states ----


def encode_client(client: ClientState) -> bytes:
    """Returns one client's state as a frame, ENTRY_BYTES at most. Raises FrameError."""
    data = pack(_as_words(client))
    if len(data) > ENTRY_BYTES:
        raise FrameError(f"a state of {len(data)} bytes is too long")
    return data


def decode_client(data: bytes) -> ClientState:
    """Returns the client's state in a frame. Raises FrameError."""
    return _parse_client(unpack(data, ENTRY_BYTES))


def encode_reply(clients: Sequence[ClientState]) -> bytes:
    """Returns the reply to a request. A client whose state does not fit gets an error instead, with
    the advice to ask for only that client."""
    parts: list[bytes] = []
    left = REPLY_BYTES - 256 * len(clients)
    for client in clients:
        part = pack(_as_words(client))
        if len(part) > left:
            part = pack(
                _as_words(ClientState(client.pid, "the reply is too long: ask by client_pid"))
            )
        else:
            left -= len(part)
        parts.append(part)
    return b'{"clients":[' + b",".join(parts) + b"]}"


def encode_error(reason: str) -> bytes:
    """Returns the reply to a request that reached no worker."""
    return pack({"error": one_line(reason)})


def decode_reply(data: bytes) -> list[ClientState]:
    """Returns the states in a reply. Raises FrameError, also with the reason of an error reply."""
    reply = as_object(unpack(data, REPLY_BYTES), "a reply")
    if set(reply) == {"error"}:
        raise FrameError(text_of(reply, "error", ERROR_CHARACTERS))
    if set(reply) != {"clients"} or not isinstance(reply["clients"], list):
        raise FrameError("a reply without clients")
    return [_parse_client(client) for client in reply["clients"]]


def failed(pid: int, reason: str) -> ClientState:
    """Returns the state of a client that could not be asked, with the reason."""
    return ClientState(pid, one_line(reason))


def _as_words(client: ClientState) -> dict[str, Any]:
    if client.error is not None:
        return {"pid": client.pid, "error": client.error}
    return {key: value for key, value in asdict(client).items() if key != "error"}


def _parse_client(value: object) -> ClientState:
    words = as_object(value, "a client")
    if set(words) == {"pid", "error"}:
        return ClientState(_parse_count(words["pid"]), text_of(words, "error", ERROR_CHARACTERS))
    if set(words) != {entry.name for entry in fields(ClientState)} - {"error"}:
        raise FrameError("a client's state with other keys")
    devices = words["devices"]
    if not isinstance(devices, list) or len(devices) > DEVICES:
        raise FrameError("devices must be a short list")
    return ClientState(
        _parse_count(words["pid"]),
        None,
        text_of(words, "policy", POLICY_CHARACTERS),
        tuple(_parse_device(device) for device in devices),
        _parse_counters(words["shim"]),
        _parse_counters(words["worker"]),
    )


def _parse_device(value: object) -> DeviceState:
    words = as_object(value, "a device")
    if set(words) != {entry.name for entry in fields(DeviceState)}:
        raise FrameError("a device's state with other keys")
    for name, content in words.items():
        if name == "uuid":
            text_of(words, name, 32)
        elif name in ("emulated", "active"):
            if not isinstance(content, bool):
                raise FrameError(f"{name} must be true or false")
        else:
            _parse_count(content)
    return DeviceState(**words)


def _parse_counters(value: object) -> dict[str, int]:
    words = as_object(value, "counters")
    if len(words) > COUNTERS or any(len(name) > COUNTERS for name in words):
        raise FrameError("too many counters, or too long names")
    return {name: _parse_count(count) for name, count in words.items()}


def _parse_count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise FrameError("a count must be an integer from 0 to 2^64 - 1")
    return value


# ---- between supervisor and worker ----


def numbered(number: int, data: bytes) -> bytes:
    """Returns a frame that carries `number` before `data`."""
    return NUMBER.pack(number) + data


def split(data: bytes) -> tuple[int, bytes]:
    """Returns the number and the rest of a frame. Raises FrameError."""
    if len(data) < NUMBER.size:
        raise FrameError(f"a frame of {len(data)} bytes")
    return NUMBER.unpack_from(data)[0], data[NUMBER.size :]
