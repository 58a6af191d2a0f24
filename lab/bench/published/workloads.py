"""Runs the workloads of published results on the modelled GPU.

lab/bench/data/published/README.md describes parameters and quantities. The model has its own clock,
so the same figure always gives the same digits.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from published.figures import (
    Figure,
    FigureError,
    Kind,
    Machine,
    Parsers,
    count,
    one_of,
    seconds,
    several,
    size,
)

from pump_lab.abi import ffi, lib
from pump_lab.sim.simulation import parsed

BLOCK = int(lib.GPU_BLOCK_BYTES)
MADE = "cpu", "gpu", "none"
DUPLEX_BYTES = 1 << 30
PAGE = 64 << 10

Parameters = Mapping[str, Any]
Array = tuple[int, int]
"""First block and number of blocks."""
Use = Array | tuple[int, int, int]
"""Blocks that a kernel touches; a third number counts 64 KiB pages of each block, 0 for all."""


def blocks_of(length_bytes: int) -> int:
    return -(-length_bytes // BLOCK)


class Card:
    """A modelled GPU with separate streams for `processes`. Its clock is stopped between calls."""

    def __init__(self, machine: Machine, blocks: int, memory_blocks: int, processes: int = 1):
        capacity = ffi.new(
            "struct gpu_capacity *",
            {"blocks": blocks, "streams": processes + 2, "events": 1, "operations": blocks + 64,
             "uses": blocks + 64},
        )  # fmt: skip
        size_bytes = lib.gpu_engine_bytes(capacity)
        self._state = ffi.new("uint64_t[]", size_bytes // 8 + 1)
        self._engine = lib.gpu_engine_create(
            self._state, size_bytes, capacity, parsed(machine.profile), memory_blocks * BLOCK, 0
        )
        assert self._engine != ffi.NULL
        self.streams = [
            lib.gpu_stream_create(self._engine, lib.GPU_STREAM_NONBLOCKING, 0)
            for _ in range(processes + 1)
        ]

    @property
    def now(self) -> int:
        """Returns the time in nanoseconds."""
        return int(lib.gpu_now_ns(self._engine))

    def run(self) -> int:
        """Runs all work to its end; returns the time then."""
        while (time_ns := lib.gpu_next_event_ns(self._engine)) != lib.GPU_NEVER:
            lib.gpu_advance(self._engine, time_ns, ffi.NULL)
        return self.now

    def until_idle(self, stream: int) -> int:
        """Lets time pass until the stream's work has ended; returns the time then."""
        end = ffi.new("uint64_t *")
        query = ffi.NULL, self.streams[stream], end
        while lib.gpu_stream_query(self._engine, self.now, *query) == 0:
            lib.gpu_advance(self._engine, lib.gpu_next_event_ns(self._engine), ffi.NULL)
        return self.now

    def submit(
        self,
        kind: int,
        stream: int,
        uses: Iterable[Use] = (),
        wide: Container[int] = (),
        **fields: int,
    ) -> None:
        """Adds an operation to a stream. `wide`: indices of uses that a kernel does not sweep."""
        rows = [
            (use[0], use[1], sum(use[2:]), lib.GPU_WIDE if number in wide else 0, 0)
            for number, use in enumerate(uses)
        ]
        self._submit(kind, stream, rows, **fields)

    def _submit(self, kind: int, stream: int, rows: list[Any], **fields: int) -> None:
        array = ffi.new("struct gpu_use[]", rows)
        operation = ffi.new("struct gpu_operation *", {"kind": kind, **fields})
        operation.use_count, operation.uses = len(rows), array
        stream = self.streams[stream]
        out = ffi.new("struct gpu_submitted *")
        status = lib.gpu_submit(self._engine, self.now, ffi.NULL, stream, operation, out)
        assert status == lib.GPU_OK, f"submit: {status}"

    def kernel(
        self,
        uses: Iterable[Use],
        compute_s: float = 0.0,
        stream: int = 0,
        wide: Container[int] = (),
    ) -> None:
        self.submit(lib.GPU_KERNEL, stream, uses, wide, duration_ns=round(compute_s * 1e9))

    def read(self, array: Array, row_bytes: int, rows: int, *, ascending: bool) -> None:
        """Adds a kernel that reads an array, or `rows` rows of it at random or in order."""
        access = lib.GPU_READ | (lib.GPU_SORTED if ascending else 0)
        use = {"first_block": array[0], "block_count": array[1], "access": access,
               "rows": rows, "row_bytes": row_bytes}  # fmt: skip
        self._submit(lib.GPU_KERNEL, 0, [use])

    def advise(self, array: Array, advice: int) -> None:
        """Carries out a call of cuMemAdvise."""
        cost = ffi.new("struct gpu_cost *")
        call = self._engine, self.now, ffi.NULL, *array, advice, cost
        assert lib.gpu_advise(*call) == lib.GPU_OK
        lib.gpu_advance(self._engine, cost.caller_free_ns, ffi.NULL)

    def prefetch(self, array: Array, *, to_host: bool) -> float:
        """Carries out a prefetch call; returns the seconds that the call takes."""
        call = ffi.new(
            "struct gpu_prefetch_call *",
            {"stream": self.streams[0], "first_block": array[0], "block_count": array[1],
             "to_host": to_host},
        )  # fmt: skip
        began, status = self.now, lib.GPU_MORE
        while status == lib.GPU_MORE:
            status = lib.gpu_prefetch_step(self._engine, self.now, ffi.NULL, call)
            assert status in (lib.GPU_OK, lib.GPU_MORE), f"prefetch: {status}"
            lib.gpu_advance(self._engine, call.cost.caller_free_ns, ffi.NULL)
        return (self.now - began) / 1e9

    def make(self, array: Array, made: str) -> None:
        """Creates an array with contents from the CPU or the GPU, or without contents."""
        assert lib.gpu_range_create(self._engine, self.now, ffi.NULL, *array) == lib.GPU_OK
        if made == "cpu":
            self.prefetch(array, to_host=True)
        elif made == "gpu":
            self.kernel([array])
        self.run()

    def counters(self) -> dict[str, int]:
        out = ffi.new("struct gpu_counters *")
        lib.gpu_counters_get(self._engine, out)
        return {name: getattr(out, name) for name, _ in ffi.typeof("struct gpu_counters").fields}


