"""Finds where the time of a run on the virtual GPU goes, and why its blocks moved.

DESIGN
  The input is the virtual GPU's events (gpu_events.py). With a recording of the same run, the input
  includes the blocks that pump expected each launch to touch (touched.py). The results:

    `seconds`   The time from the first start to the last end of a kernel, in five parts. Kernels
                compute, wait for faults, or wait for pages in flight. If none runs, the next one
                is held (by a gate, an event or a copy) or has not been issued.
    `faults`    Each block that a kernel faults on has one cause, and a part of the wait. The wait
                for a fault batch is divided evenly among the batch's blocks.
    `moved`     Bytes to the GPU, by fate: prefetched (used or not), or faulted.

  The cause of a fault is the first that applies:

    `first touch`      The block had no contents and had never left: nothing could be prefetched.
    `unknown`          Pump did not expect the kernel to touch the block (needs the recording).
    `evicted`          The driver had evicted the block on its own.
    `issued late`      The kernel began within ISSUED_LATE_NS of its issue, too soon for a prefetch.
    `link is busy`     The link to the GPU was busy with a prefetch.
    `waits for room`   The link was idle, and an eviction that pump had requested was in flight.
    `not asked`        Neither: pump had not requested the block, or its threads were late.

  Kernels that overlap on several streams count twice; the parts then exceed the time. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpu_events import BLOCK_BYTES, OUT, End, Event, Launch, Move, Stall, Start
from touched import Launches

ISSUED_LATE_NS = 200_000
"""About the time from the issue to the arrival of a block that pump prefetches immediately."""
PARTS = ("kernels", "faults", "arrivals", "held", "idle")
CAUSES = ("first touch", "unknown", "evicted", "issued late", "link is busy", "waits for room",
          "not asked")  # fmt: skip
COUNTERS = ("fault_pages", "h2d_demand_bytes", "h2d_prefetch_bytes", "d2h_evict_bytes",
            "d2h_prefetch_bytes")  # fmt: skip
FATES = ("prefetched, used", "prefetched, not used", "faulted", "there already")


@dataclass
class Path:
    """The sums of one run. `seconds`: by PARTS. `blocks`, `waits`: faulted blocks and seconds of
    waits, by CAUSES. `moved`: bytes by FATES; "there already" counts prefetched blocks that were
    on the GPU, so nothing moved. `evicted_bytes`: copied bytes of departures (OUT)."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    blocks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    moved: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FATES, 0))
    evicted_bytes: float = 0
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    """Counters of the GPU (lab/gpu/gpu_engine.h); follow() leaves them 0."""

    @property
    def total(self) -> float:
        """Returns the seconds of all parts."""
        return sum(self.seconds.values())

    def less(self, other: Path) -> Path:
        """Returns the difference of all sums: this run's minus the other's."""

        def without(mine: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
            return {key: value - others[key] for key, value in mine.items()}

        return Path(
            without(self.seconds, other.seconds),
            without(self.blocks, other.blocks),
            without(self.waits, other.waits),
            without(self.moved, other.moved),
            self.evicted_bytes - other.evicted_bytes,
            without(self.counters, other.counters),
        )


def follow(events: Iterable[Event], expected: Launches | None = None) -> Path:
    """Returns the sums of a run. `expected`: the result of touched.read_extents().

    Raises ValueError if no kernel in the log has ended, or if the log is not of the recorded run.
    """
    events = list(events)
    launches = {event.ticket: event for event in events if isinstance(event, Launch)}
    follower = _Follower(launches, _unexpected(launches, expected))
    for event in events:
        match event:
            case Start():
                follower.start(event)
            case End():
                follower.end(event)
            case Stall():
                follower.stall(event)
            case Move():
                follower.move(event)
    return follower.path()


def _unexpected(
    launches: Mapping[int, Launch], expected: Launches | None
) -> dict[int, frozenset[int]]:
    """Returns the blocks that each launch touches and pump did not expect, by ticket."""
    if expected is None:
        return {}
    count: dict[str, int] = defaultdict(int)
    found = {}
    for ticket, launch in sorted(launches.items(), key=lambda item: item[1].issued_ns):
        number = count[launch.kernel]
        count[launch.kernel] += 1
        told = expected.get(launch.kernel, [])
        if number >= len(told):
            raise ValueError(f"{launch.kernel}: more launches than the {len(told)} recorded ones")
        found[ticket] = launch.blocks - told[number]
    return found


class _Follower:
    """Processes the events in order."""

    def __init__(
        self, launches: Mapping[int, Launch], unexpected: Mapping[int, frozenset[int]]
    ) -> None:
        self._launches = launches
        self._unexpected = unexpected
        self._path = Path()
        self._began: dict[int, int] = {}
        """Start times of running kernels, by ticket."""
        self._first_ns: int | None = None
        self._last_ns = 0
        self._batch: list[Move] = []
        """Faults since the last stall for faults."""
        self._causes: dict[tuple[int, int], str] = {}
        """Causes of the faults of running kernels, by ticket and block."""
        self._left: dict[int, str] = {}
        """How each block last left the GPU."""
        self._unused: dict[int, int] = {}
        """Prefetched bytes that no kernel has touched yet, by block."""
        self._in_until_ns = self._out_until_ns = 0
        """Latest expected end of prefetches to the GPU, and of evictions that pump requested."""

    def start(self, event: Start) -> None:
        launch = self._launches.get(event.ticket)
        if launch is None:
            return
        if self._first_ns is None:
            self._first_ns = event.time_ns
        elif not self._began:
            held_ns = event.time_ns - max(launch.issued_ns, self._last_ns)
            self._path.seconds["held"] += max(0, held_ns) / 1e9
        self._began[event.ticket] = event.time_ns
        for block in launch.blocks:
            self._use(block)

    def end(self, event: End) -> None:
        began_ns = self._began.pop(event.ticket, None)
        if began_ns is None:
            return
        self._last_ns = event.time_ns
        self._path.seconds["kernels"] += (event.time_ns - began_ns) / 1e9
        for block in self._launches[event.ticket].blocks:
            self._causes.pop((event.ticket, block), None)
            self._use(block)

    def stall(self, event: Stall) -> None:
        batch, self._batch = (self._batch, []) if event.fault else ([], self._batch)
        if event.ticket not in self._began:
            return
        waited = (event.until_ns - event.from_ns) / 1e9
        self._path.seconds["kernels"] -= waited
        self._path.seconds["faults" if event.fault else "arrivals"] += waited
        for move in batch:
            key = event.ticket, move.block
            if key not in self._causes:
                self._causes[key] = self._cause(event.ticket, move)
                self._path.blocks[self._causes[key]] += 1
            self._path.waits[self._causes[key]] += waited / len(batch)

    def move(self, event: Move) -> None:
        if event.how in OUT:
            self._left[event.block] = event.how
            self._path.evicted_bytes += event.length_bytes
            self._path.moved["prefetched, not used"] += self._unused.pop(event.block, 0)
        if event.how == "out":
            self._out_until_ns = max(self._out_until_ns, event.ready_ns)
        if event.how in ("fault", "first"):
            self._batch.append(event)
        if event.how == "fault":
            self._path.moved["faulted"] += event.length_bytes
        if event.how == "none":
            self._path.moved["there already"] += BLOCK_BYTES
        if event.how == "prefetch":
            self._in_until_ns = max(self._in_until_ns, event.ready_ns)
            self._unused[event.block] = self._unused.get(event.block, 0) + event.length_bytes
            if any(event.block in self._launches[ticket].blocks for ticket in self._began):
                self._use(event.block)

    def path(self) -> Path:
        """Returns the sums; call once, at the end."""
        if self._first_ns is None or self._last_ns == 0:
            raise ValueError("no kernel ran to its end")
        self._path.moved["prefetched, not used"] += sum(self._unused.values())
        busy = sum(self._path.seconds.values())
        self._path.seconds["idle"] = max(0.0, (self._last_ns - self._first_ns) / 1e9 - busy)
        return self._path

    def _use(self, block: int) -> None:
        self._path.moved["prefetched, used"] += self._unused.pop(block, 0)

    def _cause(self, ticket: int, move: Move) -> str:
        launch = self._launches[ticket]
        if move.how == "first" and move.block not in self._left:
            return "first touch"
        if move.block in self._unexpected.get(ticket, ()):
            return "unknown"
        if self._left.get(move.block) == "evict":
            return "evicted"
        if self._began[ticket] - launch.issued_ns < ISSUED_LATE_NS:
            return "issued late"
        if self._in_until_ns > move.time_ns:
            return "link is busy"
        return "waits for room" if self._out_until_ns > move.time_ns else "not asked"
