"""The service's turns: which jobs come first, which wait, and when there are no turns."""

from __future__ import annotations

from msgspec.structs import replace

from pump.policy.turns import TURN_S
from pump.wire import service as wire
from pumpd.service.jobs import Job
from pumpd.service.owners import Identity
from pumpd.service.registry import Registry

MIB = 1 << 20
GPU = "aa" * 16
TOTAL, WANTED = 10_000, 9_000
"""The GPU's memory, and the memory that each job wants, in MiB."""


def entry(wanted_mib: int = WANTED, **more: object) -> wire.GpuReport:
    sizes = (size * MIB for size in (TOTAL, TOTAL, wanted_mib, 0, 0))
    return replace(wire.GpuReport(GPU, *sizes, wire.USE_MOST, used=True, ready=True), **more)


def join(registry: Registry, owner: int = 0, priority: int = 0, **more: object) -> Job:
    job = registry.add(Identity(0, owner, owner), wire.Join(priority=priority), 10, 0.0)
    says(registry, job, 0.0, **more)
    return job


def says(registry: Registry, job: Job, now: float, **more: object) -> None:
    registry.take_report(job, wire.Report(0, 1, 0, 0, (entry(**more),)), now)  # type: ignore[arg-type]


def budget(registry: Registry, job: Job) -> tuple[int, bool]:
    """Returns the granted MiB, and whether the job has to wait."""
    (grant,) = registry.grant_of(job, 1000).gpus
    return grant.budget_bytes // MIB, grant.waits


def waiting(registry: Registry, jobs: list[Job], now: float) -> list[bool]:
    registry.on_time(now)
    registry.rearrange(now)
    return [budget(registry, job)[1] for job in jobs]


def registry() -> Registry:
    return Registry({GPU: TOTAL * MIB})


def test_one_job_runs_with_most_of_the_memory_and_the_others_wait_for_their_turns() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(3)]
    found = []
    for turn in range(3):
        now = turn * (TURN_S[1] + 1)
        waits = waiting(here, jobs, now)
        assert sum(waits) == 2
        for job, waits_ in zip(jobs, waits, strict=True):
            if not waits_:
                found.append(job)
                for _ in range(3):  # the others give memory back first, and report it
                    waiting(here, jobs, now)
                assert budget(here, job)[0] >= 0.8 * WANTED
                for other in jobs:
                    says(here, other, now, resident_bytes=0, adopted_bytes=0)
                    other.sent.clear()
    assert {job.number for job in found} == {job.number for job in jobs}


def test_a_new_turn_is_a_new_grant_to_all_that_it_concerns() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(2)]
    waiting(here, jobs, 0.0)
    here.on_time(1.0)
    assert here.stale and not here.rearrange(1.0)  # within a turn nothing changes
    here.on_time(40.0)
    assert {job.number for job in here.rearrange(40.0)} == {job.number for job in jobs}


def test_there_are_no_turns_where_they_are_not_wanted() -> None:
    def waits(here: Registry, *jobs: Job) -> bool:
        return any(waiting(here, list(jobs), 0.0))

    here = registry()
    assert waits(here, join(here), join(here, 1))
    here = registry()
    assert not waits(here, join(here, wanted_mib=8_000), join(here, 1, wanted_mib=8_000))
    here = registry()
    here.turns = False
    assert not waits(here, join(here), join(here, 1))
    here = registry()
    here.settling = True
    assert not waits(here, join(here), join(here, 1))
    here = registry()  # one job pauses, or has no such reports (previous release)
    assert not waits(here, join(here), join(here, 1, used=False, ready=False))


def test_a_job_that_runs_for_a_part_of_the_time_never_waits_and_has_what_it_wants() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(2)]
    answers = join(here, 2, wanted_mib=2_000, ready=False)
    idle = join(here, 3, wanted_mib=2_000, ready=False, used=False)
    waits = waiting(here, [*jobs, answers, idle], 0.0)
    assert sorted(waits[:2]) == [False, True] and waits[2:] == [False, False]
    for _ in range(3):
        waiting(here, jobs, 0.0)
    assert budget(here, answers)[0] >= 1_900
    assert budget(here, jobs[waits.index(False)])[0] > 6 * budget(here, idle)[0]


def test_a_priority_above_the_default_never_waits_and_has_its_memory_first() -> None:
    here = registry()
    above = join(here, 2, 1, wanted_mib=6_000, ready=False)
    jobs = [join(here, owner, priority=-owner, wanted_mib=6_000) for owner in range(2)]
    for _ in range(3):
        waits = waiting(here, [above, *jobs], 0.0)
    assert not waits[0] and sorted(waits[1:]) == [False, True]
    assert budget(here, above)[0] >= 6_000
    running, other = (jobs[waits[1:].index(one)] for one in (False, True))
    assert budget(here, running)[0] > 4 * budget(here, other)[0]


