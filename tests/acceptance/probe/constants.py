"""Derives constants of the cost model from the answers. Pure; formulas: docs/uvm.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe.driver import BLOCK, KIB
from probe.figures import Json, rounded
from probe.questions.ask_copies import MEMSET_BLOCKS
from probe.questions.ask_faults import SWEPT_BLOCKS


def dig(tree: Any, *path: str) -> float | None:
    """Returns the number at a path of keys, or None."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return float(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else None


def subtract(left: float | None, *rights: float | None) -> float | None:
    """Returns left minus all rights, at least 0; None if any value is unknown."""
    if left is None or any(right is None for right in rights):
        return None
    return max(left - sum(right for right in rights if right is not None), 0.0)


def collapse_us(
    per_block: float | None, base_replay: float | None, block: float | None
) -> float | None:
    """Returns the cost per 4 KiB page of a write to a duplicated block, minus its fault batches."""
    pages = subtract(per_block, base_replay, base_replay, block, block)
    return None if pages is None else pages / (BLOCK / (4 * KIB))


Reader = Callable[..., float | None]  # at("faults", "warm_touch_us", "p10")


def least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


BATCHES_OF_A_BLOCK = 6
"""Number of fault batches in which a sweeping kernel brings a block in (docs/uvm.md)."""


def fault_constants(at: Reader, memset_gbps: float | None) -> Json:
    """Returns the costs of a fault batch, from memory that has no pages yet: nothing is copied.

    `base_replay`: cost of a batch in a sweep, whose batches follow one another. `wake`: extra time
    of a kernel's first fault, because the driver's fault handler was idle. `copied`: extra cost of
    a block whose pages a sweep's faults copy, compared with a fresh block.
    """

    def faults(name: str, *path: str) -> float | None:
        return at("faults", name, *path) if path else at("faults", name, "p10")

    slot = "slots_of_64_kib_in_one_block_us"
    zeroing = 64 * KIB / memset_gbps / 1e3 if memset_gbps else 0.0
    page = subtract(faults(f"fresh_32_{slot}"), faults(f"fresh_1_{slot}"))
    page = max(page / 31 - zeroing, 0.0) if page is not None else None
    fresh_block = faults("fresh_fit_one_page_a_block", "per_block_us")
    block = subtract(fresh_block, page)
    first = subtract(faults("fresh_one_page_in_each_of_1_blocks_us"), faults("warm_touch_us"))
    unmapped = subtract(faults("fit_one_page_a_block", "per_block_us"), fresh_block)
    fresh_sweep = subtract(faults("fresh_sequential_write_us"), faults("warm_touch_us"))
    base_replay = None
    if fresh_sweep is not None and page is not None:
        batches = subtract(fresh_sweep / SWEPT_BLOCKS, 32 * (page + zeroing))
        base_replay = subtract(batches and batches / BATCHES_OF_A_BLOCK, block)
    sweep = subtract(
        at("faults", "sequential_write", "us", "p10"), faults("fresh_sequential_write_us")
    )
    copied = subtract(sweep / SWEPT_BLOCKS if sweep is not None else None, unmapped)
    return {
        "base_replay_us": base_replay,
        "wake_us": subtract(first, base_replay, block, page, zeroing),
        "block_us": block,
        "page_us": page,
        "demand_gbps": 31 * 64 * KIB / copied / 1e3 if copied else None,
    }


