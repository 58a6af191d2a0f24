"""Questions: the link's rates in one direction and in both directions at once."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable

from probe.driver import MIB, TO_HOST, call, elapsed_ns, handle_of
from probe.figures import gbps, median, rounded, summary, undisturbed
from probe.gpu import Gpu
from probe.moves import sliced
from probe.registry import Notes, question
from probe.threads import together


def overlap_rate(
    span: tuple[int, int], other: tuple[int, int], length: int, alone: float
) -> float | None:
    """Returns the share of the undisturbed rate `alone` (GB/s) kept while both spans run, or None.

    The part of `span` outside `other` is assumed to run at the rate `alone`.
    """
    both = min(span[1], other[1]) - max(span[0], other[0])
    if both <= 0 or alone <= 0:
        return None
    moved = length - (span[1] - span[0] - both) * alone
    return rounded(max(moved, 0.0) / (both * alone))


@question(40, "duplex factor delta; whether in and out may run at once")
def ask_duplex(gpu: Gpu, out: Notes) -> None:
    length = 512 * MIB
    half = length // 2
    buffers = [gpu.written(length), gpu.written(length)]
    streams = [gpu.new_stream() for _ in range(3)]
    gpu.move(buffers[0], length, TO_HOST)
    gpu.move(buffers[1], length, TO_HOST)
    gpu.move(buffers[1], length, 0)

    def job(to: int, address: int, size: int, stream: int) -> Callable[[], None]:
        return functools.partial(
            sliced, gpu, address, size, slice_length=32 * MIB, to=to, stream=streams[stream]
        )

    rates: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(5):
        incoming, outgoing = buffers
        ((start, end),) = together(gpu, [job(0, incoming, length, 0)])
        rates["in_alone_gbps"].append(length / (end - start))
        ((start, end),) = together(gpu, [job(TO_HOST, incoming, length, 1)])
        rates["out_alone_gbps"].append(length / (end - start))
        spans = together(gpu, [job(0, incoming, length, 0), job(TO_HOST, outgoing, length, 1)])
        note_both(rates, "one_out_thread", spans[0], spans[1], length)
        incoming, outgoing = outgoing, incoming
        spans = together(
            gpu,
            [
                job(0, incoming, length, 0),
                job(TO_HOST, outgoing, half, 1),
                job(TO_HOST, outgoing + half, half, 2),
            ],
        )
        out_span = (min(s for s, _ in spans[1:]), max(e for _, e in spans[1:]))
        rates["two_out_threads_out_gbps"].append(length / (out_span[1] - out_span[0]))
        rates["two_out_threads_in_gbps"].append(length / (spans[0][1] - spans[0][0]))
    for key, samples in rates.items():
        out[key] = summary(samples[1:])


def note_both(
    rates: dict[str, list[float]],
    name: str,
    span_in: tuple[int, int],
    span_out: tuple[int, int],
    length: int,
) -> None:
    alone_in, alone_out = rates["in_alone_gbps"][-1], rates["out_alone_gbps"][-1]
    for way, share in (
        ("in", overlap_rate(span_in, span_out, length, alone_in)),
        ("out", overlap_rate(span_out, span_in, length, alone_out)),
    ):
        if share is not None:
            rates[f"{name}_delta_{way}"].append(share)


@question(
    30, "the link's ceiling: copy engine H2D/D2H and duplex, from pinned memory", managed=False
)
def ask_copy_engine(gpu: Gpu, out: Notes) -> None:
    length = 256 * MIB
    device_in, device_out = gpu.plain(length), gpu.plain(length)
    host_in, host_out = gpu.pinned(length), gpu.pinned(length)
    streams = gpu.new_stream(), gpu.new_stream()

    def h2d(size: int) -> None:
        call("cuMemcpyHtoDAsync_v2", device_in, host_in, size, streams[0])

    def d2h(size: int) -> None:
        call("cuMemcpyDtoHAsync_v2", host_out, device_out, size, streams[1])

    ways = ((h2d, streams[0]), (d2h, streams[1]))
    bracketed(*ways[0], length)  # the first copies map pages
    bracketed(*ways[1], length)
    for name, way in zip(("h2d", "d2h"), ways, strict=True):
        alone = undisturbed(bracketed(*way, length)[0] for _ in range(7))
        out[f"{name}_us"], out[f"{name}_gbps"] = rounded(alone / 1e3), gbps(length, alone)
    shares = []
    for name, way, other in (("h2d", *ways), ("d2h", *reversed(ways))):
        alone = median(bracketed(*way, SHORT_COPY, 16))
        both = [share for _ in range(3) for share in in_company(way, other, length)]
        share = rounded(min(alone / median(both), 1.0)) if both else 0.0
        out[f"{name}_share_in_company"] = share
        shares.append(share)
    if all(shares):
        out["duplex_factor"] = min(shares)


SHORT_COPY = 4 * MIB
Way = tuple[Callable[[int], None], int]  # starts a copy of that many bytes; its stream


def bracketed(
    start: Callable[[int], None], stream: int, length: int, count: int = 1
) -> list[float]:
    """Returns the GPU nanoseconds of each of `count` consecutive copies."""
    events = [handle_of("cuEventCreate", 0) for _ in range(count + 1)]
    gpu_marks(start, stream, length, events)
    call("cuStreamSynchronize", stream)
    return [elapsed_ns(a, b) for a, b in itertools.pairwise(events)]


def gpu_marks(start: Callable[[int], None], stream: int, length: int, events: list[int]) -> None:
    """Issues copies with an event before the first and after each copy."""
    call("cuEventRecord", events[0], stream)
    for event in events[1:]:
        start(length)
        call("cuEventRecord", event, stream)


def in_company(way: Way, other: Way, length: int) -> list[float]:
    """Returns the GPU nanoseconds of short copies in one direction during a long one in the other.

    Short copies are needed, because a long overlap would include how two long copies start.
    """
    begin, *events = [handle_of("cuEventCreate", 0) for _ in range(18)]
    end = events.pop()
    call("cuEventRecord", begin, other[1])
    other[0](length)
    call("cuEventRecord", end, other[1])
    gpu_marks(*way, SHORT_COPY, events)
    for stream in (way[1], other[1]):
        call("cuStreamSynchronize", stream)
    whole = elapsed_ns(begin, end)
    inside = [(a, b) for a, b in itertools.pairwise(events) if elapsed_ns(begin, b) < whole]
    return [elapsed_ns(a, b) for a, b in inside]