# ---- kernels: stream, gemm, first_touch ------------------------------------------


@dataclass(frozen=True)
class Work:
    """The work of one process in a pass: kernels with the arrays that each touches, in order.

    `compute_s`: time of all kernels of a pass if everything is resident. `wide`: indices of a
    kernel's arrays that are touched in many blocks at once, in any order.
    """

    kernels: list[list[Array]]
    made: list[str]
    compute_s: float
    wide: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        return sum(blocks for arrays in self.kernels for _, blocks in arrays)

    def moved(self, by: int) -> Work:
        """Returns the same work on separate arrays, `by` blocks further."""
        return replace(
            self, kernels=[[(first + by, n) for first, n in arrays] for arrays in self.kernels]
        )


@dataclass(frozen=True)
class Passes:
    """Seconds of each pass; counters of all passes and of the last one."""

    work: Work
    seconds: list[float]
    all: dict[str, int]
    last: dict[str, int]

    @property
    def time(self) -> float:
        """Returns the seconds of a pass: the median of passes after the first, if there are any."""
        return statistics.median(self.seconds[1:] or self.seconds)


def stream(machine: Machine, parameters: Parameters) -> Work:
    """Returns successive kernels; each sweeps its own arrays, all at the same time."""
    kernels, operands = parameters.get("kernels", 1), parameters.get("operands", 1)
    length = max(1, blocks_of(parameters["bytes"] // (kernels * operands)))
    arrays = [(at * length, length) for at in range(kernels * operands)]
    swept = parameters.get("pages", "all") == "all" and parameters.get("order") != "random"
    return Work(
        [arrays[at : at + operands] for at in range(0, len(arrays), operands)],
        parameters.get("made", ["cpu"]),
        parameters.get("compute", parameters["bytes"] / machine.gbps / 1e9),
        wide=() if swept else tuple(range(operands)),
    )


def first_touch(machine: Machine, parameters: Parameters) -> Work:
    return stream(machine, {"made": ["none"], **parameters})


def gemm(machine: Machine, parameters: Parameters) -> Work:
    """Returns the arithmetic-bound kernel of C = A B. Every part of C reads all of B."""
    n = parameters["n"]
    m, k = parameters.get("m", n), parameters.get("k", n)
    element = parameters.get("element", 4)
    lengths = [blocks_of(a * b * element) for a, b in ((m, k), (k, n), (m, n))]
    arrays = [(sum(lengths[:at]), length) for at, length in enumerate(lengths)]
    return Work(
        [arrays],
        parameters.get("made", ["cpu", "cpu", "none"]),
        parameters.get("compute", 2 * m * n * k / machine.tflops / 1e12),
        wide=(1,),
    )


def carry_out(machine: Machine, work: Work, parameters: Parameters, *, fits: bool) -> Passes:
    """Runs the passes of all processes. `fits`: on a GPU with memory for everything."""
    processes = parameters.get("processes", 1)
    works = [work.moved(by) for by in range(0, processes * work.blocks, work.blocks)]
    blocks = processes * work.blocks
    memory = blocks + 1
    if machine.memory_bytes and not fits:
        memory = max(1, machine.memory_bytes // BLOCK)
    card = Card(machine, blocks, memory, processes)
    for one in works:
        arrays = [array for kernel in one.kernels for array in kernel]
        for at, array in enumerate(arrays):
            card.make(array, one.made[at % len(one.made)])
            if parameters.get("resident") == "yes":
                card.prefetch(array, to_host=False)
    card.run()
    backwards = parameters.get("order") == "reversed"
    times, counted = [], [card.counters()]
    for number in range(parameters.get("passes", 1)):
        began = card.now
        for turn in range(len(work.kernels)):
            at = len(work.kernels) - 1 - turn if backwards and number % 2 else turn
            for process, one in enumerate(works):
                card.kernel(one.kernels[at], work.compute_s / len(work.kernels), process, work.wide)
        times.append((card.run() - began) / 1e9)
        counted.append(card.counters())
    return Passes(work, times, _less(counted[-1], counted[0]), _less(counted[-1], counted[-2]))


def _less(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {key: after[key] - before[key] for key in after}


def _brought_blocks(counters: dict[str, int]) -> float:
    return (counters["h2d_demand_bytes"] + counters["populated_bytes"]) / BLOCK


PASSES: dict[str, tuple[str, Callable[[Passes], float]]] = {
    "time": ("time", lambda run: run.time),
    "rate": ("rate", lambda run: run.work.blocks * BLOCK / run.time),
    "fault_time": ("time", lambda run: run.last["stall_fault_ns"] / 1e9),
    "groups": ("number", lambda run: run.all["fault_groups"] / _brought_blocks(run.all)),
    "batches": ("number", lambda run: run.all["fault_batches"]),
    "copy_share": ("number", lambda run: run.all["h2d_busy_ns"] / run.all["stall_fault_ns"]),
    "bytes_in": ("bytes", lambda run: run.last["h2d_demand_bytes"]),
    "bytes_out": ("bytes", lambda run: run.last["d2h_evict_bytes"]),
    "all_bytes_in": ("bytes", lambda run: run.all["h2d_demand_bytes"]),
    "all_bytes_out": ("bytes", lambda run: run.all["d2h_evict_bytes"]),
    "slowdown": ("number", lambda run: run.time / run.work.compute_s),
}
AGAINST_FITTING: dict[str, Callable[[Passes, Passes], float]] = {
    "over_fitting": lambda run, fits: run.time / fits.time,
    "eviction_adds": lambda run, fits: run.time / fits.seconds[0] - 1,
}


def passes(machine: Machine, figure: Figure) -> float:
    quantity, parameters = figure.columns["quantity"], figure.parameters
    works = {"stream": stream, "first_touch": first_touch, "gemm": gemm}
    work = works[figure.columns["kind"]](machine, parameters)
    run = carry_out(machine, work, parameters, fits=False)
    if quantity in PASSES:
        return PASSES[quantity][1](run)
    return AGAINST_FITTING[quantity](run, carry_out(machine, work, parameters, fits=True))


# ---- prefetches, batches, copies ---------------------------------------------------


def prefetch(machine: Machine, figure: Figure) -> float:
    """Measures one call; a "sequence" includes the prefetch in and the kernel before it."""
    parameters = figure.parameters
    array = (0, blocks_of(parameters["bytes"]))
    to_host = figure.columns["kind"] == "prefetch_out"
    card = Card(machine, array[1], array[1] + 1)
    card.make(array, parameters.get("made", "gpu" if to_host else "cpu"))
    before, began = card.counters(), card.now
    if to_host and parameters.get("made") == "cpu":
        card.prefetch(array, to_host=False)
        card.kernel([array], parameters.get("compute", 0.0))
        card.run()
        before = card.counters()
    started = card.now
    call_s = card.prefetch(array, to_host=to_host)
    ended, counters = card.run(), _less(card.counters(), before)
    copied = counters["d2h_prefetch_bytes" if to_host else "h2d_prefetch_bytes"]
    busy_s = counters["d2h_busy_ns" if to_host else "h2d_busy_ns"] / 1e9
    found = {
        "call": lambda: call_s,
        "time": lambda: (ended - started) / 1e9,
        "copy_rate": lambda: copied / busy_s,
        "rate": lambda: copied / ((ended - started) / 1e9),
        "sequence": lambda: (ended - began) / 1e9,
    }
    return found[figure.columns["quantity"]]()


def batch_s(machine: Machine, parameters: Parameters, blocks: int, evictions: int) -> float:
    """Returns the seconds of one fault batch that brings the figure's bytes from this many blocks.
    Evicted blocks have been on the host before."""
    visited = parameters.get("visited") == "yes"
    card = Card(machine, 2 * blocks, blocks + (0 if visited else blocks - evictions))
    card.make((0, blocks), "cpu")
    card.make((blocks, blocks), "cpu")
    card.prefetch((blocks, blocks), to_host=False)
    card.run()
    pages = max(1, round(parameters["bytes"] / blocks / PAGE))
    # A use for each block: the kernel has a single step, so all blocks fault in one batch.
    if visited:
        card.kernel([(block, 1, 1) for block in range(blocks)])
        card.run()
    before = card.counters()
    card.kernel([(block, 1, pages + visited) for block in range(blocks)])
    card.run()
    return _less(card.counters(), before)["stall_fault_ns"] / 1e9


def batch(machine: Machine, figure: Figure) -> float:
    parameters, quantity = figure.parameters, figure.columns["quantity"]
    evictions = parameters.get("evictions", 0)
    blocks = parameters.get("blocks", blocks_of(parameters["bytes"]))
    base = parameters.get("base_blocks", 1)
    if evictions > blocks or base > blocks:
        raise FigureError(f"row {figure.id}: parameters: blocks: too few; at least base_blocks and "
                          "evictions")  # fmt: skip
    whole = batch_s(machine, parameters, blocks, evictions)
    if quantity == "per_eviction":
        return (whole - batch_s(machine, parameters, blocks, 0)) / evictions
    if quantity == "per_block":
        return (whole - batch_s(machine, parameters, base, evictions)) / (blocks - base)
    return whole


def duplex(machine: Machine, figure: Figure) -> float:
    """Measures a copy in one direction, while the other direction is idle or busy throughout."""
    direction, _, what = figure.columns["quantity"].partition("_")
    kinds = {"in": lib.GPU_COPY_H2D, "out": lib.GPU_COPY_D2H}
    timed, other = kinds.pop(direction), *kinds.values()
    length = figure.parameters.get("bytes", DUPLEX_BYTES)

    def copy_s(*, beside: bool) -> float:
        card = Card(machine, 1, 2, 2)
        if beside:
            card.submit(other, 0, length_bytes=4 * length)
        card.submit(timed, 1, length_bytes=length)
        return card.until_idle(1) / 1e9

    alone_s = copy_s(beside=False)
    return length / alone_s if what == "alone" else alone_s / copy_s(beside=True)


def remote(machine: Machine, figure: Figure) -> float:
    """Measures a kernel that reads an array, or rows of it, in place on the host."""
    parameters = figure.parameters
    array = (0, blocks_of(parameters["bytes"]))
    card = Card(machine, array[1], array[1])
    card.make(array, "cpu")
    card.advise(array, lib.GPU_ADVICE_ACCESSED_BY)
    began = card.run()
    row_bytes, rows = parameters.get("row", 0), parameters.get("rows", 0)
    card.read(array, row_bytes, rows, ascending=parameters.get("order") == "sorted")
    return float((row_bytes * rows or array[1] * BLOCK) / ((card.run() - began) / 1e9))


# ---- the kinds ----------------------------------------------------------------------

_ANY: Parsers = {"memory": size}
_PASSES: Parsers = {
    **_ANY,
    "passes": count(1000),
    "compute": seconds,
    "processes": count(16),
    "made": several(*MADE),
    "resident": one_of("yes", "no"),
}
_SWEEPS: Parsers = {
    **_PASSES,
    "bytes": size,
    "kernels": count(1000),
    "operands": count(64),
    "order": one_of("forward", "reversed", "random"),
    "pages": one_of("all", "strided", "random"),
}
_PREFETCH: Parsers = {**_ANY, "bytes": size, "made": one_of(*MADE)}
_OF_PASSES = {name: what for name, (what, _) in PASSES.items()} | dict.fromkeys(
    AGAINST_FITTING, "number"
)
_OF_PREFETCH = {"call": "time", "time": "time", "copy_rate": "rate", "rate": "rate"}

KINDS: dict[str, Kind] = {
    "stream": Kind(_SWEEPS, ("bytes",), _OF_PASSES),
    "first_touch": Kind(_SWEEPS, ("bytes",), _OF_PASSES),
    "gemm": Kind(
        {**_PASSES, **dict.fromkeys(("n", "m", "k"), count(1 << 20)), "element": count(16)},
        ("n",),
        _OF_PASSES,
    ),
    "prefetch_in": Kind(_PREFETCH, ("bytes",), _OF_PREFETCH),
    "prefetch_out": Kind(
        {**_PREFETCH, "compute": seconds}, ("bytes",), {**_OF_PREFETCH, "sequence": "time"}
    ),
    "batch": Kind(
        {
            **_ANY,
            "bytes": size,
            **dict.fromkeys(("blocks", "base_blocks", "evictions"), count(256)),
            "visited": one_of("yes", "no"),
        },
        ("bytes",),
        {"time": "time", "per_eviction": "time", "per_block": "time"},
    ),
    "duplex": Kind(
        {**_ANY, "bytes": size},
        (),
        {"in_alone": "rate", "out_alone": "rate", "in_share": "number", "out_share": "number"},
    ),
    "remote": Kind(
        {
            **_ANY,
            "bytes": size,
            **dict.fromkeys(("row", "rows"), count(1 << 28)),
            "order": one_of("sorted", "random"),
        },
        ("bytes",),
        {"rate": "rate"},
    ),
}


def measure(machine: Machine, figure: Figure) -> float:
    """Returns the model's value of a figure, in the figure's dimension."""
    own = {"prefetch_in": prefetch, "prefetch_out": prefetch, "batch": batch, "duplex": duplex,
           "remote": remote}  # fmt: skip
    try:
        return own.get(figure.columns["kind"], passes)(machine, figure)
    except ZeroDivisionError:
        raise FigureError(
            f"row {figure.id}: quantity: nothing is moved that {figure.columns['quantity']} could "
            "be of; change parameters or quantity"
        ) from None
