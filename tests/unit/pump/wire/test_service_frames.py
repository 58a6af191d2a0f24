"""Frames of the system service: messages arrive unchanged; versions; garbage."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Meta
from msgspec.structs import replace
from service_messages import GPU, MESSAGES, mutated

from pump.wire import service as wire
from pump.wire.strict import FrameError


@pytest.mark.parametrize(("message", "kinds"), MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_comes_back_as_it_was_said(message: Any, kinds: tuple[type, ...]) -> None:
    data = wire.encode(message)
    assert wire.decode(data, kinds) == message
    assert len(data) <= wire.FRAME_BYTES


def test_the_longest_report_fits_into_a_frame() -> None:
    gpu = wire.GpuReport(GPU, *[wire.BYTES_MOST] * 5, wire.USE_MOST)
    most = wire.Report(wire.COUNT_MOST, 4096, *[wire.BYTES_MOST] * 2, (gpu,) * wire.GPUS)
    assert len(wire.encode(most)) <= wire.FRAME_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"say":"what"}',
        '{"say":"beat","more":1}',
        '{"say":["beat"]}',
        '{"say":"grant","number":1,"beat_ms":100,"gpus":[]}',
        '{"say":"join","priority":11}',
        '{"say":"join","priority":1.0}',
        '{"say":"join","priority":true}',
        '{"say":"join","name":"' + "x" * 65 + '"}',
        '{"say":"join","name":"a\\u0007b"}',
        '{"say":"join","name":"\\ud800"}',
        '{"say":"beat","\\ud800":1}',
        '"\\ud800"',
        '{"say":"report"}',
        '{"say":"jobs?","after":-1}',
        '{"say":"jobs?","after":1,"after":2}',
        '{"say":"report","grant":0,"clients":0,"converted_bytes":0,"host_bytes":0,"gpus":{}}',
        '{"say":"report","grant":0,"clients":0,"converted_bytes":0,"host_bytes":0,"gpus":[7]}',
        "[" * 8000,
        '{"say":"join","name":"' + "x" * 9000 + '"}',
    ],
)
def test_a_frame_that_is_not_exactly_right_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FrameError) as error:
        wire.decode(text.encode(), wire.FROM_CLIENTS)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize("gpu", ["", "x" * 32, GPU.upper(), GPU + "0", "../../etc/passwd"])
def test_a_gpu_is_a_uuid_and_nothing_else(gpu: str) -> None:
    words = json.loads(wire.encode(MESSAGES[1][0]))
    words["gpus"][0]["gpu"] = gpu
    with pytest.raises(FrameError, match="UUID"):
        wire.decode(json.dumps(words).encode(), wire.FROM_CLIENTS)


@pytest.mark.parametrize(
    ("kind", "field", "most"),
    [
        (wire.Join, "priority", 10),
        (wire.Join, "job_pid", 2**31 - 1),
        (wire.Report, "grant", 2**63 - 1),
        (wire.Report, "clients", 4096),
        (wire.Report, "converted_bytes", 2**62),
        (wire.Report, "host_bytes", 2**62),
        (wire.AskJobs, "after", 2**63 - 1),
        (wire.Grant, "number", 2**63 - 1),
        (wire.Grant, "beat_ms", 60_000),
        (wire.Jobs, "more", 1),
        (wire.ServiceState, "memory_bytes", 2**62),
    ],
)
def test_a_figure_may_be_as_great_as_its_bound_and_no_greater(
    kind: type, field: str, most: int
) -> None:
    (message, kinds) = next(one for one in MESSAGES if type(one[0]) is kind)
    words = json.loads(wire.encode(message))
    found = wire.decode(json.dumps(words | {field: most}).encode(), kinds)
    assert getattr(found, field) == most
    for wrong in (most + 1, 2**64, str(most), None, [most]):
        with pytest.raises(FrameError):
            wire.decode(json.dumps(words | {field: wrong}).encode(), kinds)


@pytest.mark.parametrize(("field", "most"), [("gpus", wire.GPUS), ("jobs", wire.JOBS_SHOWN)])
def test_a_list_may_be_as_long_as_its_bound_and_no_longer(field: str, most: int) -> None:
    kind = wire.Report if field == "gpus" else wire.Jobs
    (message, kinds) = next(one for one in MESSAGES if isinstance(one[0], kind))
    words = json.loads(wire.encode(message))
    for count in (most, most + 1):
        many = json.dumps(words | {field: words[field] * count}).encode()
        if count == most:
            assert len(getattr(wire.decode(many, kinds), field)) == most
        else:
            with pytest.raises(FrameError):
                wire.decode(many, kinds)


# ---- versions ----


def test_the_newest_version_that_both_know_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    for ours in (1, 2, 3):
        monkeypatch.setattr(wire, "VERSION", ours)
        monkeypatch.setattr(wire, "OLDEST", max(1, ours - 1))
        for oldest, newest in [(1, 1), (1, 2), (2, 3), (3, 4), (4, 5)]:
            both = set(range(oldest, newest + 1)) & set(range(max(1, ours - 1), ours + 1))
            status, version = wire.check_hello(wire.pack_hello(oldest, newest))
            assert (status, version) == ((wire.OK, max(both)) if both else (wire.OTHER_VERSION, 0))
            if both:
                assert wire.check_welcome(wire.pack_welcome(status, version)) == version


NEXT = wire.VERSION + 1


class NextBeat(wire.Frame, frozen=True, tag="beat"):
    """A Beat of a possible next release."""

    LATER: ClassVar[dict[str, int]] = {"mood": NEXT}
    mood: Annotated[int, Meta(ge=0, le=9)] = 5


class NextGrant(wire.Words, frozen=True):
    """A GpuGrant of a possible next release."""

    LATER: ClassVar[dict[str, int]] = {"warm": NEXT}
    gpu: wire.Gpu
    budget_bytes: wire.Bytes
    warm: bool = False


class NextGrants(wire.Frame, frozen=True, tag="grant"):
    """A Grant with such GpuGrants."""

    number: wire.Count
    beat_ms: int
    gpus: tuple[NextGrant, ...] = ()


def test_a_later_field_is_left_out_for_an_older_peer_and_has_its_default_from_one() -> None:
    ours = wire.VERSION
    assert wire.decode(wire.encode(NextBeat(7), ours), (wire.Beat,), ours) == wire.Beat()
    assert wire.decode(wire.encode(wire.Beat(), ours), (NextBeat,), ours) == NextBeat(5)
    assert wire.decode(wire.encode(NextBeat(7), NEXT), (NextBeat,), NEXT) == NextBeat(7)
    with pytest.raises(FrameError, match="unknown key"):
        wire.decode(wire.encode(NextBeat(7), NEXT), (NextBeat,), ours)
    grants = NextGrants(1, 2000, (NextGrant(GPU, 8, True),))
    found = wire.decode(wire.encode(grants, ours), (wire.Grant,), ours)
    assert found.gpus == (wire.GpuGrant(GPU, 8),)
    assert wire.decode(wire.encode(grants, NEXT), (NextGrants,), NEXT) == grants
    with pytest.raises(FrameError, match="unknown key 'warm'"):
        wire.decode(wire.encode(grants, NEXT), (NextGrants,), ours)


LEASE = wire.GpuLease(GPU, *range(5), waits=True)
JOB = wire.JobState(*range(1, 5), "n", 0, "", 1, 2, 3, 4, (LEASE,))


@pytest.mark.parametrize(
    ("message", "older", "kinds"),
    [
        (
            wire.Report(
                5, 1, 0, 0, (wire.GpuReport(GPU, *range(6), used=True, ready=True, least_bytes=7),)
            ),
            wire.Report(5, 1, 0, 0, (wire.GpuReport(GPU, *range(6)),)),
            wire.FROM_CLIENTS,
        ),
        (
            wire.Grant(1, 2000, (wire.GpuGrant(GPU, 8, waits=True, yields=True),)),
            wire.Grant(1, 2000, (wire.GpuGrant(GPU, 8),)),
            wire.FROM_SERVICE,
        ),
        (
            wire.Jobs(0, (JOB,)),
            wire.Jobs(0, (replace(JOB, gpus=(wire.GpuLease(GPU, *range(5)),)),)),
            wire.FROM_SERVICE,
        ),
    ],
    ids=["report", "grant", "jobs"],
)
def test_turns_are_not_spoken_of_with_a_peer_of_version_1(
    message: Any, older: Any, kinds: tuple[type, ...]
) -> None:
    assert (wire.OLDEST, wire.VERSION) == (1, 2)
    assert wire.decode(wire.encode(message, 1), kinds, 1) == older
    assert not {"used", "ready", "least_bytes", "waits", "yields"} & set(
        str(wire.encode(message, 1)).split('"')
    )
    assert wire.decode(wire.encode(message, 2), kinds, 2) == message
    with pytest.raises(FrameError, match=r"unknown key '(used|waits|yields|least_bytes)'"):
        wire.decode(wire.encode(message, 2), kinds, 1)


@pytest.mark.parametrize("cut", [0, 8, 15, 17, 400])
def test_a_hello_that_is_none_is_refused(cut: int) -> None:
    assert wire.check_hello((wire.pack_hello() + bytes(400))[:cut])[0] == wire.REFUSED
    with pytest.raises(FrameError, match="instead of the service's welcome"):
        wire.check_welcome((wire.pack_welcome(0, 1) + bytes(400))[:cut])


def test_a_refusal_says_why_in_words() -> None:
    for status in (wire.OTHER_VERSION, wire.REFUSED, wire.BUSY):
        with pytest.raises(FrameError, match="the service refused: it"):
            wire.check_welcome(wire.pack_welcome(status, 0))


# ---- garbage ----


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Decodes `count` damaged frames; returns the numbers of accepted and of refused frames."""
    source = random.Random(seed)
    frames = [(wire.encode(message), kinds) for message, kinds in MESSAGES]
    hellos = [wire.pack_hello(), wire.pack_welcome(wire.OK, 1)]
    taken = refused = 0
    for turn in range(count):
        data, kinds = frames[turn % len(frames)]
        broken = mutated(data, source)
        try:
            message = wire.decode(broken, kinds)
            assert wire.decode(wire.encode(message), kinds) == message
            taken += 1
        except FrameError as error:
            assert "\n" not in str(error)
            refused += 1
        if turn % 16 == 0:
            hello = mutated(source.choice(hellos), source)
            assert wire.check_hello(hello)[0] in (wire.OK, wire.OTHER_VERSION, wire.REFUSED)
    return taken, refused


def test_two_hundred_thousand_mutated_frames_are_decoded_or_refused() -> None:
    taken, refused = fuzz(200_000, seed=1)
    assert taken > 1000 and refused > 100_000, "the injuries are neither too light nor too heavy"


@pytest.mark.long
def test_ten_million_mutated_frames_are_decoded_or_refused() -> None:
    for seed in range(50):
        fuzz(200_000, seed)
