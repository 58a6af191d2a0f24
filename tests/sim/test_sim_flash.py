"""A host that cannot hold all evicted blocks, and a flash tier below it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from sim_programs import DATA, MS, cyclic, machine

from pump.model.bounds import BLOCK_BYTES
from pump.policy.scheduled import Window
from pump_lab.sim import report, tensors
from pump_lab.sim.host import Host
from pump_lab.sim.named_policies import by_name, simulate
from pump_lab.sim.program import ProgramError
from pump_lab.sim.simulation import Machine, Outcome, run

SWEEP = cyclic(3, 4, 2, MS)  # 3 buffers of 4 blocks; each kernel uses one buffer


def swept(host: Host | None, *, window: bool = False) -> Outcome:
    gpu = replace(machine(4 if not window else 8), host=host)
    return run(SWEEP, gpu, Window() if window else None)


def test_what_comes_to_a_full_host_goes_on_to_flash_and_is_read_again() -> None:
    found = swept(Host(4 * BLOCK_BYTES, (1.0, 2.0))).whole
    # The sweep uses buffers 0 1 2 0 1 2. The host has 0 when 1 leaves, so 1 is written. The next
    # writes are the first block of 2, which makes space before 0 returns; the last three of 0; and
    # the first two of 1.
    assert found.counters["flash_write_bytes"] == (4 + 1 + 3 + 2) * BLOCK_BYTES
    assert found.counters["flash_read_bytes"] == (4 + 1) * BLOCK_BYTES, "1, and that one of 2"
    reading_s = 5 * BLOCK_BYTES / 1e9
    assert found.seconds > reading_s + swept(None).whole.seconds * 0.5


def test_of_a_loop_over_more_than_the_host_holds_only_the_rest_is_on_flash() -> None:
    sweep = cyclic(8, 4, 6, MS)  # 32 blocks: 4 on the GPU, 24 in the host, 4 on flash
    gpu = replace(machine(4), host=Host(24 * BLOCK_BYTES, (1.0, 2.0)))
    read, written = (
        run(sweep, gpu).whole.counters[f"flash_{way}_bytes"] for way in ("read", "write")
    )
    assert 0 < read <= written <= 6 * 32 * BLOCK_BYTES // 4


def test_flash_is_left_alone_where_the_host_holds_everything() -> None:
    large = swept(Host(12 * BLOCK_BYTES, (0.01, 0.01))).whole
    assert large.counters["flash_write_bytes"] == large.counters["flash_read_bytes"] == 0
    assert large.seconds == swept(None).whole.seconds


def test_slower_flash_takes_longer_under_pump_too() -> None:
    fast = swept(Host(2 * BLOCK_BYTES, (10.0, 10.0)), window=True).whole
    slow = swept(Host(2 * BLOCK_BYTES, (0.5, 0.5)), window=True).whole
    assert fast.counters["flash_read_bytes"] > 0
    assert slow.seconds > 1.2 * fast.seconds


def test_without_flash_a_host_that_is_too_small_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(ProgramError, match=r"0\.02 GiB of host memory.*or add --flash"):
        swept(Host(11 * BLOCK_BYTES))
    assert swept(Host(12 * BLOCK_BYTES)).whole.seconds == swept(None).whole.seconds
    with pytest.raises(ProgramError, match="must be positive"):
        swept(Host(4 * BLOCK_BYTES, (0.0, 1.0)))


# ---- the known operations decide what is on flash -----------------------------------------

VIT = tensors.parse((DATA / "vit_b256_marginal.json.xz").read_bytes(), "vit")
RATES = 3.2, 3.0


@cache
def vit(host: Host | None, policy: str = "planned+discard", iterations: int = 3) -> Outcome:
    program = vit_case(host, iterations).of(by_name(policy))
    assert program is not None
    return simulate(by_name(policy), program, vit_machine(host))


@cache
def vit_case(host: Host | None, iterations: int = 3) -> report.Case:
    plain, discarding = (
        tensors.program(VIT, iterations=iterations, discard=discard) for discard in (False, True)
    )
    return report.Case(plain, vit_machine(host), discarding)


def vit_machine(host: Host | None) -> Machine:
    plain = tensors.program(VIT)
    return Machine(machine(1).profile, plain.peak_bytes // 2, host=host)


@pytest.mark.parametrize("policy", ["window+discard", "planned+discard"])
def test_of_a_training_only_what_has_to_be_on_flash_is_written_once(policy: str) -> None:
    """Decision 0064 has times relative to enough memory: the floor is 3.28. If blocks are
    written only when the host is full, the run takes 4.35."""
    host = Host(4 << 30, RATES)
    found = vit(host, policy).steady
    alone = report.unlimited(vit_case(host)).steady.seconds
    over = vit_case(host).program.peak_bytes // 2 - host.memory_bytes
    assert found.seconds <= 3.7 * alone
    assert found.counters["flash_write_bytes"] <= 1.1 * over
    assert found.counters["flash_read_bytes"] <= 1.1 * over
    as_it_comes = vit(replace(host, ahead=False), policy).steady
    assert as_it_comes.seconds >= 1.15 * found.seconds


def test_no_policy_is_faster_than_the_floor_with_flash() -> None:
    pytest.importorskip("scipy")
    for host in (Host(4 << 30, RATES), Host(3 << 30, (6.4, 2.0), writes_a_day=100e12)):
        case = vit_case(host, 5)
        floor = report.floor_of_parts(case)
        assert floor is not None
        found = vit(host, "planned+discard", 5)
        mean = sum(stretch.seconds for stretch in found.stretches[2:]) / 3
        assert 0.9 * mean <= floor <= mean


def test_a_write_budget_is_kept_by_each_policy() -> None:
    host = Host(4 << 30, RATES, writes_a_day=20e12)
    for policy in ("window+discard", "planned+discard", "naive+discard"):
        whole = vit(host, policy).whole
        assert whole.counters["flash_write_bytes"] <= 20e12 / 86_400 * whole.seconds, policy
        assert vit(host, policy).steady.seconds > vit(replace(host, writes_a_day=None), policy
                                                      ).steady.seconds  # fmt: skip


def test_no_policy_writes_to_flash_what_the_host_can_hold() -> None:
    host = Host(12 << 30, (0.01, 0.01))
    for policy in ("window", "planned+discard"):
        assert vit(host, policy).whole.counters["flash_write_bytes"] == 0


def test_latencies_of_flash_take_time() -> None:
    host = Host(4 * BLOCK_BYTES, (1.0, 2.0))
    late = swept(replace(host, flash_us=(1000.0, 500.0))).whole
    assert late.counters["flash_read_bytes"] == swept(host).whole.counters["flash_read_bytes"]
    assert late.seconds > swept(host).whole.seconds + 0.002


def test_what_makes_no_sense_of_flash_is_refused() -> None:
    for facts in ({"flash_us": (-1.0, 0.0)}, {"writes_a_day": 0.0}):
        with pytest.raises(ProgramError, match="must be at least 0"):
            swept(Host(4 * BLOCK_BYTES, (1.0, 1.0), **facts))  # type: ignore[arg-type]
