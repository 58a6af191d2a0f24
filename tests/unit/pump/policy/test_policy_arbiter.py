"""The arbiter's guarantees over thousands of random machines: how jobs share GPUs."""

from __future__ import annotations

import random
import sys

import pytest

from pump.model.bounds import BLOCK_BYTES
from pump.policy.arbiter import LEAST_BLOCKS, SPILL_BYTES, Claim, arbitrate, less_spill

GIB = 1 << 30
CASES = 600


def drawn(source: random.Random) -> tuple[dict[str, int], list[Claim]]:
    gpus = {f"gpu{i}": source.randrange(40, 50_000) * BLOCK_BYTES for i in range(3)}
    claims = [
        Claim(
            job,
            gpu,
            source.choice((-1, 0, 0, 0, 2)),
            source.choice((0, source.randrange(1 << 24), source.randrange(1 << 38))),
            source.choice((0.0, 1.0, source.random())),
            source.choice((1.0, 1.0, 4.0, 1000.0)),
            source.choice((0, 0, source.randrange(1 << 32), 1 << 60)),
        )
        for job in range(source.randrange(1, 12))
        for gpu in gpus
        if source.random() < 0.6
    ]
    return gpus, claims


@pytest.mark.parametrize("seed", range(3))
def test_all_memory_is_given_out_and_no_more_and_a_minimum_to_each(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(CASES):
        gpus, claims = drawn(source)
        budgets = arbitrate(gpus, claims)
        assert budgets.keys() == {(claim.job, claim.gpu) for claim in claims}
        for gpu, memory in gpus.items():
            mine = [bytes_ for (_, name), bytes_ in budgets.items() if name == gpu]
            if mine:
                assert sum(mine) == memory
                least = min(LEAST_BLOCKS, memory // BLOCK_BYTES // len(mine)) * BLOCK_BYTES
                assert min(mine) >= least
            assert all(bytes_ % BLOCK_BYTES == 0 for bytes_ in mine)


@pytest.mark.parametrize("seed", range(3))
def test_a_higher_priority_never_gets_a_job_less(seed: int) -> None:
    source = random.Random(100 + seed)
    for _ in range(CASES):
        gpus, claims = drawn(source)
        if not claims:
            continue
        place = source.randrange(len(claims))
        claim = claims[place]
        before = arbitrate(gpus, claims)[claim.job, claim.gpu]
        claims[place] = claim._replace(priority=claim.priority + source.randrange(1, 4))
        assert arbitrate(gpus, claims)[claim.job, claim.gpu] >= before


@pytest.mark.parametrize("seed", range(3))
def test_no_job_gets_more_than_it_wants_while_an_equal_or_higher_one_wants(seed: int) -> None:
    source = random.Random(200 + seed)
    for _ in range(CASES):
        gpus, claims = drawn(source)
        budgets = arbitrate(gpus, claims)
        for gpu, memory in gpus.items():
            mine = [claim for claim in claims if claim.gpu == gpu]
            weights = sum(one.weight for one in mine)
            for one in mine:
                got = budgets[one.job, gpu]
                if got >= min(one.wanted_bytes, memory):
                    continue
                for other in mine:
                    floor = memory * other.weight // (16 * weights) + LEAST_BLOCKS * BLOCK_BYTES
                    if other.priority <= one.priority and other != one:
                        more = budgets[other.job, gpu] - max(other.wanted_bytes, floor)
                        assert more < BLOCK_BYTES, "it has what the other wants"


def test_the_order_of_claims_is_no_matter() -> None:
    source = random.Random(7)
    for _ in range(CASES):
        gpus, claims = drawn(source)
        shuffled = source.sample(claims, len(claims))
        assert arbitrate(gpus, claims) == arbitrate(gpus, shuffled)


def test_equal_jobs_get_equal_shares_and_idle_ones_give_way() -> None:
    two = [Claim(1, "g", 0, 8 * GIB, 1.0), Claim(2, "g", 0, 8 * GIB, 1.0)]
    assert arbitrate({"g": 10 * GIB}, two) == {(1, "g"): 5 * GIB, (2, "g"): 5 * GIB}
    idle = [two[0], two[1]._replace(use=0.0)]
    budgets = arbitrate({"g": 10 * GIB}, idle)
    assert budgets[1, "g"] == 8 * GIB, "all that it wants"
    assert budgets[2, "g"] == 2 * GIB


def test_weights_count_within_a_priority() -> None:
    claims = [Claim(1, "g", 0, 8 * GIB, 1.0), Claim(2, "g", 0, 8 * GIB, 1.0, 3.0)]
    budgets = arbitrate({"g": 8 * GIB}, claims)
    assert 2.7 < budgets[2, "g"] / budgets[1, "g"] <= 3.0, "but for the floors"


def test_a_high_priority_has_what_it_wants_and_others_their_floor() -> None:
    claims = [Claim(1, "g", 5, 8 * GIB, 1.0), Claim(2, "g", 0, 8 * GIB, 1.0)]
    budgets = arbitrate({"g": 8 * GIB}, claims)
    assert budgets[1, "g"] >= 0.9 * 8 * GIB
    assert budgets[2, "g"] >= 8 * GIB // 32


def test_jobs_of_many_do_not_shrink_the_floor_of_one_that_weighs_as_much_as_they_together() -> None:
    one = Claim(0, "g", 0, 8 * GIB, 1.0)
    many = [Claim(job, "g", 10, 8 * GIB, 1.0, 1 / 15) for job in range(1, 16)]
    assert arbitrate({"g": 8 * GIB}, [one, *many])[0, "g"] >= 8 * GIB // 32


def test_room_is_left_for_what_spills_out_of_jobs_that_have_less_than_they_want() -> None:
    gpus = {"g": 8 * GIB}
    one, other = Claim(1, "g", 0, 8 * GIB, 1.0), Claim(2, "g", 5, 4 * GIB, 1.0)
    assert less_spill(gpus, []) == gpus
    assert less_spill(gpus, [one._replace(wanted_bytes=9 * GIB)]) == gpus, "no job is hit by it"
    assert less_spill(gpus, [other, other._replace(job=3)]) == gpus, "all have what they want"
    assert less_spill(gpus, [one, other]) == {"g": 8 * GIB - SPILL_BYTES}
    assert less_spill(gpus, [one, one._replace(job=2)]) == {"g": 8 * GIB - 2 * SPILL_BYTES}
    small = {"g": 320 * BLOCK_BYTES}
    assert less_spill(small, [one, other]) == {"g": 300 * BLOCK_BYTES}, "a sixteenth at most"
    budgets = arbitrate(less_spill(gpus, [one, other]), [one, other])
    assert budgets[2, "g"] == 4 * GIB, "it comes out of the share of those that spill"


def test_more_jobs_than_blocks_share_what_there_is() -> None:
    claims = [Claim(job, "g", 0, GIB, 1.0, 1000.0 if job == 3 else 1.0) for job in range(40)]
    assert sum(arbitrate({"g": 160 * BLOCK_BYTES}, claims).values()) == 160 * BLOCK_BYTES
    claims = [Claim(job, "g", 0, GIB, 1.0) for job in range(10)]
    budgets = arbitrate({"g": 7 * BLOCK_BYTES}, claims)
    assert sum(budgets.values()) == 7 * BLOCK_BYTES
    assert arbitrate({}, claims) == {} == arbitrate({"other": GIB}, [])  # nothing to share


def test_what_decides_between_jobs_needs_no_numpy() -> None:
    import subprocess

    code = (
        "import sys, pump.policy.arbiter, pump.policy.leases; "
        "assert 'numpy' not in sys.modules and '_cffi_backend' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_job_of_a_low_priority_has_what_one_operation_needs_up_to_a_bound() -> None:
    memory = 1600 * BLOCK_BYTES
    first = Claim(1, "gpu", 10, memory, 1.0)

    def low(least_blocks: int, weight: float = 1.0, wanted_blocks: int = 800) -> int:
        least_bytes = least_blocks * BLOCK_BYTES - 1
        claim = Claim(2, "gpu", 0, wanted_blocks * BLOCK_BYTES, 1.0, weight, max(0, least_bytes))
        budgets = arbitrate({"gpu": memory}, [first, claim])
        assert sum(budgets.values()) == memory
        return budgets[2, "gpu"] // BLOCK_BYTES

    assert low(0) == low(50) == 50, "half of a sixteenth"
    assert low(77) == 77
    assert low(101) == low(1 << 40) == 100, "half of an eighth"
    assert low(101, weight=3.0) == 101
    assert low(90, wanted_blocks=60) == 60


# ---- users ----


def hostile(source: random.Random, user: int, first: int) -> list[Claim]:
    """Returns jobs of one user, that claim anything."""
    weight = source.choice((0.25, 1.0, 1.0, 8.0))
    jobs = source.choice((1, 1, 7, 31, 100))
    sizes = 0, source.randrange(1 << 34), 1 << 38, 1 << 60
    return [
        Claim(
            first + job,
            "g",
            0,
            source.choice(sizes),
            source.choice((0.0, 0.5, 1.0)),
            weight,
            source.choice(sizes),
            user,
        )
        for job in range(jobs)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_user_has_its_weights_share_of_the_bytes_less_8_mib_a_job(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(CASES // 3):
        memory = source.choice((2000, 10_000, 40_000)) * BLOCK_BYTES
        users = [hostile(source, user, 1000 * user) for user in range(1, source.randrange(2, 6))]
        weight = source.choice((0.5, 1.0, 4.0))
        honest = [
            Claim(job, "g", 0, source.choice((memory, 2 * memory)), 1.0, weight, 0, 0)
            for job in range(source.choice((1, 1, 3)))
        ]
        honest += [honest[0]._replace(job=10 + job, use=0.0, wanted_bytes=0) for job in range(2)]
        claims = [*honest, *(claim for ones in users for claim in ones)]
        budgets = arbitrate({"g": memory}, claims)
        share = memory * weight / (weight + sum(ones[0].weight for ones in users))
        has = sum(budgets[one.job, "g"] for one in honest)
        assert has >= share - LEAST_BLOCKS * BLOCK_BYTES * len(claims)
        assert sum(budgets.values()) == memory


def test_what_one_of_a_users_jobs_leaves_is_that_users_others() -> None:
    mine = [Claim(1, "g", 0, GIB, 1.0, user=1), Claim(2, "g", 0, 8 * GIB, 1.0, user=1)]
    budgets = arbitrate({"g": 8 * GIB}, [*mine, Claim(3, "g", 0, 8 * GIB, 1.0, user=2)])
    assert budgets == {(1, "g"): GIB, (2, "g"): 3 * GIB, (3, "g"): 4 * GIB}


def test_one_users_jobs_have_the_room_of_one_that_spills() -> None:
    many = [Claim(job, "g", 0, 8 * GIB, 1.0, user=1) for job in range(1, 32)]
    one = Claim(0, "g", 0, 8 * GIB, 1.0, user=0)
    assert less_spill({"g": 8 * GIB}, [one, *many]) == {"g": 8 * GIB - 2 * SPILL_BYTES}
