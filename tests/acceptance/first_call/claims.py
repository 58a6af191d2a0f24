"""The claims of docs/uvm.md that an answer of the probe confirms or corrects. Pure.

A claim is named by the beginning of its row. Its judge gets the report and returns a verdict with
the deciding value. docs/uvm.md lists the question that settles each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from probe.constants import dig

from acceptance.contract import Json
from acceptance.first_card import rows

CONFIRMED, WRONG, MEASURED = "confirmed", "wrong", "measured"
Verdict = tuple[str, str]
Judge = Callable[[Mapping[str, Json]], Verdict | None]
FORM_ERRORS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Exceptions that a judge may raise if an answer has an unexpected form."""
SLACK = 0.25
"""A constant may miss the range of a claim by this share."""
FAR_WORSE, FASTER, FREE = 0.5, 1.0, 1.05
CALLER_MOST = 0.9
"""Share of a prefetch's time; a caller that spends at least this share is blocked to the end."""


@dataclass(frozen=True)
class Claim:
    """A claim. `row`: beginning of its row. `questions`, `constants`: inputs of the judge, which
    must all hold for every runtime. The row names the first question."""

    row: str
    questions: tuple[str, ...]
    judge: Judge
    constants: tuple[str, ...] = ()


def answer(report: Mapping[str, Json], *path: str) -> float:
    """Returns the number at a path of an answer. Raises KeyError if it is missing."""
    found = dig(report["questions"][path[0]]["result"], *path[1:])
    if found is None:
        raise KeyError(".".join(path))
    return found


def constant(report: Mapping[str, Json], name: str) -> float:
    """Returns a constant of the report. Raises KeyError if the probe did not learn it."""
    found = report["profile"].get(name)
    if found is None:
        raise KeyError(name)
    return float(found)


def verdict(right: bool, said: str) -> Verdict:
    return (CONFIRMED if right else WRONG), said


def outcome(
    question: str, right: tuple[str, ...], wrong: tuple[str, ...], report: Mapping[str, Json]
) -> Verdict | None:
    """Judges by the row's outcome in docs/first-card.md; None if it is in neither tuple."""
    row = next(row for row in rows.ROWS if row.name == question)
    key, said = row.judge(report["questions"][question]["result"])
    if key not in right + wrong:
        return None
    return verdict(key in right, f"{key}: {said}")


def ranges(report: Mapping[str, Json], **bounds: tuple[float, float]) -> Verdict:
    """Judges whether constants (in microseconds) are in their ranges, with a tolerance of SLACK."""
    found = {name: constant(report, name) for name in bounds}
    right = all(
        low * (1 - SLACK) <= found[name] <= high * (1 + SLACK)
        for name, (low, high) in bounds.items()
    )
    return verdict(right, ", ".join(f"{name} {value:.4g}" for name, value in found.items()))


def locks(report: Mapping[str, Json], otherwise: str = WRONG) -> Verdict:
    """Judges whether mmap waits for a long migration; `otherwise`: the verdict if it does not."""
    control, felt = (
        answer(report, "felt_by_others", "mmap", phase, "mmap", which, "p99")
        for phase, which in (("control", "control"), ("evict_slices_256_mib", "out"))
    )
    waits = felt > max(rows.FELT_MOST * control, control + rows.FELT_US)
    said = f"p99 of mmap {control:.0f} us, beside slices of 256 MiB {felt:.0f} us"
    return (CONFIRMED if waits else otherwise), said


def blocking(report: Mapping[str, Json]) -> Verdict:
    share = {
        way: answer(report, "prefetch_idle", "256_mib", way, "caller_us", "p10")
        / answer(report, "prefetch_idle", "256_mib", way, "total_us", "p10")
        for way in ("out", "in")
    }
    right = share["out"] >= CALLER_MOST > share["in"]
    said = f"of 256 MiB its caller has {share['out']:.2f} of the time out, {share['in']:.2f} in"
    return verdict(right, said)


def deferred(report: Mapping[str, Json]) -> Verdict:
    row = report["questions"]["prefetch_busy"]["result"]["32_mib"]
    waits = [way for way in ("in", "out") if row[way]["caller_waits_for_stream"]]
    said = f"the caller waits for the stream: {' and '.join(waits) or 'neither in nor out'}"
    return verdict(not waits, said)


