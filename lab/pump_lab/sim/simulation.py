"""Runs a program under a policy on the modelled GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pump.model.bounds import BLOCK_BYTES, RESERVE_PERCENT, without_reserve
from pump.model.client import ClientModel, DeviceFacts
from pump.policy.base import Policy
from pump_lab.abi import ffi, lib
from pump_lab.profiles import Profile
from pump_lab.sim.deciding import Deciding, decide
from pump_lab.sim.host import Host
from pump_lab.sim.program import Program, ProgramError
from pump_lab.sim.wakeups import Delays, WakeUps

MEMORY_MOST_BYTES: Final = 64 << 40

RESULTS: Final = ("moved", "stale", "late", "dead", "invalid", "failed")


TRANSFER: Final = np.dtype(
    [
        ("needed_by_seq", np.uint64),
        *((name, np.uint32) for name in ("first_block", "blocks", "direction", "issued", "run")),
        ("reserved", np.uint32),
    ]
)
"""`struct pump_sim_transfer`."""


class SimulationError(RuntimeError):
    """The simulator reached a state that is a bug of its own."""


@dataclass(frozen=True)
class Daemon:
    """How fast pump's own parts are, in microseconds, from `scripts/bench latency` and `policy`.

    `wake_us`: A wake-up of the worker. `tick_us`: A tick. `row_us`: Additional time for each
    operation in a tick. `mover_wake_us`: A wake-up of an executor. `marker_poll_us`: The interval
    between two polls of markers. `wake_ups`: Wake-ups are drawn from these instead; the same seed
    gives the same delays.
    """

    wake_us: float = 25.0
    tick_us: float = 30.0
    row_us: float = 4.0
    mover_wake_us: float = 20.0
    marker_poll_us: float = 60.0
    wake_ups: WakeUps | None = None
    seed: int = 0
    stop_every_ms: float = 0.0
    stop_ms: float = 0.0
    """The worker is stopped for stop_ms at the end of each stop_every_ms; 0: never."""


@dataclass(frozen=True)
class Queues:
    """Which streams share the GPU's hardware queues (docs/uvm.md).

    `connections`: Queues of each priority. `to_gpu`, `to_host`: Streams of each executor thread, by
    direction; at most 32. `priority`: The priority of these streams, from 0 (as the program's) to
    5. The defaults are those in pump-run and the shim (docs/decisions/0038-lanes.md).
    """

    connections: int = 32
    to_gpu: int = 8
    to_host: int = 1
    priority: int = 4


@dataclass(frozen=True)
class Locks:
    """Locks that the driver holds while memory migrates (docs/uvm.md).

    `context`: Launches wait for the call of a prefetch to the host. `space`: Mapping memory waits
    for migrations and faults in flight, and later ones wait for the mapping. `map_every_us`,
    `map_us`: How often another thread of the program maps memory, and how long that takes.
    """

    context: bool = False
    space: bool = False
    map_every_us: float = 0.0
    map_us: float = 10.0


@dataclass(frozen=True)
class Foresight:
    """Operations that a policy knows before the program issues them.

    `operations`: The number of steps. `from_step`: The foresight begins at this step of the
    program. `run`: Counts from the last executed operation instead of the last issued one.
    `expects`: They are known as predicted operations, not as issued ones.
    """

    operations: int = 0
    from_step: int = 0
    run: bool = False
    expects: bool = False


@dataclass(frozen=True)
class Jitter:
    """Varies the time of each operation and each transfer by a factor from 1 - share to 1 + share.

    `share`: in [0, 1). The same seed gives the same times.
    """

    share: float
    seed: int = 0

    def of(self, program: Program) -> Program:
        """Returns the program with random times of its operations."""
        factors = np.random.default_rng(self.seed).uniform(
            1 - self.share, 1 + self.share, len(program.steps)
        )
        steps = program.steps.copy()
        steps["duration_ns"] = np.rint(steps["duration_ns"] * factors)
        return replace(program, steps=steps)


@dataclass(frozen=True)
class Machine:
    """The GPU and the program's host.

    `queue_operations`: Launches that may wait. `host`: None: as much memory as the program needs.
    `jitter`: None: times do not vary. `reserve_percent`: The share of the memory that pump leaves
    free. `taken_bytes`: Memory that other programs use without pump's knowledge. `transfers_most`:
    How many transfers are kept for Outcome.transfers.
    """

    profile: Profile
    memory_bytes: int
    queue_operations: int = 1024
    daemon: Daemon = field(default_factory=Daemon)
    queues: Queues = field(default_factory=Queues)
    locks: Locks = field(default_factory=Locks)
    host: Host | None = None
    jitter: Jitter | None = None
    reserve_percent: float = RESERVE_PERCENT
    taken_bytes: int = 0
    transfers_most: int = 0
    duplicates: bool = False
    """Duplicates blocks on trial: a block that was not written is evicted without a copy
    (lab/simulate/sim_duplicates.c)."""


@dataclass(frozen=True)
class Stretch:
    """The events between two marks, or in the whole run."""

    seconds: float
    counters: Mapping[str, int]

    @property
    def h2d_bytes(self) -> int:
        """Returns the bytes to the GPU: faults, prefetches, copies, remote reads of the host."""
        names = ("demand", "prefetch", "copy", "remote")
        return sum(self.counters[f"h2d_{name}_bytes"] for name in names)

    @property
    def d2h_bytes(self) -> int:
        """Returns the bytes to the host: the driver's evictions, prefetches, copies, remote
        writes."""
        names = ("evict", "prefetch", "ahead", "copy", "remote", "pull")
        return sum(self.counters[f"d2h_{name}_bytes"] for name in names)


@dataclass(frozen=True)
class Predicted:
    """Numbers of the learner (docs/learner.md). `operations`: Operations that were predicted with
    the blocks that they used. `lost`: How often all predictions were dropped. `confidence`: The
    learner's confidence at the end."""

    operations: int
    lost: int
    confidence: float


@dataclass(frozen=True)
class Outcome:
    """The numbers of a run. `whole`: The whole run. `stretches`: The stretches between marks, one
    for each iteration of a replay."""

    policy: str
    whole: Stretch
    stretches: list[Stretch]
    syncs_seconds: list[float]
    operations: int
    ticks: int
    queue_wait_seconds: float
    sync_wait_seconds: float
    lock_wait_seconds: float
    map_wait_seconds: float
    refused: dict[str, int]
    mover_seconds: tuple[float, float]
    tally: dict[str, int]
    believed_resident_blocks: int
    """In the worker's model at the end; 0 without pump."""
    predicted: Predicted | None
    """None: the policy did not learn."""
    scheduled_bytes: int
    """Bytes that entries of schedules moved, in both directions."""
    schedules_dropped: int
    """Schedules in force when the program issued another operation than predicted."""
    schedules: int
    """Schedules that the worker put in force."""
    advice_calls: int
    trials: tuple[int, int]
    """Duplicated blocks that were evicted, and the number of written ones among them."""
    transfers: NDArray[np.void] = field(compare=False)
    """Slices that executors moved, of dtype TRANSFER, in order of their start."""

    @property
    def steady(self) -> Stretch:
        """Returns the last iteration of a replay, or the whole run."""
        return self.stretches[-1] if self.stretches else self.whole


def run(
    program: Program,
    machine: Machine,
    policy: Policy | None = None,
    *,
    budget_bytes: int | None = None,
    foresight: Foresight | None = None,
) -> Outcome:
    """Simulates. `policy`: None: only the driver's paging, without pump.

    `budget_bytes`: pump's budget; None: its default on such a GPU. Raises ProgramError for a
    program that the GPU's model refuses, SimulationError for a bug of the simulator.
    """
    memory_bytes = machine.memory_bytes // BLOCK_BYTES * BLOCK_BYTES
    if 0 < memory_bytes <= machine.taken_bytes:
        raise ProgramError("other programs leave less than one block of the GPU's memory")
    if not 0 < memory_bytes <= MEMORY_MOST_BYTES:
        raise ProgramError(
            f"a GPU of {machine.memory_bytes:,} bytes cannot be simulated; it needs one block of "
            f"2 MiB at least and {MEMORY_MOST_BYTES >> 40} TiB at most"
        )
    if machine.host is not None:
        machine.host.check(program)
    most = without_reserve(memory_bytes, machine.reserve_percent)
    budget = most if budget_bytes is None else min(budget_bytes, most)
    facts = DeviceFacts(budget // BLOCK_BYTES, memory_bytes // BLOCK_BYTES, budget < most, True)
    simulation = _Simulation(program, machine, policy, facts, foresight or Foresight())
    try:
        simulation.go()
        return simulation.outcome()
    finally:
        simulation.close()


class _Simulation:
    def __init__(
        self,
        program: Program,
        machine: Machine,
        policy: Policy | None,
        facts: DeviceFacts,
        foresight: Foresight,
    ) -> None:
        if machine.jitter is not None:
            program = machine.jitter.of(program)
        self.program, self.policy = program, policy
        self.transfers_most = machine.transfers_most
        self.model: ClientModel | None = None
        self.learns = False
        if policy is not None:
            self.model = ClientModel(max(1 << 10, program.blocks))
            self.model.set_device(0, facts)
            self.learns = policy.predicts and not (foresight.expects and foresight.operations)
            if self.learns:
                self.model.learn(True)
            self.model.schedule(policy.prefetches)
            self.model.duplicate(machine.duplicates)
        raw_program = self._raw_program()
        settings = _settings(machine, facts, foresight)
        settings.decides = isinstance(policy, Deciding)
        if policy is None or settings.decides or not policy.prefetches:
            settings.flash_ahead = False
        raw_model = ffi.NULL if self.model is None else self.model.raw
        self.raw = lib.pump_sim_new(raw_program, settings, parsed(machine.profile), raw_model)
        if self.raw == ffi.NULL:
            raise ProgramError(f"{program.name}: the simulator cannot hold such a program")

    def close(self) -> None:
        lib.pump_sim_delete(self.raw)
        self.raw = ffi.NULL

    def _raw_program(self) -> Any:
        program = self.program
        raw = ffi.new("struct pump_sim_program *")
        tables = {}
        for name, what in (("steps", "step"), ("uses", "use"), ("ranges", "range")):
            table = np.ascontiguousarray(getattr(program, name))
            tables[name] = ffi.cast(f"struct pump_sim_{what} *", ffi.from_buffer(table))
            setattr(self, f"_{name}", table)
            setattr(raw, name, tables[name])
            setattr(raw, f"{what}_count", len(table))
        raw.blocks, raw.streams = program.blocks, program.streams
        raw.uses_most = program.uses_most
        return raw

    def go(self) -> None:
        sim, model, policy = self.raw, self.model, self.policy
        step = lib.pump_sim_run
        at = getattr(policy, "at", None)  # policies of studies take the program's position
        word = step(sim)
        if model is not None and isinstance(policy, Deciding):
            while word == lib.PUMP_SIM_DECIDE:
                if at is not None:
                    at(lib.pump_sim_step_now(sim), lib.pump_sim_step_run(sim), model)
                for block in getattr(policy, "past_host", ()):
                    lib.pump_sim_leaves_for_flash(sim, block)
                decide(policy, model, sim)
                word = step(sim)
        if word == lib.PUMP_SIM_REFUSED:
            failed = self.result().failed_step
            raise ProgramError(f"{self.program.name}: step {failed} is invalid for the GPU")
        if word != lib.PUMP_SIM_DONE:
            now = lib.pump_sim_step_now(sim)
            raise SimulationError(f"{self.program.name}: no event is left at step {now}")

    def result(self) -> Any:
        found = ffi.new("struct pump_sim_result *")
        lib.pump_sim_result(self.raw, found)
        return found

    def outcome(self) -> Outcome:
        result, marks = self.result(), self._marks()
        stretches = [_between(*pair) for pair in pairwise(marks)]
        count = lib.pump_sim_syncs(self.raw, ffi.NULL, 0)
        times = np.zeros(max(count, 1), np.uint64)
        lib.pump_sim_syncs(self.raw, ffi.from_buffer("uint64_t[]", times), count)
        tally = {}
        if self.model is not None:
            raw = self.model.tally(0)
            names = ("blocks", "hit", "late", "unseen", "no_room")
            tally = {name: int(getattr(raw, name)) for name in names}
        return Outcome(
            policy="none" if self.policy is None else self.policy.name,
            whole=_between(_nothing(), marks[-1]),
            stretches=stretches,
            syncs_seconds=[int(time) / 1e9 for time in times[:count]],
            operations=result.operations,
            ticks=result.ticks,
            queue_wait_seconds=result.queue_wait_ns / 1e9,
            sync_wait_seconds=result.sync_wait_ns / 1e9,
            lock_wait_seconds=result.lock_wait_ns / 1e9,
            map_wait_seconds=result.map_wait_ns / 1e9,
            refused={name: result.refused[i] for i, name in enumerate(RESULTS) if i},
            mover_seconds=(result.mover_ns[0] / 1e9, result.mover_ns[1] / 1e9),
            tally=tally,
            believed_resident_blocks=0 if self.model is None else self.model.occupied(0),
            predicted=self._predicted(),
            scheduled_bytes=result.scheduled_bytes,
            schedules_dropped=result.schedules_dropped,
            schedules=result.schedules,
            advice_calls=result.advice_calls,
            trials=(result.trials, result.trials_wrong),
            transfers=self._transfers(),
        )

    def _transfers(self) -> NDArray[np.void]:
        count = ffi.new("uint64_t *")
        first = lib.pump_sim_transfers(self.raw, count)
        kept = min(count[0], self.transfers_most) * TRANSFER.itemsize
        return np.frombuffer(bytes(ffi.buffer(first, kept)), TRANSFER)

    def _predicted(self) -> Predicted | None:
        if self.model is None or not self.learns:
            return None
        totals = self.model.totals()
        return Predicted(totals.predicted, totals.predictions_lost, totals.confidence)

    def _marks(self) -> list[tuple[int, dict[str, int]]]:
        """Returns time and counters at the start and at every mark."""
        mark = ffi.new("struct pump_sim_mark *")
        count = lib.pump_sim_mark(self.raw, 0, mark)
        found = [_nothing()]
        for i in range(count):
            lib.pump_sim_mark(self.raw, i, mark)
            found.append((int(mark.time_ns), _counters(mark.counters)))
        return found


_COUNTERS: Final = [name for name, _ in ffi.typeof("struct gpu_counters").fields]


def _counters(raw: Any) -> dict[str, int]:
    return {name: int(getattr(raw, name)) for name in _COUNTERS}


def _nothing() -> tuple[int, dict[str, int]]:
    return 0, dict.fromkeys(_COUNTERS, 0)


def _between(begin: tuple[int, dict[str, int]], end: tuple[int, dict[str, int]]) -> Stretch:
    counters = {name: end[1][name] - begin[1][name] for name in _COUNTERS}
    return Stretch((end[0] - begin[0]) / 1e9, counters)


def _settings(machine: Machine, facts: DeviceFacts, foresight: Foresight) -> Any:
    daemon = machine.daemon
    raw = ffi.new("struct pump_sim_settings *")
    raw.memory_bytes = facts.capacity * BLOCK_BYTES - machine.taken_bytes
    raw.budget_bytes = facts.budget * BLOCK_BYTES
    raw.tick_ns, raw.row_ns = round(daemon.tick_us * 1000), round(daemon.row_us * 1000)
    late = daemon.wake_ups
    raw.worker_wake = raw_delays(late.worker if late else always(daemon.wake_us))[0]
    raw.mover_wake = raw_delays(late.executor if late else always(daemon.mover_wake_us))[0]
    raw.wake_seed = daemon.seed
    raw.marker_poll_ns = round(daemon.marker_poll_us * 1000)
    raw.foresight, raw.foresight_from = foresight.operations, foresight.from_step
    raw.foresight_run = foresight.run
    raw.foresight_expects = foresight.expects
    raw.queue_operations = machine.queue_operations
    queues = machine.queues
    raw.connections, raw.lane_priority = queues.connections, queues.priority
    raw.lanes = [queues.to_gpu, queues.to_host]
    locks = machine.locks
    raw.locks = lib.GPU_LOCK_CONTEXT * locks.context + lib.GPU_LOCK_SPACE * locks.space
    raw.map_every_ns, raw.map_ns = round(locks.map_every_us * 1000), round(locks.map_us * 1000)
    raw.transfers_most = machine.transfers_most
    raw.duplicates = machine.duplicates
    raw.stop_every_ns = round(daemon.stop_every_ms * 1e6)
    raw.stop_ns = round(daemon.stop_ms * 1e6)
    if machine.jitter is not None:
        raw.jitter, raw.jitter_seed = machine.jitter.share, machine.jitter.seed
    if (host := machine.host) is not None and host.flash_gbps is not None:
        raw.host.memory_bytes = host.memory_bytes
        raw.host.read_gbps, raw.host.write_gbps = host.flash_gbps
        raw.host.read_us, raw.host.write_us = host.flash_us
        raw.host.write_budget_gbps = host.write_budget_gbps
        raw.flash_ahead = host.ahead
    return raw


def always(delay_us: float) -> Delays:
    """Returns the same delay for each wake-up."""
    return Delays((0.0,), (delay_us * 1000,))


def raw_delays(delays: Delays) -> Any:
    """Returns a pointer to `struct pump_sim_delays`."""
    raw = ffi.new("struct pump_sim_delays *")
    raw.count = len(delays.shares)
    raw.shares[0 : raw.count], raw.ns[0 : raw.count] = delays.shares, delays.delays_ns
    return raw


def parsed(profile: Profile) -> Any:
    """Returns `struct uvm_profile` of a profile. Raises ProgramError."""
    raw = ffi.new("struct uvm_profile *")
    error = ffi.new("char[256]")
    if lib.uvm_profile_parse(profile.flatten().encode(), raw, error, len(error)) != 0:
        raise ProgramError(ffi.string(error).decode())
    return raw
