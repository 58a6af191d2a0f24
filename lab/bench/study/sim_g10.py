"""The machine of G10's artifact (github.com/platformxlab/G10), for pump, and its example results.

It has 40 GiB of GPU memory, 15.754 GB/s each way, faults without cost, and 128 GiB of host memory.
Flash is the next tier, with 12 and 16 us. These numbers are from the artifact's configuration.
study/papers/artifact.py simulates the artifact itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pump_lab.profiles import Profile
    from pump_lab.sim.simulation import Machine

PROFILE = "a100-pcie4"
MEMORY_BYTES = 40 << 30
RATE = 15.754
SETTINGS = {
    **dict.fromkeys(
        ("link.prefetch_h2d_gbps", "link.copy_h2d_gbps", "link.copy_d2h_gbps"),
        str(RATE),
    ),
    "link.duplex_in": "1",
    "link.duplex_out": "1",
    **dict.fromkeys(
        (
            *("uvm.fault_base_us", "uvm.fault_replay_us", "uvm.fault_block_us"),
            *("uvm.fault_page_us", "uvm.evict_us", "uvm.cpu_pte_us", "uvm.cpu_unmap_us"),
            "uvm.cpu_unmap_page_us",
            "uvm.fault_wake_us",
            *("uvm.host_alloc_us", "uvm.prefetch_call_us", "uvm.prefetch_block_us"),
            *("kernels.launch_us", "uvm.discard_call_us", "uvm.discard_block_us"),
        ),
        "0",
    ),
}
HOST_BYTES = 128 << 30
FLASH_GBPS = 3.2, 3.0
FLASH_US = 12.0, 16.0
"""Rates and latencies of flash for reads and writes; the artifact has equal rates for both."""


class Published(NamedTuple):
    """Values of example_results. Times are cycles of 1.2 GHz, so only their ratios count. Bytes are
    in pages of 4 KiB (overall_traffic): from flash, to flash, from the host, to the host."""

    scheduled: int
    uvm: int
    ideal: int
    uvm_pages: tuple[int, int, int, int]
    uvm_iteration: int
    """Index of the published iteration. Arrivals equal evictions only in the second."""


PUBLISHED = {
    "BERT_Base_b256": Published(8773229325, 23580084389, 8742558777, (0, 0, 45385726, 45385726), 1),
    "VIT_b1280": Published(
        6647685439, 29519610761, 4459141336, (6142981, 6142981, 52147993, 52147993), 1
    ),
    "Inceptionv3_b1536": Published(
        73303772339, 337188727906, 71633241480, (16868024, 179317540, 16568024, 50122456), 0
    ),
    "ResNet152_b1280": Published(
        137304113890, 562689016883, 135107260924, (53413406, 294049213, 19255672, 52810104), 0
    ),
    "SENet154_b1024": Published(
        170748120306, 876972455232, 159444570406, (75357583, 479537590, 17413090, 50967522), 0
    ),
}


def machine_of(profile: Profile) -> Machine:
    """Returns the artifact's machine. `profile`: with SETTINGS."""
    from pump_lab.sim.host import Host
    from pump_lab.sim.simulation import Machine

    return Machine(profile, MEMORY_BYTES, host=Host(HOST_BYTES, FLASH_GBPS, FLASH_US))
