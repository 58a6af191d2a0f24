"""The worker's counts of hits and misses, against the counters of the GPU's model."""

from __future__ import annotations

import random

import pytest
from sim_programs import DATA, MS, cyclic, machine, made, whole

from pump.policy import by_name
from pump_lab import profiles
from pump_lab.sim import program as form
from pump_lab.sim import tensors
from pump_lab.sim.program import Builder, Program
from pump_lab.sim.simulation import Machine, Outcome, run

BLOCK = 2 << 20


def mixed(seed: int) -> Program:
    """Returns kernels over one to three of 24 buffers, some more often than others."""
    source = random.Random(seed)
    lengths = [source.randrange(1, 20) for _ in range(24)]
    builder = Builder()
    for _ in range(3000):
        chosen = {int(24 * source.random() ** 2) for _ in range(source.randrange(1, 4))}
        uses = [whole(index, lengths[index]) for index in chosen]
        builder.operation(form.KERNEL, uses, duration_ns=MS, host_ns=4000)
    return made(builder, lengths, f"mixed {seed}")


def transformer() -> Program:
    name = "vit_b256_marginal.json.xz"
    trace = tensors.parse((DATA / name).read_bytes(), name)
    return tensors.program(trace, "caching", 6, discard=False)


def resident_blocks(found: Outcome) -> float:
    """Counts the blocks that are resident at the end: arrivals minus departures."""
    counted = found.whole.counters
    came = sum(counted[f"{how}_bytes"] for how in ("h2d_demand", "h2d_prefetch", "populated"))
    ways = ("d2h_evict", "d2h_prefetch", "dropped", "freed")
    return (came - sum(counted[f"{how}_bytes"] for how in ways)) / BLOCK


PROGRAMS = {
    "cyclic": lambda: cyclic(12, 16, 40, 3 * MS),
    "mixed 1": lambda: mixed(1),
    "mixed 2": lambda: mixed(2),
    "transformer": transformer,
}


@pytest.mark.parametrize("oversubscription", [1.2, 1.5, 2.0])
@pytest.mark.parametrize("policy", ["demand", "window", "planned"])
@pytest.mark.parametrize("which", PROGRAMS)
def test_hits_are_what_the_driver_did_not_have_to_bring_within_five_percent(
    which: str, policy: str, oversubscription: float
) -> None:
    """A block with data was either resident or brought by a fault; a first use has no data."""
    program = PROGRAMS[which]()
    memory = int(program.peak_bytes / oversubscription)
    found = run(program, Machine(profiles.load("a100-pcie4"), memory), by_name(policy))
    tally = found.tally
    faulted = found.whole.counters["h2d_demand_bytes"] / BLOCK
    assert tally["blocks"] > 1000
    assert abs(tally["hit"] - (tally["blocks"] - faulted)) <= 0.05 * tally["blocks"]
    assert abs(found.believed_resident_blocks - resident_blocks(found)) <= 0.05 * memory / BLOCK
    if policy == "demand":  # each miss is a fault; hits are too few to be compared
        assert abs(tally["blocks"] - tally["hit"] - faulted) <= 0.07 * faulted


@pytest.mark.parametrize("policy", ["demand", "window", "planned"])
def test_every_use_is_a_hit_or_has_a_cause(policy: str) -> None:
    tally = run(mixed(3), machine(150), by_name(policy)).tally
    causes = tally["late"] + tally["unseen"] + tally["no_room"]
    assert tally["blocks"] == tally["hit"] + causes
    assert tally["hit"] > 0 < causes
