"""Lists answers that hold only for one kind of runtime, with the reason. Pure.

gVisor runs between a program and the kernel's driver: a call passes through gVisor's own kernel.
gVisor sets up the driver to serve several processes; evictions then work differently.
"""

from __future__ import annotations

from probe.figures import Json

GVISOR = "gvisor"
KEY = "not_transferable"
OUT = "a prefetch to the host leaves out the CPU's page tables there and returns early"
CALL = "the CPU's part of a call goes through gVisor's own kernel"
DISCARD = "gVisor does not pass UVM_DISCARD on to the driver"

QUESTIONS = {
    "discard": DISCARD,
    "duplicates": f"`departure`, `page_map`: {OUT}; {CALL}",
    "felt_by_others": OUT,
    "lanes": f"`out` of busy lanes: {OUT}",
    "prefetch_idle": f"`out`, `first_out` and all `caller_us`: {OUT}; {CALL}",
    "prefetch_scattered": f"`out` and all `caller_us`: {OUT}; {CALL}",
    "prefetch_busy": f"`out` and all `caller_us`: {OUT}; {CALL}",
    "prefetch_threads": f"`out_gbps`: {OUT}",
    "duplex": OUT,
    "populate": f"`caller_us`: {CALL}",
    "way_back": OUT,
    "call_cost": CALL,
    "markers": f"`idle_*`: {CALL}",
    "poller": CALL,
    "pinned_copies": CALL,
    "waits": CALL,
    "alloc_cost": CALL,
    "stream_memops": f"`prefetch_out_behind_wait`: {OUT}",
    "managed_pool": f"`out`: {OUT}",
}
CONSTANTS = {
    "t_ev_us": CALL,
    "t_call_hblk_us": CALL,
    "t_hblk_passes_us": CALL,
    "t_cpupte_us": OUT,
    "t_cpuunmap_us": OUT,
    "t_hostalloc_us": OUT,
    "t_discard_us": DISCARD,
    "t_discard_block_us": DISCARD,
    "t_advise_us": CALL,
    "t_advise_block_us": CALL,
    "kernel_idle_us": CALL,
    "kernel_launch_us": CALL,
}
"""Fault constants transfer: they are GPU times, and the host's driver serves the faults."""


def is_gvisor(release: str, version: str) -> bool:
    """Detects gVisor by its name in release or version, or by the version that it long reported."""
    named = "gvisor" in f"{release} {version}".lower()
    return named or (release == "4.4.0" and "2016" in version)


def mark(report: Json) -> None:
    """Adds the reason to each answer, and to `not_transferable` for each constant."""
    runtime = report["host"].get("runtime") or {}
    report[KEY] = dict(CONSTANTS) if runtime.get("kind") == GVISOR else {}
    if not report[KEY]:
        return
    for name, reason in QUESTIONS.items():
        if report["questions"].get(name, {}).get("status") == "ok":
            report["questions"][name][KEY] = reason
