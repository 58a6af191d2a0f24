"""The cost of modelled calls and waits for their thread: work takes its CPU time, waits block.

CPU times do not depend on other load of the machine; wall times have only lower bounds.
"""

from __future__ import annotations

import subprocess

import pytest
from virtual_driver import GIB, build, needs_bindings_of_13, profile, run

pytest.importorskip("cuda.bindings.nvrtc")

BLOCKS = 10
STEPS = ("prefetch_call", "prefetch_block", "host_alloc", "cpu_pte", "cpu_unmap")
FREE = {f"uvm.{step}_us": "0" for step in STEPS}
WORKING = FREE | {"uvm.cpu_pte_us": "40", "uvm.cpu_unmap_us": "20000"}
"""In each direction a block takes about 20 ms of work, which covers the copies of others."""
COPYING = FREE | {"link.copy_d2h_gbps": "0.1"}
"""To the host, the call waits 21 ms for each block."""
SECONDS = BLOCKS * 0.02
OWN_SECONDS = 0.03
"""CPU seconds that the driver's own code, and its lead before wake-ups, stay far below."""


def costs(settings: dict[str, str]) -> list[tuple[float, float, int]]:
    flat = profile("timing", GIB, **settings)
    found = run("prefetch_costs", str(BLOCKS), env={"PUMP_VIRTUAL_PROFILE": flat}).found
    return [tuple(cost) for cost in found]


def test_no_function_of_the_driver_yields() -> None:
    symbols = ["nm", "-D", "--undefined-only", str(build() / "libcuda.so.1")]
    done = subprocess.run(symbols, capture_output=True, text=True, timeout=60, check=True)
    assert "clock_nanosleep" in done.stdout
    assert "yield" not in done.stdout


@needs_bindings_of_13
def test_the_work_of_a_call_is_paid_in_the_threads_own_processor_time() -> None:
    for wall, processor, blocked in costs(WORKING):
        assert SECONDS <= processor <= SECONDS + OWN_SECONDS
        assert wall >= SECONDS
        assert blocked <= BLOCKS, "work does not block"


@needs_bindings_of_13
def test_a_wait_for_copies_leaves_the_processor_to_others() -> None:
    (wall, processor, _), _ = costs(COPYING)
    assert wall >= SECONDS
    assert processor <= OWN_SECONDS


@pytest.mark.alone
@needs_bindings_of_13
def test_a_profile_may_spin_through_waits_for_copies_instead() -> None:
    (wall, processor, _), _ = costs(COPYING | {"uvm.copy_wait_spin": "1"})
    assert wall >= SECONDS
    assert processor > OWN_SECONDS


@needs_bindings_of_13
def test_a_profile_may_take_work_for_waits_in_part() -> None:
    for wall, processor, _ in costs(WORKING | {"uvm.call_work_share": "0.25"}):
        assert wall >= SECONDS
        assert SECONDS / 4 <= processor <= SECONDS / 4 + OWN_SECONDS


@pytest.mark.alone
def test_waits_for_kernels_block_and_end_on_time() -> None:
    slow = profile("timing", GIB, **{"kernels.min_us": "2000"})
    found = run("waits_for_kernels", env={"PUMP_VIRTUAL_PROFILE": slow}).found
    kernels_s = 0.002 * len(found["late_us"])
    assert found["processor"] < kernels_s / 2
    assert found["late_us"][len(found["late_us"]) // 10] < 200
