"""A policy that says how long its decision holds is asked less often, and decides the same.

What moves and when, and what operations meet, is the same to the last block. One figure is not:
which of the misses are put down to want of room. Those are misses for which the last decision
found no victim, and one that holds is older than one that was asked for since: it moves nothing
else, but what was issued meanwhile may lack a victim, or what left may have made room.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sim_programs import DATA, MS, cyclic, machine, made, whole

from pump import profiles
from pump.model.bounds import BLOCK_BYTES
from pump.model.client import ClientModel
from pump.model.view import Decision, View
from pump.policy import by_name
from pump.policy.base import Policy
from pump.policy.window import Window
from pump.sim import program as form
from pump.sim import tensors
from pump.sim.program import Builder, Program
from pump.sim.simulation import Machine, Outcome, run


class Asked:
    """A policy, counting; `holds` False: it wants to be asked each time.

    Sees that misses are put down to want of room if, and only if, it said last that a
    newcomer lacks a victim, or an operation is larger than the memory.
    """

    def __init__(self, policy: Policy, holds: bool) -> None:
        self.policy, self.holds = policy, holds
        self.name, self.prefetches = policy.name, policy.prefetches
        self.predicts = policy.predicts
        self.times = 0
        self.short, self.unseen, self.no_room = False, 0, 0

    def at(self, _issued: int, _run: int, model: ClientModel) -> None:
        tally = model.tally(0)
        if self.short:
            assert tally.unseen == self.unseen
        elif model.totals().larger == 0:
            assert tally.no_room == self.no_room
        self.unseen, self.no_room = tally.unseen, tally.no_room

    def decide(self, view: View) -> Decision:
        self.times += 1
        decision = self.policy.decide(view)
        self.short = decision.short_of_room
        return decision if self.holds else decision.for_once()


def met(outcome: Outcome) -> dict[str, int]:
    """What operations met: misses by their cause, but for want of room or of time."""
    tally = dict(outcome.tally)
    tally["faulted"] = tally.pop("unseen") + tally.pop("no_room")
    return tally


def transformer(discard: bool) -> Program:
    name = "vit_b256_marginal.json.xz"
    trace = tensors.parse((DATA / name).read_bytes(), name)
    return tensors.program(trace, "caching", 2, discard=discard)


@pytest.mark.parametrize("name", ["window", "planned"])
@pytest.mark.parametrize(("discard", "most"), [(False, 0.22), (True, 0.49)])
def test_what_moves_when_is_the_same_as_if_asked_each_time(
    name: str, discard: bool, most: float
) -> None:
    """Most ticks only send the next slices that way which was decided before."""
    program = transformer(discard)
    gpu = Machine(profiles.load("a100-pcie4"), program.peak_bytes // 2)
    holding, asking = Asked(by_name(name), True), Asked(by_name(name), False)
    held, asked = run(program, gpu, holding), run(program, gpu, asking)
    assert held.whole == asked.whole
    assert met(held) == met(asked)
    assert held.ticks == asked.ticks == asking.times
    assert holding.times < most * asking.times


def test_a_sweep_is_the_same_too() -> None:
    program = cyclic(12, 16, 8, 3 * MS)
    runs = [run(program, machine(128), Asked(Window(), holds)) for holds in (True, False)]
    assert runs[0].whole == runs[1].whole


def made_up(seed: int, scale: int = 1) -> tuple[Program, Machine]:
    """Operations on parts of ranges, on one to three streams, with discards and waits, that
    repeat themselves nearly; a GPU that holds a part. `scale`: times as many blocks."""
    random_ = random.Random(seed)
    lengths = [random_.randrange(2, 40) for _ in range(random_.randrange(6, 40))]
    streams = random_.choice((1, 1, 2, 3))
    builder = Builder()
    iteration: list[tuple[list[form.Use], int, int]] = []  # no duration: a discard
    for _ in range(random_.randrange(5, 40)):
        uses = []
        for index in random_.sample(range(len(lengths)), random_.randrange(1, 4)):
            first = random_.randrange(lengths[index])
            count = random_.randrange(1, lengths[index] - first + 1)
            part = first * scale * BLOCK_BYTES, count * scale * BLOCK_BYTES
            uses.append((index, *part, form.WRITE))
        stream, duration_ns = random_.randrange(streams), random_.randrange(50_000, 4 * MS)
        iteration.append((uses, stream, duration_ns * scale))
        if random_.random() < 0.3:
            index = random_.randrange(len(lengths))
            iteration.append(
                ([whole(index, lengths[index] * scale)], random_.randrange(streams), 0)
            )
    for _ in range(random_.randrange(3, 9)):
        for uses, stream, duration_ns in iteration:
            if random_.random() < 0.01:
                builder.sync()
            elif duration_ns:
                builder.operation(
                    form.KERNEL, uses, stream=stream, duration_ns=duration_ns, host_ns=4000
                )
            else:
                builder.discard(uses, stream)
    share = random_.choice((1.1, 1.5, 2, 4))
    blocks = max(16, int(sum(lengths) * scale / share))
    gpu = machine(blocks, random_.choice((1024, 50, 10)))
    return replace(made(builder, [scale * length for length in lengths]), streams=streams), gpu


# Behind the first: operations larger than the memory; several streams, where blocks that have left
# are missing before others are; more blocks to leave behind those that are known to have to.
@pytest.mark.parametrize(
    ("seed", "scale"), [*((seed, 1) for seed in range(12)), (29, 1), (86, 1), (589, 1), (114, 12)]
)
@pytest.mark.parametrize("name", ["window", "planned"])
def test_random_programs_are_the_same_too(name: str, seed: int, scale: int) -> None:
    program, gpu = made_up(seed, scale)
    runs = [run(program, gpu, Asked(by_name(name), holds)) for holds in (True, False)]
    assert runs[0].whole == runs[1].whole
    assert met(runs[0]) == met(runs[1])