def derive_profile(questions: Json) -> Json:
    """Suggests constants of the cost model from the answers; None if nothing was learned.

    Units are in the names: GB/s (1e9 bytes), microseconds. Formulas: docs/uvm.md.
    """
    results = {name: answer.get("result", {}) for name, answer in questions.items()}

    def at(*path: str) -> float | None:
        return dig(results, *path)

    memset = at("kernel_speed", "memset", "plain_gbps")
    fault = fault_constants(at, memset)
    d2h = at("copy_engine", "d2h_gbps")
    total = at("prefetch_idle", "fit_in_total", "per_block_us")
    rates = [at("prefetch_idle", "256_mib", "in", "gbps"), BLOCK / total / 1e3 if total else None]
    rates.append(at("prefetch_idle", "256_mib", "in_after_a_fault_each", "gbps"))
    threads = results.get("prefetch_threads", {})
    rates += [dig(row, "in_gbps", "max") for row in threads.values()]
    h2d = max((rate for rate in rates if rate is not None), default=None)
    passes = at("populate", "fit_prefetch_caller", "per_block_us")
    one_call = at("populate", "2_mib", "prefetch", "caller_us", "p10")
    # With several blocks, copying and mapping overlap; a single block waits for its copy.
    copied = BLOCK / d2h / 1e3 if d2h else None
    one_out = at("prefetch_idle", "2_mib", "out", "caller_us", "p10")
    mapped = subtract(one_out, one_call, copied)
    by_memset = subtract(
        at("small_copies", "cuMemsetD8Async_on_host", "us", "p10"),
        at("small_copies", "cuMemsetD8Async_resident", "us", "p10"),
    )
    by_kernel = subtract(
        at("faults", "32_slots_of_64_kib_in_one_block_us", "p10"),
        at("faults", "warm_touch_us", "p10"),
        fault["wake_us"],
    )
    kernel_min = at("markers", "us_per_launch_marker_every_never", "p10")
    # A launch hands over its work after converting its arguments, which is most of its
    # caller's time.
    nothing = at("markers", "idle_nothing_us", "p10")
    asking = subtract(at("markers", "idle_refused_us", "p10"), nothing)
    launching = nothing + asking * 2 / 3 if nothing is not None and asking is not None else None
    idle = subtract(at("markers", "idle_launch_us", "p10"), launching)
    profile = {
        "bw_h2d_gbps": h2d,
        "copy_h2d_gbps": at("copy_engine", "h2d_gbps"),
        "copy_d2h_gbps": d2h,
        "bw_demand_gbps": least(fault["demand_gbps"], h2d) if fault["demand_gbps"] else None,
        "delta_in": at("copy_engine", "h2d_share_in_company"),
        "delta_out": at("copy_engine", "d2h_share_in_company"),
        "t_wake_us": fault["wake_us"],
        "t0_replay_us": fault["base_replay_us"],
        "t_blk_us": fault["block_us"],
        "t_pg_us": fault["page_us"],
        "t_ev_us": None,
        "t_call_hblk_us": subtract(one_call, at("prefetch_idle", "refused_us", "p10")),
        "t_hblk_passes_us": passes,
        "t_cpupte_us": mapped / 512 if mapped is not None else None,
        "t_hostalloc_us": at("way_back", "first_out_extra_us_per_block"),
        "t_cpuunmap_us": subtract(at("prefetch_idle", "fit_in_caller", "per_block_us"), passes),
        "t_nonreplayable_us": subtract(
            by_memset / MEMSET_BLOCKS if by_memset is not None else None, by_kernel
        ),
        "t_discard_us": subtract(
            at("discard", "fit_caller", "fixed_us"), at("discard", "refused_us", "p10")
        ),
        "t_discard_block_us": at("discard", "fit_caller", "per_block_us"),
        "t_advise_us": subtract(
            at("duplicates", "fit_end", "fixed_us"), at("duplicates", "refused_us", "p10")
        ),
        "t_advise_block_us": at("duplicates", "fit_end", "per_block_us"),
        "t_collapse_page_us": collapse_us(
            at("duplicates", "collapse", "fit", "per_block_us"),
            fault["base_replay_us"],
            fault["block_us"],
        ),
        "bw_memset_gbps": memset,
        "kernel_gbps": at("kernel_speed", "copy_kernel", "plain_gbps"),
        "kernel_min_us": kernel_min,
        "kernel_idle_us": idle,
        "kernel_launch_us": subtract(idle, kernel_min),
    }
    return {name: None if value is None else rounded(value) for name, value in profile.items()}