def out_threads(report: Mapping[str, Json]) -> Verdict:
    one, four = (
        answer(report, "prefetch_threads", f"slices_8_mib_threads_{n}", "out_gbps", "median")
        for n in (1, 4)
    )
    right = 3 * (1 - SLACK) <= one <= 8 * (1 + SLACK) and four > one * (1 + SLACK)
    return verdict(right, f"one out-thread {one:.1f} GB/s, four {four:.1f}")


def rate(report: Mapping[str, Json]) -> Verdict:
    found = constant(report, "bw_h2d_gbps")
    link = report["device"].get("link")
    generation = link.get("max_generation") if isinstance(link, dict) else None
    wanted = {4: 23.0, 5: 50.0}.get(generation or 0)
    said = f"{found:.1f} GB/s" + (f" on PCIe {generation}" if wanted else "")
    return verdict(abs(found / wanted - 1) <= 0.1, said) if wanted else (MEASURED, said)


def duplex(report: Mapping[str, Json]) -> Verdict:
    share = answer(report, "copy_engine", "duplex_factor")
    return verdict(0.44 <= share <= 0.90, f"copies keep {share:.2f}")


def calls(report: Mapping[str, Json]) -> Verdict:
    one, more = constant(report, "t_call_hblk_us"), constant(report, "t_hblk_passes_us")
    each = (1 - SLACK) * 6 <= more <= (1 + SLACK) * 8 * 1.3  # includes the second pass
    right = (1 - SLACK) * 12 <= one <= (1 + SLACK) * 16 and each
    return verdict(right, f"a call of one block {one:.1f} us, each block of more {more:.1f} us")


def demand(report: Mapping[str, Json]) -> Verdict:
    read, copy = (
        answer(report, "faults", "sequential_read", "gbps"),
        constant(report, "copy_h2d_gbps"),
    )
    return verdict(0.22 <= read / copy <= 0.55, f"{read:.1f} of {copy:.1f} GB/s")


def irregular(report: Mapping[str, Json]) -> Verdict:
    near, far = (
        answer(report, "faults", name, "gbps")
        for name in ("sequential_read", "random_64_kib_slots")
    )
    return verdict(far <= FAR_WORSE * near, f"{far:.2f} against {near:.2f} GB/s")


def populate(report: Mapping[str, Json]) -> Verdict:
    prefetch, kernel = (
        answer(report, "populate", "256_mib", way, "gbps") for way in ("prefetch", "kernel")
    )
    said = f"256 MiB at {prefetch:.0f} GB/s, by a kernel's faults at {kernel:.0f}"
    return verdict(prefetch > FASTER * kernel, said)


def allocation(report: Mapping[str, Json]) -> Verdict:
    both = {
        kind: sum(
            answer(report, "alloc_cost", "32768_kib", kind, call, "median")
            for call in ("alloc_us", "free_us")
        )
        for kind in ("managed_touched_by_gpu", "plain_touched_by_gpu")
    }
    managed, plain = both.values()
    return MEASURED, f"32 MiB, allocation and free: {managed:.0f} us, plain {plain:.0f} us"


def small_copy(report: Mapping[str, Json]) -> Verdict:
    def chain(*path: str) -> float:
        return answer(report, "small_copies", *path, "per_block_us")

    there, away = chain("chain_when_resident"), chain("chain_when_on_host")
    after = max(
        chain(f"cuMemcpyDtoH_resident_{kind}", "chain_afterwards")
        for kind in ("pageable", "pinned")
    )
    said = f"a block {after:.2f} us afterwards; resident {there:.2f}, on the host {away:.2f}"
    return verdict(after < (there + away) / 2, said)


def absent(report: Mapping[str, Json]) -> Verdict:
    more = constant(report, "t_nonreplayable_us")
    return verdict(more > 0, f"{more:.1f} us a block more than a kernel's faults")


