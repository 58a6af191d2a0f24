"""The simulator of several jobs on one GPU: curves, rates, memory, ways of sharing, bound."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from types import SimpleNamespace

import pytest
from study.jobs import bound, curves, draw, mixes, rates, ways, world
from study.jobs.curves import Curve
from study.jobs.mixes import Mix
from study.jobs.rates import Link, Load
from study.jobs.world import Card, Job, Seen, Shares, Way, World
from study.papers import several
from suites import sim

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import Claim, arbitrate
from pump.policy.turns import CROWDED
from pump_lab import profiles
from pump_lab.sim import tensors

GIB = 1 << 30
LINK = Link(20e9, 20e9, 1.85)
CARD = Card(10 * GIB, LINK)
RATES = tuple(2 ** (i / 8) for i in range(-24, 25))
"""Shares of the link's rate, denser than curves.RATES: interpolation errs by at most 0.2 %."""


def simple(seconds: float = 0.5, traffic: float = 1.0) -> Curve:
    """Returns a job that moves its missing memory `traffic` times an iteration, alongside its
    kernels."""
    budgets, shares = (*curves.BUDGETS, 1.0), RATES
    moved = tuple((traffic * (1 - budget),) * len(shares) for budget in budgets)
    slow = tuple(
        tuple(max(1.0, row[0] * 10 * GIB * 2 / 1.85 / 20e9 / rate / seconds) for rate in shares)
        for row in moved
    )
    return Curve("simple", seconds, 10 * GIB, budgets, shares, curves.monotone(slow), moved, moved)


def mix_of(*jobs: Job, seed: int = 1, horizon_s: float = 60.0) -> Mix:
    return Mix("a mix", seed, jobs, CARD, horizon_s)


def load_of(curve: Curve, budget: float, **changes: float | bool) -> Load:
    return Load(curve, curve.seconds, float(curve.footprint_bytes), budget, 1.0)._replace(**changes)


# ---- curves ----


def test_a_kept_curve_is_what_the_simulator_gives() -> None:
    """The test checks one point of one curve, because all of them take minutes."""
    profile = profiles.load(sim.PROFILE).changed(sim.STUDY)
    trace = next(one for one in sim.traces(sim.DATA) if one.name.startswith("VIT"))
    kept = next(one for one in curves.kept() if one.name == trace.name)
    freed = tensors.program(trace, iterations=curves.ITERATIONS, discard=True)
    found = curves.measured_at(freed, profile, kept.footprint_bytes, kept.seconds, 0.5)
    there = kept.at(0.5, 1.0)
    assert found.slow == pytest.approx(there.slow, rel=0.1)
    assert found.come == pytest.approx(there.come, rel=0.1)
    assert found.leave == pytest.approx(there.leave, rel=0.1)
    assert 1 < found.slow < 2


def test_each_kept_curve_falls_with_memory_and_link() -> None:
    for curve in curves.kept():
        for budget, rate in product((0.05, 0.1, 0.33, 0.5, 0.8), (0.05, 0.2, 1.0, 3.0)):
            one = curve.at(budget, rate)
            assert one.slow >= curve.at(budget * 1.2, rate).slow - 1e-9
            assert one.slow >= curve.at(budget, rate * 1.2).slow - 1e-9
            assert one.slow >= 1
        assert curve.at(1.0, 0.1) == (1.0, 0.0, 0.0)
        peaks = [peak for _, peak in curve.lowering]
        assert len(peaks) > 100
        assert all(one > other for one, other in pairwise(peaks))


# ---- rates ----


def test_jobs_that_fit_share_the_engine_and_one_that_pauses_leaves_it() -> None:
    whole = load_of(simple(), 1.0)
    both = rates.flows([whole, whole], LINK)
    assert [flow.iterations for flow in both] == pytest.approx([1.0, 1.0], rel=0.02)
    weighted = rates.flows([whole, whole._replace(engine=0.25)], LINK)
    assert weighted[0].iterations == pytest.approx(4 * weighted[1].iterations, rel=0.05)
    alone = rates.flows([whole, whole._replace(engine=0.0)], LINK)
    assert [flow.iterations for flow in alone] == pytest.approx([2.0, 0.0])


def test_a_kernel_that_waits_for_its_memory_holds_the_engine() -> None:
    """The first job computes for a quarter of its time, but leaves only half of the engine to the
    other. It keeps its full speed, because its memory also arrives in the other's turns."""
    waits, whole = load_of(simple(0.1, 1.378), 0.5), load_of(simple(), 1.0)
    own = rates.alone(waits, LINK).iterations
    assert own * waits.seconds == pytest.approx(0.25, rel=0.01)
    first, second = rates.flows([waits, whole], LINK)
    assert first.iterations == pytest.approx(own, rel=0.02)
    assert second.iterations * whole.seconds == pytest.approx(0.5, rel=0.02)