def test_priorities_are_parts_of_the_time() -> None:
    here = registry()
    jobs = [join(here, owner, priority=-5 * owner) for owner in range(2)]
    waited = [0, 0]
    for second in range(400):
        for i, waits in enumerate(waiting(here, jobs, float(second))):
            waited[i] += waits
    assert sum(waited) == 400 and 0.2 < waited[0] / 400 < 0.3  # 1.25^5 is about 3


def test_a_turn_that_is_not_used_is_the_next_job_s() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(3)]
    waits = waiting(here, jobs, 0.0)
    first = jobs[waits.index(False)]
    says(here, first, 1.0, used=False, ready=False)
    assert sum(waiting(here, jobs, 1.0)) == 1  # only jobs with something to run count
    assert not first.waits
    here.remove(first)
    others = [job for job in jobs if job is not first]
    assert sum(waiting(here, others, 2.0)) == 1
    here.remove(others[0])
    assert waiting(here, others[1:], 3.0) == [False]


def test_answers_name_the_jobs_that_wait() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(2)]
    waits = waiting(here, jobs, 0.0)
    assert [here.state_of(job, 0.0).gpus[0].waits for job in jobs] == waits


def yielding(registry: Registry, *jobs: Job) -> list[bool]:
    registry.rearrange(0.0)
    return [grant.yields for job in jobs for grant in registry.grant_of(job, 1000).gpus]


def test_jobs_yield_to_one_of_a_higher_priority_that_uses_the_gpu() -> None:
    here = registry()
    low = join(here, 0, -5, wanted_mib=100)
    assert yielding(here, low) == [False]
    equal = join(here, 1, -5, wanted_mib=100)
    assert yielding(here, low, equal) == [False, False]
    high = join(here, 2, 5, wanted_mib=100)
    between = join(here, 0, 0, wanted_mib=100)
    jobs = low, equal, between, high
    assert yielding(here, *jobs) == [True, True, True, False]
    says(here, high, 1.0, wanted_mib=100, used=False)
    assert here.stale and yielding(here, *jobs) == [True, True, False, False]
    says(here, between, 1.0, wanted_mib=100, used=False)
    assert yielding(here, *jobs) == [False] * 4
    says(here, high, 2.0, wanted_mib=100)
    assert {job.number for job in here.rearrange(2.0)} >= {low.number, equal.number}
    here.remove(high)
    assert yielding(here, low, equal, between) == [False] * 3


# ---- a job's reports about itself, and who gains by them ----


def shares(registry: Registry, jobs: list[Job], lies: dict[int, dict[str, object]]) -> list[float]:
    """Returns each job's share of 800 s, if jobs adopt at once and some send false reports."""
    ran = [0] * len(jobs)
    for second in range(800):
        for place, job in enumerate(jobs):
            held = job.granted.get(GPU, 0)
            more = {"adopted_bytes": held, "resident_bytes": held} | lies.get(place, {})
            made = wire.Report(job.grant_number, 1, 0, 0, (entry(**more),))  # type: ignore[arg-type]
            registry.take_report(job, made, float(second))
        registry.on_time(float(second))
        registry.rearrange(float(second))
        ran = [had + (GPU not in job.waits) for had, job in zip(ran, jobs, strict=True)]
    return [had / 800 for had in ran]


def test_a_job_that_uses_a_gpu_and_is_never_ready_has_turns_like_all() -> None:
    here = registry()
    jobs = [join(here, owner) for owner in range(3)]
    honest, other, lies = shares(here, jobs, {2: {"ready": False}})
    assert honest >= 0.3 and other >= 0.3 and lies <= 0.4


def test_no_claim_of_what_it_holds_or_needs_earns_a_job_more_of_the_time() -> None:
    lies: list[dict[str, object]] = [
        {"resident_bytes": 0},
        {"resident_bytes": TOTAL * MIB, "adopted_bytes": TOTAL * MIB},
        {"least_bytes": TOTAL * MIB},
        {"wanted_bytes": 1 << 50},
        {"use": 1},
        {"ready": False, "use": 1},
    ]
    for one in lies:
        here = registry()
        honest, lying = shares(here, [join(here, owner) for owner in range(2)], {1: one})
        assert honest >= 0.45, one
        assert lying <= 0.57, one


def test_one_that_says_it_uses_a_gpu_for_none_of_the_time_counts_as_one_that_does_not() -> None:
    """So an idle job of the previous release, which reports only a use of 0, has no turns."""
    here = registry()
    jobs = [join(here, owner) for owner in range(2)]
    idle = join(here, 2, use=0, ready=False)
    assert sum(waiting(here, jobs, 0.0)) == 1 and not idle.waits
    for _ in range(3):
        waiting(here, jobs, 0.0)
    running = next(job for job in jobs if not job.waits)
    assert budget(here, running)[0] > 6 * budget(here, idle)[0]