def words(report: Mapping[str, Json]) -> Verdict:
    result = report["questions"]["stream_memops"]["result"]
    takes = {
        kind: result[kind]["write"]["code"] == 0
        for kind in ("pinned", "device", "managed_on_gpu", "managed_fresh")
    }
    said = ", ".join(f"{kind} {'accepted' if took else 'refused'}" for kind, took in takes.items())
    right = takes["pinned"] and takes["device"]
    return verdict(right and not takes["managed_on_gpu"] and not takes["managed_fresh"], said)


def captured(report: Mapping[str, Json]) -> Verdict:
    result = report["questions"]["capture"]["result"]

    def survives(where: str, name: str) -> bool:
        row = result[where][name]
        return bool(row["capture_after"] == "CUDA_SUCCESS" and row["call"]["code"] == 0)

    fails = not survives("same_thread", "cuMemAlloc") and not survives("other_thread", "cuMemAlloc")
    moves = all(
        survives(where, f"cuMemPrefetchAsync_{way}")
        for where in ("same_thread_relaxed", "other_thread_relaxed")
        for way in ("in", "out")
    )
    said = f"allocation {'fails' if fails else 'does not fail'}; a RELAXED thread's prefetch "
    return verdict(fails and moves, said + ("does not fail" if moves else "fails"))


def markers(report: Mapping[str, Json]) -> Verdict:
    never, spaced = (
        answer(report, "markers", f"us_per_launch_marker_every_{n}", "p10") for n in ("never", "16")
    )
    said = f"a launch {never:.3f} us, with a marker every 16 {spaced:.3f} us"
    return verdict(spaced <= FREE * never, said)


def residency(report: Mapping[str, Json]) -> Verdict:
    after, back = (
        answer(report, "residency", name)
        for name in ("after_prefetch_out", "after_kernel_brought_it_back")
    )
    return verdict(after == back, f"{after:.0f} after a prefetch out, {back:.0f} once faulted back")


def pools(report: Mapping[str, Json]) -> Verdict:
    code = answer(report, "managed_pool", "location_device", "create", "code")
    return verdict(code == 0, f"cuMemPoolCreate of managed memory on the device: {code:.0f}")


def pageable(report: Mapping[str, Json]) -> Verdict:
    access = answer(report, "pageable", "access")
    return MEASURED, f"PAGEABLE_MEMORY_ACCESS is {access:.0f}"


def duplicates(report: Mapping[str, Json]) -> Verdict:
    told = report["questions"]["duplicates"]["result"]["page_map"]["tells_writes"]
    return MEASURED, f"the page map {'tells' if told else 'does not tell'} writes"


FELT = partial(
    outcome, "felt_by_others", ("up_to_32", "up_to_256"), ("up_to_8", "in_its_context", "always")
)
KINDS = partial(outcome, "discard", ("unmaps",), ("keeps_mappings",))


def ranged(row: str, question: str, **bounds: tuple[float, float]) -> Claim:
    """Returns a claim that gives ranges of constants."""

    def judge(report: Mapping[str, Any]) -> Verdict:
        return ranges(report, **bounds)

    return Claim(row, (question,), judge, tuple(bounds))