def test_what_one_job_leaves_of_a_resource_the_other_has() -> None:
    assert rates.left_for(1.0, 1.0, []) == 1.0
    assert rates.left_for(1.0, 1.0, [(0.2, 1.0)]) == pytest.approx(0.8)
    assert rates.left_for(1.0, 1.0, [(0.9, 1.0)]) == pytest.approx(0.5)
    assert rates.left_for(1.0, 2.0, [(0.9, 1.0), (0.1, 1.0)]) == pytest.approx(0.6)


def test_no_resource_carries_more_than_it_can() -> None:
    random_ = random.Random(5)
    for _ in range(60):
        loads = [
            load_of(simple(random_.choice((0.1, 0.5, 2.0)), random_.choice((0.2, 1.0))),
                    random_.random(), filling=random_.random() < 0.3,
                    shrinking=random_.random() < 0.3, engine=random_.choice((0.0, 0.1, 1.0)))
            for _ in range(random_.randint(1, 5))
        ]  # fmt: skip
        found = rates.flows(loads, LINK)
        engine = sum(
            flow.iterations * load.seconds for flow, load in zip(found, loads, strict=True)
        )
        come = sum(flow.come for flow in found)
        leave = sum(flow.leave + flow.back for flow in found)
        assert engine <= 1 + 1e-6
        assert come <= LINK.come * (1 + 1e-6)
        assert leave <= LINK.leave * (1 + 1e-6)
        assert come + leave <= LINK.both * LINK.come * (1 + 1e-6)
        for load, flow in zip(loads, found, strict=True):
            assert flow.iterations <= rates.alone(load, LINK).iterations * 1.01 or not load.engine


# ---- the world ----


class Watched:
    """Follows another way of sharing, and notes the most memory that the jobs held."""

    def __init__(self, way: Way) -> None:
        self.way, self.name, self.most = way, way.name, 0.0

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        self.most = max(self.most, sum(one.held_bytes for one in jobs))
        return self.way.look(now, jobs, card)


def test_a_job_alone_makes_all_of_its_progress_and_two_equal_jobs_half() -> None:
    job = Job(simple(), 0.4)
    assert mix_of(job).progress(ways.Equal()) == pytest.approx([1.0])
    assert mix_of(job, job).progress(ways.Equal()) == pytest.approx([0.5, 0.5], rel=0.02)


def test_jobs_never_hold_more_than_the_memory_and_ways_give_no_more() -> None:
    mix = mix_of(
        Job(simple(0.2), 0.9, grows=((20.0, 1.5),)),
        Job(simple(0.5), 1.2, arrives_s=10.0, leaves_s=50.0),
        Job(simple(0.1), 0.6, work=30.0, pause_s=5.0, drawn=True),
    )
    made = (ways.Equal(), ways.Arbiter(), ways.Slices(5.0), ways.Tensile(), ways.InTurns())
    for way in made:
        watched = Watched(way)
        shares = mix.progress(watched)
        assert 0.9 * CARD.memory_bytes < watched.most, way.name
        # A newcomer gets 8 MiB even if no memory is free (pump/policy/leases.py).
        assert watched.most <= CARD.memory_bytes + 3 * 8 * (1 << 20), way.name
        assert all(0 < share <= 1.001 for share in shares), way.name


def test_the_same_seed_gives_the_same_pauses_beside_others_and_alone() -> None:
    job = Job(simple(), 0.3, work=10.0, pause_s=3.0, drawn=True)
    assert mix_of(job, seed=3).alone_s == mix_of(job, seed=3).alone_s
    assert mix_of(job, seed=3).alone_s != mix_of(job, seed=4).alone_s
    jobs = [job, Job(simple(), 0.3)]
    running = World(jobs, CARD, ways.Equal(), 3).waiting[0]
    assert running.left == world.World([job], CARD, ways.Equal(), 3, 0).waiting[0].left


