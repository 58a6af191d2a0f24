"""Frames of the control connection: messages arrive unchanged, and garbage is refused."""

from __future__ import annotations

import json
import random

import pytest

from pump.wire import control as wire
from pump.wire.control import ClientState, DeviceState, FrameError, Request

SEEDS = (1, 2, 3)


def device(index: int, source: random.Random) -> DeviceState:
    figures = {
        name: source.getrandbits(source.choice((1, 20, 40, 64)))
        for name in DeviceState.__annotations__
        if name not in ("index", "uuid", "emulated", "active")
    }
    return DeviceState(
        index=index, uuid="ab" * 16, emulated=source.random() < 0.5, active=True, **figures
    )


def client(pid: int, source: random.Random, devices: int = 2) -> ClientState:
    counters = {f"counter_{number}": source.getrandbits(64) for number in range(20)}
    states = tuple(device(index, source) for index in range(devices))
    return ClientState(pid, None, "window", states, counters, dict(counters))


REQUESTS = [
    Request("state"),
    Request("state", client_pid=77),
    Request("set", policy="demand"),
    Request("set", budget_bytes=1 << 40),
    Request("set", 5, "window", 0, 15),
    Request("set", 5, device=15, hold_ms=wire.HOLD_MS_MOST),
    Request("set", hold_ms=0),
    Request("set", 5, device=0, hold_ms=0, yield_ms=wire.HOLD_MS_MOST),
    Request("set", yield_ms=0),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_a_request_comes_back_as_it_was_said(request_: Request) -> None:
    assert wire.decode_request(wire.encode_request(request_)) == request_


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"ask": "stat"},
        {"ask": ["set"]},
        {"ask": "set"},
        {"ask": "state", "policy": "demand"},
        {"ask": "state", "device": 0},
        {"ask": "set", "policy": "demand", "device": 0},
        {"ask": "set", "policy": ""},
        {"ask": "set", "policy": "x" * 33},
        {"ask": "set", "budget_bytes": True},
        {"ask": "set", "budget_bytes": -1},
        {"ask": "set", "budget_bytes": 1.5},
        {"ask": "set", "budget_bytes": "5"},
        {"ask": "set", "budget_bytes": 1 << 64},
        {"ask": "set", "budget_bytes": None},
        {"ask": "set", "budget_bytes": 5, "device": 16},
        {"ask": "state", "hold_ms": 5},
        {"ask": "set", "hold_ms": 5, "device": 16},
        {"ask": "state", "yield_ms": 5},
        {"ask": "state", "client_pid": 1 << 31},
        {"ask": "state", "more": 1},
    ],
    ids=str,
)
def test_a_request_that_is_not_exactly_right_is_refused_in_one_line(words: object) -> None:
    with pytest.raises(FrameError) as error:
        wire.decode_request(json.dumps(words).encode())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["hold_ms", "yield_ms"])
@pytest.mark.parametrize("ms", [-1, 6001, True, "5", None])
def test_a_time_that_is_too_long_or_no_number_is_refused_by_its_name(name: str, ms: object) -> None:
    words = {"ask": "set", "device": 0, name: ms}
    with pytest.raises(FrameError, match=f"{name} must be an integer from 0 to 6000"):
        wire.decode_request(json.dumps(words).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"ask":"state","ask":"state"}',
        b'{"ask":"state","client_pid":NaN}',
        b'{"ask":"state","client_pid":' + b"9" * 3000 + b"}",
        b"[" * 4000,
        b'{"ask":"state"}' + b" " * 4096,
        b'\xff{"ask":"state"}',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_bytes_that_are_no_strict_json_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        wire.decode_request(data)


def test_the_states_of_clients_come_back_as_they_were_told() -> None:
    source = random.Random(4)
    clients = [client(pid, source) for pid in range(1, 6)] + [wire.failed(9, "gone\naway")]
    assert wire.decode_reply(wire.encode_reply(clients)) == clients
    assert clients[-1].error == "gone away"
    assert wire.decode_client(wire.encode_client(clients[0])) == clients[0]