CLAIMS = (
    Claim("an application thread feels little of an eviction", ("felt_by_others",), FELT),
    Claim("mmap, munmap and cuMemAllocManaged wait", ("felt_by_others",), locks),
    Claim("UVM_MIGRATE holds mmap_lock", ("felt_by_others",), partial(locks, otherwise=MEASURED)),
    Claim("a prefetch to the host holds libcuda's lock", ("felt_by_others",),
          partial(outcome, "felt_by_others", ("in_its_context",), ("up_to_256",))),
    Claim("sparse rows are read in place faster", ("remote",),
          partial(outcome, "remote", ("in_place",), ("slow", "migrates"))),
    Claim("bulk copies of managed memory", ("bulk",),
          partial(outcome, "bulk", ("right",), ("wrong_bits",))),
    Claim("with lazy loading, a function's first launch", ("lazy",),
          partial(outcome, "lazy", ("same_context", "everywhere"), ("drains", "at_once"))),
    Claim("launches do not feel a thread that polls", ("poller",),
          partial(outcome, "poller", ("free",), ("felt",))),
    Claim("copies from pinned memory are as fast", ("pinned_copies",),
          partial(outcome, "pinned_copies", ("same",), ("slower",))),
    Claim("a blocking wait ends soon", ("waits",), partial(outcome, "waits", ("soon",), ("late",))),
    Claim("pump corrects each attribute", ("attributes",),
          partial(outcome, "attributes", ("known",), ("more",))),
    Claim("an executor's lanes take hardware work queues", ("lanes",),
          partial(outcome, "lanes", ("priority", "shared"), ("apart",))),
    Claim("streams of another priority have other queues", ("lanes",),
          partial(outcome, "lanes", ("priority",), ("shared",))),
    Claim("a kernel that reaches managed memory through a tensor map", ("tma",),
          partial(outcome, "tma", ("faults", "packed"), ("wrong_bits",))),
    Claim("prefetch to the CPU blocks its caller", ("prefetch_idle",), blocking),
    Claim("on a busy stream the driver defers", ("prefetch_busy",), deferred),
    Claim("one out-thread moves 3-8 GB/s", ("prefetch_threads",), out_threads),
    Claim("prefetch reaches 23 (PCIe 4)", ("prefetch_idle",), rate, ("bw_h2d_gbps",)),
    Claim("H2D and D2H together keep", ("copy_engine",), duplex),
    Claim("a call costs 6-8 us plus", ("prefetch_idle",), calls,
          ("t_call_hblk_us", "t_hblk_passes_us")),
    ranged("a fault batch costs 51-53 us", "faults",
           t0_replay_us=(51, 53), t_wake_us=(75, 75), t_blk_us=(5, 5), t_pg_us=(0.4, 0.5)),
    Claim("demand paging reaches", ("faults",), demand, ("copy_h2d_gbps",)),
    Claim("irregular access is far worse", ("faults",), irregular),
    Claim("a prefetch populates fresh memory", ("populate",), populate),
    ranged("CPU page tables cost", "prefetch_idle", t_cpupte_us=(0.5, 0.5)),
    ranged("first host pages of a block cost", "way_back", t_hostalloc_us=(120, 150)),
    Claim("a kernel that waits for faults keeps its context's time slice", ("engine",),
          partial(outcome, "engine", ("kept",), ("given_away", "kept_by_waits"))),
    Claim("memory of the system allocator", ("pageable",), pageable),
    ranged("the way back costs an unmap", "way_back", t_cpuunmap_us=(45, 45)),
    Claim("managed memory that is resident runs", ("kernel_speed",),
          partial(outcome, "kernel_speed", ("same",), ("slower",))),
    Claim("allocation and free of managed memory", ("alloc_cost",), allocation),
    Claim("a 4-byte copy of a result", ("small_copies",), small_copy),
    Claim("copies and memsets on absent managed memory", ("small_copies",), absent,
          ("t_nonreplayable_us",)),
    Claim("stream wait and write values refuse", ("stream_memops",), words),
    Claim("cuGetProcAddress returns addresses", ("symbols",),
          partial(outcome, "symbols", ("known",), ("hidden",))),
    Claim("cuFuncGetParamInfo takes either", ("param_info",),
          partial(outcome, "param_info", ("either",), ("own", "wrong"))),
    Claim("inside or beside a GLOBAL capture", ("capture",), captured),
    Claim("markers cost next to nothing", ("markers",), markers),
    Claim("LAST_PREFETCH_LOCATION is the last request", ("residency",), residency),
    Claim("the driver has stream-ordered managed pools", ("managed_pool",), pools),
    Claim("memory that was only read leaves", ("duplicates",), duplicates),
    ranged("a discard costs its caller", "discard",
           t_discard_us=(6, 8), t_discard_block_us=(10, 12)),
    Claim("the public discard is undone by a write", ("discard",), KINDS),
)  # fmt: skip


def judged(claim: Claim, report: Mapping[str, Json]) -> Verdict | None:
    """Returns the verdict on a claim; None without an answer, or if it holds only for its runtime.

    `report`: the part of the report that transferable() of reports.py keeps.
    """
    answers = [report["questions"].get(name, {}) for name in claim.questions]
    if any(one.get("status") != "ok" for one in answers):
        return None
    try:
        return claim.judge(report)
    except FORM_ERRORS:
        return None  # the answer lacks a value that the judge needs
