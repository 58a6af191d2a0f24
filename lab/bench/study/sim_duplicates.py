"""Part of suites/sim.py: evictions without a copy, when pump duplicates blocks on trial
(docs/decisions/0051-read-duplication.md).

DESIGN
  Made-up programs whose weights are only read, at 1.5 and 2 times the memory, under window and
  planned, without and with duplicates (Machine.duplicates).

    `decoder`   32 layers of a model with 7 billion 16-bit parameters, a token a step. A layer has
                five launches; the key-value cache is read whole and written at its end. A wait
                follows each token. The ratio refers only to weights, as in the targets.
    `stack`     Layers of one matrix each, batch after batch.
    `lora`      Frozen weights, forward and backward. Activations are written forward, read
                backward, and then dead. Each step writes small adapters. The ratio refers to all
                memory.

  Rows, of the steady step:

    `sim.duplicates.PROGRAM.POLICY`            Seconds with / without duplicates. `clean`: share of
                                               evicted bytes that was not copied. `back`: bytes to
                                               the host / to the GPU, with and without. `target`:
                                               seconds with duplicates / the bound of the targets
                                               (inference only). `without_target`: the same without.
    `sim.duplicates.PROGRAM.POLICY.CHANGE`     The same at 2x with other assumptions: CHANGES.
    `sim.duplicates.recorded.PROGRAM.POLICY`   The same for the recordings of inference and LoRA
                                               (workloads/simulated.py), as if their kernels wrote
                                               nothing. A recording does not contain writes, so this
                                               is the most that could be gained.
    `sim.duplicates.marginal.POLICY.discard`   The same for the traces: the geometric mean, the
                                               most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from harness import Row
from workloads import formulas, simulated
from workloads.formulas import Step

from pump.model.bounds import BLOCK_BYTES, without_reserve
from pump_lab.sim import program as form
from pump_lab.sim.program import Builder, Program
from pump_lab.sim.simulation import Machine, Outcome, run

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.tensors import TensorTrace

RATIOS = (1.5, 2.0)
LAYERS = 32
MATRICES = (48, 16, 86, 43)
"""Blocks of a decoder layer: query, key and value; output; up and gate; down."""
CACHE, HIDDEN = 8, 1
"""Blocks of a layer's key-value cache, and of the activations between layers."""
SAVED, ADAPTER = 24, 1
"""Blocks that a layer saves for the backward pass, and blocks of its adapter with its states."""
GAP_US = 200.0
"""Host time after each token, for sampling."""
STEPS = 8
CHANGES: dict[str, dict[str, float]] = {
    "advice_quarter": {"uvm.advise_call_us": 0.25, "uvm.advise_block_us": 0.25},
    "advice_fourfold": {"uvm.advise_call_us": 4, "uvm.advise_block_us": 4},
    "duplex_less": {"link.duplex_in": 0.9, "link.duplex_out": 0.9},
}
"""Factors for constants that no GPU has confirmed."""


@dataclass(frozen=True)
class Streamed:
    """A program with weights that are only read.

    `step`: the data that bound the time of one step.
    """

    program: Program
    step: Step