def test_a_reply_for_many_clients_stays_within_its_bound_and_names_all_of_them() -> None:
    source = random.Random(5)
    reply = wire.encode_reply([client(pid, source, devices=8) for pid in range(64)])
    assert len(reply) <= wire.REPLY_BYTES
    found = wire.decode_reply(reply)
    assert [one.pid for one in found] == list(range(64))
    assert found[0].error is None and "ask by client_pid" in str(found[-1].error)


def test_the_reason_of_a_failed_request_is_what_the_asker_gets() -> None:
    with pytest.raises(FrameError, match=r"^no such thing$"):
        wire.decode_reply(wire.encode_error("no such\nthing"))


@pytest.mark.parametrize("reason", ["\n", "no such\nthing", "\x1b[2J", "a\u202eb"])
def test_what_a_terminal_would_obey_is_refused_and_never_sent(reason: str) -> None:
    for words in ({"error": reason}, {"clients": [{"pid": 7, "error": reason}]}):
        with pytest.raises(FrameError) as error:
            wire.decode_reply(json.dumps(words).encode())
        assert str(error.value).isprintable() and "printable characters" in str(error.value)
    with pytest.raises(FrameError) as error:
        wire.decode_reply(wire.encode_error(reason))
    assert str(error.value).isprintable() and "printable characters" not in str(error.value)


def mutate(data: bytes, source: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(len(changed) + 1)
        choice = source.random()
        if choice < 0.5 and at < len(changed):
            changed[at] = source.choice((source.randrange(256), *b'{}[]",:0-.e9'))
        elif choice < 0.7:
            changed[at:at] = source.randbytes(source.randrange(1, 9))
        elif choice < 0.9:
            del changed[at : at + source.randrange(1, 9)]
        else:
            changed = changed[:at]
    return bytes(changed)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mutated_frame_does_more_than_be_refused(seed: int) -> None:
    print("seed", seed)
    source = random.Random(seed)
    requests = [wire.encode_request(request) for request in REQUESTS]
    reply = wire.encode_reply([client(1, source, 1), wire.failed(2, "gone")])
    entry = wire.encode_client(client(3, source, 1))
    refused = 0
    cases = [
        (wire.decode_request, requests, 8000),
        (wire.decode_reply, [reply], 3000),
        (wire.decode_client, [entry], 3000),
    ]
    for decode, frames, rounds in cases:
        for _ in range(rounds):
            data = mutate(source.choice(frames), source)
            try:
                found = decode(data)
            except FrameError as error:
                assert "\n" not in str(error)
                refused += 1
                continue
            for value in found if isinstance(found, list) else [found]:
                assert isinstance(value, Request | ClientState)
    assert refused > 7000


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mutated_hello_or_welcome_does_more_than_be_refused(seed: int) -> None:
    print("seed", seed)
    source = random.Random(seed)
    for _ in range(5000):
        hello = mutate(wire.pack_hello(), source)
        status, reason = wire.check_hello(hello)
        assert (status == wire.OK) == (hello == wire.pack_hello()), reason
        welcome = mutate(wire.pack_welcome(wire.OK), source)
        if welcome != wire.pack_welcome(wire.OK):
            try:
                wire.check_welcome(welcome)
            except FrameError:
                continue
            assert welcome[12:16] == bytes(4), "only the version may differ unnoticed"


def test_what_a_welcome_says_is_said_in_words() -> None:
    wire.check_welcome(wire.pack_welcome(wire.OK))
    for status, words in [
        (wire.BUSY, "try again later"),
        (wire.OTHER_VERSION, "from one release"),
        (wire.REFUSED, "another user or release"),
        (9, "refused"),
    ]:
        for magic in (wire.MAGIC, wire.SHIM_MAGIC):
            with pytest.raises(FrameError, match=words):
                wire.check_welcome(wire.HELLO.pack(magic, 7, status))
