"""The rows of a recording: one type for each kind.

Times are CLOCK_MONOTONIC of the recorded machine in ns; the header gives the wall clock time of one
of them.
"""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """A part of a range that an operation is believed to reach.

    `access`: 0 a kernel's pointer, 1 read, 2 write, 3 overwritten completely. `argument`: for
    access 0, offset of the pointer in the kernel's parameters (bytes).
    """

    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int
    access: int
    argument: int


class Operation(NamedTuple):
    """A kernel, copy or memset, or a hint (the program's own prefetch, discard or advice).

    `kind`: KERNEL, COPY, MEMSET or HINT of format.py. `function`, `signature`: 0 except for
    kernels. `seq`: of a hint, the number of the newest operation before it. `dropped`: number of
    operands that did not fit into the event.
    """

    kind: int
    seq: int
    time_ns: int
    stream: int
    device: int
    function: int
    signature: int
    extents: tuple[Extent, ...]
    dropped: int = 0


class RangeRow(NamedTuple):
    """An allocation (ALLOC), a free (FREE), or a live range read from the table (RANGE).

    `range_kind`: 1 converted, 2 managed, 0 unknown. `alloc_seq`: only of RANGE, number of the next
    operation when it was allocated.
    """

    kind: int
    time_ns: int
    slot: int
    generation: int
    base: int
    length_bytes: int
    device: int
    range_kind: int
    alloc_seq: int


class Sync(NamedTuple):
    """A call that waited. seq: the newest operation when the call began."""

    seq: int
    stream: int
    begin_ns: int
    end_ns: int


class Progress(NamedTuple):
    """A marker has executed: all operations of `stream` up to `seq` had executed by `time_ns`.

    `before_ns`: last poll that had not seen it; 0: there was none, or it is not known.
    """

    stream: int
    seq: int
    time_ns: int
    before_ns: int = 0


class Timed(NamedTuple):
    """Operation `seq` of `stream`, or the graph that it ends, took `elapsed_ns` on the GPU, waits
    for memory included. time_ns: when the time was read."""

    seq: int
    stream: int
    time_ns: int
    elapsed_ns: int


class Name(NamedTuple):
    """From here on, `function` is the handle of the kernel `name`."""

    function: int
    name: str


class Params(NamedTuple):
    """The common properties of launches with one signature; recorded before the first launch.

    `data`: the parameter buffer of one such launch, possibly cut. `parameter_bytes`: its full size.
    """

    function: int
    signature: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameter_bytes: int
    data: bytes


class Device(NamedTuple):
    """A device as the client knew it at `time_ns`; recorded again when it changes."""

    time_ns: int
    device: int
    uuid: bytes
    total_bytes: int
    free_at_start_bytes: int
    budget_bytes: int
    plain_bytes: int
    state: int
    emulated: int


class Lost(NamedTuple):
    """`events` events are missing here. reason: LOST_* of format.py."""

    time_ns: int
    reason: int
    events: int


class Resync(NamedTuple):
    """The next `ranges` RANGE rows are all live ranges."""

    time_ns: int
    seq: int
    ranges: int


class Policy(NamedTuple):
    """From here on, the worker uses this policy."""

    time_ns: int
    policy: str


class Graph(NamedTuple):
    """The launch of a graph: its nodes are `operations` operations, numbered from `seq`."""

    seq: int
    executable: int
    operations: int


class Sample(NamedTuple):
    """The worker's model of a device at `time_ns`.

    Bytes by place are as in pump.wire.control.DeviceState. `blocks_*`: block uses of executed
    operations since the worker began. The last three are the whole client's: bytes that executors
    requested from the driver since it began, and operations issued but not executed.
    """

    time_ns: int
    device: int
    allocated_bytes: int
    resident_bytes: int
    maybe_evicted_bytes: int
    arriving_bytes: int
    leaving_bytes: int
    host_bytes: int
    blocks_used: int
    blocks_hit: int
    blocks_late: int
    blocks_unseen: int
    blocks_no_room: int
    moved_to_gpu_bytes: int
    moved_to_host_bytes: int
    window_depth: int


class Transfer(NamedTuple):
    """A slice of a schedule ended at `time_ns`; the times in us are its delays before that.

    `direction`, `result`: PUMP_TO_*, PUMP_RESULT_*; 0, 0: moved to the GPU. `offset_bytes`: from
    the range's base. `waited_us`: from when it was allowed and an executor was free, until it was
    taken. `called_us`: until the driver's call or the refusal. `driver_us`: in the call. `link_us`:
    until its completion was seen. `seen_us`: until the worker had read that. `kept`: bit i: block i
    arrived as a duplicate, or left without a copy.
    """

    time_ns: int
    device: int
    direction: int
    result: int
    slot: int
    generation: int
    offset_bytes: int
    length_bytes: int
    waited_us: int
    called_us: int
    driver_us: int
    link_us: int
    seen_us: int
    kept: int


class Read(NamedTuple):
    """The worker read events at `time_ns`; the oldest had waited for `waited_us`."""

    time_ns: int
    waited_us: int


class Threads(NamedTuple):
    """Times of a group of threads (THREADS_* of format.py) up to `time_ns`: running on a CPU core,
    and runnable without one."""

    time_ns: int
    group: int
    ran_ns: int
    delay_ns: int


Record = (
    Operation
    | RangeRow
    | Sync
    | Progress
    | Timed
    | Name
    | Params
    | Device
    | Lost
    | Resync
    | Policy
    | Graph
    | Sample
    | Transfer
    | Read
    | Threads
)