def test_memory_that_comes_back_takes_the_link_its_time() -> None:
    """A job that gets memory back fills it with arrivals, no faster than the link."""

    class Given:
        name = "given"

        def __init__(self) -> None:
            self.held: list[tuple[float, float]] = []

        def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
            self.held.append((now, jobs[0].held_bytes))
            whole = card.memory_bytes
            return Shares(
                {0: whole if now < 10 or now >= 20 else whole // 4 // (2 << 20) * (2 << 20)}
            )

    way = Given()
    World([Job(simple(), 1.0)], CARD, way).run(40.0)
    held = dict(way.held)
    assert held[9.5] == CARD.memory_bytes
    assert held[19.5] == pytest.approx(CARD.memory_bytes / 4, rel=0.02)
    assert CARD.memory_bytes / 4 < held[20.5] < CARD.memory_bytes / 4 + 0.51 * LINK.come
    assert held[39.5] == pytest.approx(CARD.memory_bytes, rel=0.02)


# ---- ways of sharing ----


def seen(number: int, size: float, curve: Curve | None = None, **changes: object) -> Seen:
    job = Job(curve or simple(), size)
    found = Seen(number, job, int(size * CARD.memory_bytes) // BLOCK_BYTES * BLOCK_BYTES,
                 1.0, True, 0.0)  # fmt: skip
    return found._replace(**changes)  # type: ignore[arg-type]


def test_water_filling_is_todays_arbiter() -> None:
    jobs = [seen(0, 0.3), seen(1, 1.5), seen(2, 1.0, use=0.125)]
    found = ways.Arbiter().look(0.0, jobs, CARD).targets
    claims = [Claim(one.number, "gpu", 0, one.wanted_bytes, one.use) for one in jobs]
    spill = 2 * (64 << 20)
    expected = arbitrate({"gpu": CARD.memory_bytes - spill}, claims)
    assert found == {job: share for (job, _), share in expected.items()}


def test_turns_are_the_arbiter_where_jobs_do_not_want_much_more_than_there_is() -> None:
    way = ways.InTurns()
    jobs = [seen(0, 0.6), seen(1, 0.95 * CROWDED - 0.6), seen(2, 1.2, runs=False, use=0.25)]
    way.look(0.0, jobs, CARD)
    for now in range(2, 100):  # the pause of the last job is known
        assert way.look(float(now), jobs, CARD) == ways.Arbiter().look(float(now), jobs, CARD)


def test_the_job_whose_turn_it_is_has_what_it_wants_and_those_that_run_wait() -> None:
    way, holders = ways.InTurns(), set()
    jobs = [seen(0, 0.9), seen(1, 0.8), seen(2, 0.7, runs=False)]
    way.look(0.0, jobs, CARD)
    for now in range(2, 100):
        shares = way.look(float(now), jobs, CARD)
        assert sorted(shares.engine) == [0, 1]
        assert sorted(shares.engine.values()) == [0.0, 1.0]
        (holder,) = (job for job, weight in shares.engine.items() if weight)
        assert shares.targets[holder] == jobs[holder].wanted_bytes
        assert sum(shares.targets.values()) <= CARD.memory_bytes
        holders.add(holder)
    assert holders == {0, 1}


def test_a_job_that_pauses_keeps_its_turn_until_the_service_sees_it() -> None:
    both = [seen(0, 0.9), seen(1, 0.9)]
    way = ways.InTurns()
    assert way.look(0.0, both, CARD).engine == {0: 1.0, 1: 0.0}
    paused = [both[0]._replace(runs=False), both[1]]
    assert way.look(ways.SEEN_S - 0.5, paused, CARD).engine == {0: 1.0, 1: 0.0}
    assert way.look(ways.SEEN_S, paused, CARD) == ways.Arbiter().look(0.0, paused, CARD)


def test_two_jobs_that_each_want_the_card_do_more_in_turns() -> None:
    job = Job(simple(0.25, 2.0), 1.0)
    mix = mix_of(job, job, horizon_s=200.0)
    turns, water = (mix.progress(way) for way in (ways.InTurns(), ways.Arbiter()))
    assert mix.mean(turns) > 1.2 * mix.mean(water)
    assert min(turns) > 0.8 * max(turns)


def test_turns_close_most_of_the_gap_on_the_mixes_held_out_and_leave_each_job_its_part() -> None:
    link = several.link_of(profiles.load(sim.PROFILE).changed(sim.STUDY))
    gained, gap = 0.0, 0.0
    for mix in mixes.load(curves.kept(), link):
        if not mix.held_out:
            continue
        turns, equal = (mix.progress(way) for way in (ways.InTurns(), ways.Equal()))
        water = mix.mean(mix.progress(ways.Arbiter()))
        assert mix.mean(turns) >= 0.98 * water, mix.name
        assert several.least_over(turns, equal) >= several.FLOOR, mix.name
        best = max(mix.mean(found(mix)[1]) for found in (ways.best_slices, ways.best_partition))
        gained += mix.mean(turns) - water
        gap += best - water
    assert gained >= 0.5 * gap > 0


def test_turns_go_round_and_leave_out_a_job_that_pauses() -> None:
    way = ways.Slices(10.0)
    jobs = [seen(0, 1.0), seen(1, 0.7), seen(2, 0.6)]
    holders = []
    for now in range(0, 60, 5):
        ready = [one._replace(runs=one.number != 1 or now < 30) for one in jobs]
        shares = way.look(float(now), ready, CARD)
        (holder,) = [job for job, weight in shares.engine.items() if weight]
        assert shares.targets[holder] == jobs[holder].wanted_bytes
        holders.append(holder)
    assert holders == [0, 0, 1, 1, 2, 2, 0, 0, 2, 2, 0, 0]


def test_tensile_takes_the_largest_tensor_of_any_job_first() -> None:
    small = SimpleNamespace(lowering=((0.1, 0.9), (0.1, 0.8)), footprint_bytes=1, seconds=1.0)
    large = SimpleNamespace(lowering=((0.3, 0.7), (0.05, 0.65)), footprint_bytes=1, seconds=1.0)
    jobs = [seen(0, 0.6, small), seen(1, 0.6, large)]  # type: ignore[arg-type]
    found = ways.Tensile().look(0.0, jobs, CARD).targets
    assert found[0] == pytest.approx(0.54 * CARD.memory_bytes, rel=0.01)
    assert found[1] == pytest.approx(0.42 * CARD.memory_bytes, rel=0.01)
    # If no tensor is left, all jobs get less.
    found = ways.Tensile().look(0.0, [seen(i, 1.0, small) for i in range(3)], CARD).targets  # type: ignore[arg-type]
    assert sum(found.values()) <= CARD.memory_bytes
    assert len(set(found.values())) == 1


# ---- the bound ----


def small_mixes() -> Iterator[Mix]:
    """Yields mixes of two or three jobs, over a short time."""
    yield mix_of(Job(simple(0.5), 0.8), Job(simple(0.25, 1.0), 0.8), horizon_s=24.0)
    yield mix_of(Job(simple(0.25), 1.0), Job(simple(0.5), 0.7, arrives_s=8.0), horizon_s=24.0)
    yield mix_of(
        Job(simple(0.2), 0.6),
        Job(simple(0.5, 0.5), 0.6),
        Job(simple(0.5), 0.5, work=6.0, pause_s=5.0),
        horizon_s=24.0,
    )


class Tried:
    """Gives each stretch of time its own shares of the memory, and its own running jobs."""

    name = "tried"

    def __init__(self, stretches: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
        self.stretches = stretches

    def look(self, now: float, jobs: Sequence[Seen], card: Card) -> Shares:
        memory, runs = self.stretches[min(int(now / 12), len(self.stretches) - 1)]
        weights = {one.number: memory[one.number] for one in jobs}
        engine = {one.number: runs[one.number] for one in jobs}
        if not any(engine.values()):
            engine = dict.fromkeys(engine, 1.0)
        return Shares(ways.by_weight(jobs, card, weights).targets, engine)


def test_no_plan_of_all_small_ones_passes_the_bound_and_the_best_comes_near() -> None:
    pytest.importorskip("scipy")
    for mix in small_mixes():
        count = len(mix.jobs)
        memory = [one for one in product((0.05, 1.0), repeat=count) if max(one) == 1]
        runs = [one for one in product((0.0, 1.0), repeat=count) if any(one)]
        each = list(product(memory, runs))
        chosen = random.Random(7).sample(list(product(each, each)), 30)
        chosen += [(one, one) for one in each]
        best = max(mix.mean(mix.progress(Tried(one))) for one in chosen)
        most = bound.most(mix)
        assert 0.75 * most < best <= most * 1.005
        floors = several.floors(mix)
        fair = mix.mean(ways.best_partition(mix, floors)[1])
        assert fair <= bound.most(mix, floors) * 1.005 <= most * 1.005**2


def test_no_way_passes_the_bound_on_the_mixes() -> None:
    pytest.importorskip("scipy")
    every = mixes.load(curves.kept(), Link(23e9, 23e9, 1.85))
    assert len(every) == 64
    assert sum(mix.held_out for mix in every) == 16
    for mix in (every[0], every[18], every[24]):
        most = bound.most(mix)
        for way in (ways.Arbiter(), ways.Slices(30.0), ways.InTurns()):
            assert mix.mean(mix.progress(way)) <= most * 1.005


def test_the_mixes_that_are_held_out_are_drawn_from_one_seed() -> None:
    assert mixes.FILE.read_text().endswith("".join(draw.mixes(2312, mixes.TUNED + 1)))


# ---- rows ----


def test_rows_of_several_jobs_come_out_the_same_twice() -> None:
    pytest.importorskip("scipy")
    chosen = [mix_of(Job(simple(0.25), 1.0), Job(simple(0.5), 0.8))]

    def values() -> dict[str, float | None]:
        found = (one.rows("command") for one in several.shared(chosen))
        return {row.name: row.value for rows in found for row in rows}

    first = values()
    assert first == values()
    for name in several.WAYS:
        share, most = (first[f"papers.tensile.jobs_{name}.{one}"]
                       for one in ("reproduction", "bound"))  # fmt: skip
        assert share is not None
        assert most is not None
        assert 0 < share <= most * 1.005
    turns = first["papers.tensile.jobs_turns.reproduction"]
    assert turns == first["papers.tensile.jobs_equal.pump"]
    assert turns != first["papers.tensile.jobs_water.reproduction"]