class Writer:
    """Builds ranges and launches. Kernels run at the memory's speed or for `duration_ms`."""

    def __init__(self, gbps: float) -> None:
        self.builder, self.gbps = Builder(), gbps
        self.lengths: list[int] = []
        self.largest = 0
        self.busy_ns = 0

    def range(self, blocks: int) -> int:
        self.lengths.append(blocks * BLOCK_BYTES)
        return len(self.lengths) - 1

    def launch(
        self, signature: int, uses: Iterable[tuple[int, int]], duration_ms: float | None = None
    ) -> None:
        """Adds a launch. `uses`: (range, access), each of its whole range."""
        spans = [(index, 0, self.lengths[index], access) for index, access in uses]
        touched = sum(span[2] for span in spans)
        duration_ns = round(touched / self.gbps if duration_ms is None else duration_ms * 1e6)
        self.largest = max(self.largest, touched // BLOCK_BYTES)
        self.busy_ns += duration_ns
        self.builder.operation(
            form.KERNEL, spans, duration_ns=duration_ns, host_ns=8000, signature=signature
        )

    def discard(self, index: int) -> None:
        self.builder.discard([(index, 0, self.lengths[index], form.OVERWRITE)])

    def program(self, name: str, steps: int, peak_blocks: int) -> Program:
        ranges, blocks = form.ranges_in_a_row(self.lengths)
        start = Builder()
        for index in range(len(ranges)):
            start.alloc(index)
        start.sync()
        once, uses = self.builder.tables()
        whole = form.np.concatenate((start.tables()[0], form.repeated(once, steps)))
        facts = {"iterations": steps, "steps_per_iteration": len(once)}
        return Program(name, whole, uses, ranges, blocks, 1, peak_blocks * BLOCK_BYTES, facts)


def decoder(gbps: float) -> Streamed:
    """Returns the decoder. `gbps`: rate of kernels bound by memory."""
    writer = Writer(gbps)
    layers = [[writer.range(blocks) for blocks in MATRICES] for _ in range(LAYERS)]
    caches = [(writer.range(CACHE - 1), writer.range(1)) for _ in range(LAYERS)]
    hidden = [writer.range(HIDDEN) for _ in range(2)]
    for number, (matrices, (old, new)) in enumerate(zip(layers, caches, strict=True)):
        for kind, matrix in enumerate(matrices):
            ends = [(hidden[kind % 2], form.READ), (hidden[1 - kind % 2], form.OVERWRITE)]
            writer.launch(8 * number + kind + 1, [(matrix, form.READ), *ends])
            if kind == 0:
                writer.launch(8 * number + 8, [(old, form.READ), (new, form.WRITE), *ends])
    writer.builder.sync(mark=True, host_ns=round(GAP_US * 1000))
    weights = LAYERS * sum(MATRICES)
    return streamed(writer, "decoder", weights, LAYERS * CACHE + 2 * HIDDEN)


def stack(gbps: float) -> Streamed:
    """Returns sixty-four matrices of 128 MiB. The batch computes with each for twice as long as one
    token would."""
    writer = Writer(gbps)
    matrices = [writer.range(64) for _ in range(64)]
    hidden = [writer.range(4) for _ in range(2)]
    for number, matrix in enumerate(matrices):
        ends = [(hidden[number % 2], form.READ), (hidden[1 - number % 2], form.OVERWRITE)]
        writer.launch(number + 1, [(matrix, form.READ), *ends], 2 * 64 * BLOCK_BYTES / gbps / 1e6)
    writer.builder.sync(mark=True, host_ns=round(GAP_US * 1000))
    return streamed(writer, "stack", 64 * 64, 8)


def lora(gbps: float) -> Streamed:
    """Returns a batch of 2,048 tokens at 150 * 10^12 operations a second: 5.5 ms for a layer
    forward, twice as long backward."""
    writer = Writer(gbps)
    layers = [writer.range(sum(MATRICES)) for _ in range(LAYERS)]
    adapters = [writer.range(ADAPTER) for _ in range(LAYERS)]
    saved = [writer.range(SAVED) for _ in range(LAYERS)]
    hidden = [writer.range(8) for _ in range(2)]
    for number in range(LAYERS):
        uses = [(layers[number], form.READ), (adapters[number], form.READ)]
        uses += [(saved[number], form.OVERWRITE), (hidden[number % 2], form.WRITE)]
        writer.launch(number + 1, uses, 5.5)
    for number in reversed(range(LAYERS)):
        uses = [(layers[number], form.READ), (adapters[number], form.WRITE)]
        uses += [(saved[number], form.READ), (hidden[number % 2], form.WRITE)]
        writer.launch(64 + number, uses, 11.0)
        if 2 * number > 16:  # worth a discard
            writer.discard(saved[number])
    for number in range(LAYERS):
        writer.launch(128 + number, [(adapters[number], form.WRITE)])
    writer.builder.sync(mark=True)
    weights = LAYERS * sum(MATRICES)
    others = LAYERS * (ADAPTER + SAVED) + 16
    return streamed(writer, "lora", weights, others, passes=2, all_counts=True)


def streamed(
    writer: Writer,
    name: str,
    weights: int,
    others: int,
    *,
    passes: int = 1,
    all_counts: bool = False,
) -> Streamed:
    """Returns program and step. `weights`, `others`: blocks. `passes`: over the weights."""
    peak = weights + others if all_counts else weights
    step = Step(
        weights_bytes=weights * BLOCK_BYTES,
        read_bytes=passes * weights * BLOCK_BYTES,
        others_bytes=others * BLOCK_BYTES,
        largest_bytes=writer.largest * BLOCK_BYTES,
        layer_bytes=sum(MATRICES) * BLOCK_BYTES,
        compute_seconds=writer.busy_ns / 1e9,
        gap_seconds=GAP_US / 1e6,
    )
    return Streamed(writer.program(name, STEPS, peak), step)


PROGRAMS: tuple[Callable[[float], Streamed], ...] = (decoder, stack, lora)


def target_seconds(work: Streamed, machine: Machine, policy: str) -> float:
    budget = without_reserve(machine.memory_bytes, machine.reserve_percent)
    link = float(machine.profile.values["link.prefetch_h2d_gbps"]) * 1e9
    return formulas.bounds(work.step, budget, link)[policy]


def figures(outcome: Outcome) -> dict[str, Any]:
    step = outcome.steady
    clean, copied = step.counters["clean_bytes"], step.d2h_bytes
    return {
        "seconds": step.seconds,
        "back": copied / max(1, step.h2d_bytes),
        "clean": clean / max(1, clean + copied),
        "h2d_gib": step.h2d_bytes / 2**30,
        "collapsed_pages": step.counters["collapsed_pages"],
        "faults": step.counters["fault_pages"],
    }


def run_without_and_with_duplicates(
    program: Program, machine: Machine, policy: str
) -> tuple[Outcome, Outcome]:
    """Runs the program without duplicates and with them."""
    from study import studied_policies

    candidate = studied_policies.by_name(policy)
    make = candidate.policy
    assert make is not None
    both = (replace(machine, duplicates=flag) for flag in (False, True))
    first, second = (run(program, one, make(program, one)) for one in both)
    return first, second


def rows(found: Iterable[TensorTrace], profile: Profile) -> Iterator[Row]:
    for make in PROGRAMS:
        work = make(float(profile.values["kernels.default_gbps"]))
        for ratio in RATIOS:
            machine = Machine(profile, int(work.program.peak_bytes / ratio))
            for policy in ("window", "planned"):
                bound = target_seconds(work, machine, policy)
                yield compared_row(work.program, machine, ratio, policy, bound)
        for change, policy in product(CHANGES, ("window", "planned")):
            changed_machine = replace(machine, profile=changed(profile, change))
            bound = target_seconds(work, changed_machine, policy)
            yield compared_row(
                work.program, changed_machine, RATIOS[-1], policy, bound, change=f".{change}"
            )
    yield from recorded(profile)
    yield from marginal(list(found), profile)


def recorded(profile: Profile) -> Iterator[Row]:
    from pump_lab.sim import recording, report

    link = float(profile.values["link.prefetch_h2d_gbps"]) * 1e9
    for name in ("inference", "lora"):
        facts = json.loads((simulated.DATA / f"{name}.json").read_text())
        step = Step(**facts["step"])
        whole = recording.program((simulated.DATA / f"{name}.trace").read_bytes(), name)
        seconds = step.compute_seconds * facts["steps"]
        program = simulated.retimed(whole, facts["operations"], seconds)
        uses = program.uses.copy()
        uses["access"][uses["access"] == form.WRITE] = form.READ
        program = replace(program, name=f"recorded.{name}", uses=uses)
        for ratio in RATIOS:
            machine = Machine(profile, int(facts["footprint_bytes"] / ratio))
            alone = report.unlimited(report.Case(program, machine)).steady.seconds
            gap_seconds = max(0.0, (alone - seconds) / facts["steps"])
            budget = without_reserve(machine.memory_bytes, machine.reserve_percent)
            bound = formulas.bounds(replace(step, gap_seconds=gap_seconds), budget, link)
            for policy in ("window", "planned"):
                yield compared_row(program, machine, ratio, policy, bound[policy] * facts["steps"])


def changed(profile: Profile, change: str) -> Profile:
    factors = CHANGES[change]
    values = {key: f"{float(profile.values[key]) * by:g}" for key, by in factors.items()}
    return profile.changed(values)


def compared_row(
    program: Program,
    machine: Machine,
    ratio: float,
    policy: str,
    bound_seconds: float,
    *,
    change: str = "",
) -> Row:
    outcomes = run_without_and_with_duplicates(program, machine, policy)
    without, duplicating = map(figures, outcomes)
    return Row(
        f"sim.duplicates.{program.name}.{policy}{change}",
        duplicating["seconds"] / without["seconds"],
        "x",
        oversubscription=ratio,
        target=duplicating["seconds"] / bound_seconds,
        without_target=without["seconds"] / bound_seconds,
        clean=duplicating["clean"],
        without=without,
        duplicating=duplicating,
        advice_calls=outcomes[1].advice_calls,
        trials=outcomes[1].trials,
        profile=machine.profile.name,
        simulated=True,
    )


def marginal(found: list[TensorTrace], profile: Profile) -> Iterator[Row]:
    from pump_lab.sim import tensors

    for policy in ("window+discard", "planned+discard"):
        for ratio in RATIOS:
            times: dict[str, float] = {}
            clean: dict[str, float] = {}
            for trace in found:
                program = tensors.program(trace, "caching", 6, discard=True)
                machine = Machine(profile, int(program.peak_bytes / ratio))
                outcomes = run_without_and_with_duplicates(program, machine, policy)
                without, duplicating = map(figures, outcomes)
                times[trace.name] = duplicating["seconds"] / without["seconds"]
                clean[trace.name] = duplicating["clean"]
            logs = [math.log(value) for value in times.values()]
            yield Row(
                f"sim.duplicates.marginal.{policy.replace('+', '.')}",
                math.exp(sum(logs) / len(logs)),
                "x",
                oversubscription=ratio,
                most=max(times.values()),
                times=times,
                clean=clean,
                traces=len(found),
                profile=profile.name,
                simulated=True,
            )
