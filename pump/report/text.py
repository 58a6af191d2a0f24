"""A report as lines of text."""

from __future__ import annotations

from typing import Any

from pump.report import hops
from pump.report.advice import advise, time_lost, waited_for_turns
from pump.report.words import command, plain, seconds, share, size

SHOWN = 10


def text(report: dict[str, Any]) -> str:
    """The report of pump.report.gather for a terminal."""
    lines = [
        f"{report['file']}: {report['state']}",
        f"command      {command(report['command'])}",
        f"recorded     {plain(report['recorded'])} with policy {plain(report['policy'])}",
        f"time lost    {time_lost(report)}",
        f"length       {seconds(report['seconds'])}, {report['operations']:,} operations",
        *([f"turns        {waited_for_turns(report)} waited"] if waited_for_turns(report) else []),
        f"moved        {size(report['moved_to_gpu_bytes'])} to the GPU, "
        f"{size(report['moved_to_host_bytes'])} to the host",
    ]
    for device in report["devices"]:
        lines += _device(device)
    lines += ["", "why it may be slow"]
    for item in advise(report):
        lines += [f"  {item.key:<12} {item.found}", f"               {item.advice}"]
    lines += _hops(report["hops"])
    lines += ["", "   launches   time (est.)   missed blocks (est.)   kernel"]
    ranked = sorted(report["kernel_list"], key=_weight)
    for kernel in ranked[:SHOWN]:
        time = kernel["estimated_seconds"]
        lines.append(
            f"{kernel['count']:>11,}   {seconds(time) if time is not None else 'not known':>11}"
            f"   {kernel['estimated_missed_blocks']:>20,.0f}   {plain(kernel['name'], 60)}"
        )
    lines += ["", "       uses       length   of range          extents reached most"]
    lines += [
        f"{extent['uses']:>11,}   {size(extent['length_bytes']):>10}   "
        f"{size(extent['range_bytes']):>12}"
        f"      range {extent['slot']}.{extent['generation']} + {size(extent['offset_bytes'])}"
        for extent in report["top_extents"][:SHOWN]
    ]
    return "\n".join(lines)


def _hops(found: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if tables := hops.parts(found):
        lines += ["", "where moved slices waited", f"  {hops.largest(found)}"]
    for table in tables:
        lines.append(f"     median   99th pct.        sum   {table.heading}")
        lines += [f"{r.median:>11}{r.p99:>12}{r.sum:>11}     {r.hop}" for r in table.rows]
    if delays := hops.delays(found):
        lines += ["", "        ran   without a processor"]
        lines += [f"{ran:>11}{delay:>22}   {name}" for ran, delay, name in delays]
    return lines


def _weight(kernel: dict[str, Any]) -> tuple[float, float]:
    return -kernel["estimated_missed_blocks"], -(kernel["estimated_seconds"] or 0.0)


def _device(device: dict[str, Any]) -> list[str]:
    used = device["blocks_used"]
    misses = used - device["blocks_hit"]
    by_choice = " (by choice)" if device["emulated"] else ""
    return [
        f"GPU {device['device']}        {size(device['total_bytes'])}, budget "
        f"{size(device['budget_bytes'])}{by_choice}; allocated at most "
        f"{size(device['allocated_bytes_peak'])}, resident at most "
        f"{size(device['resident_bytes_peak'])}",
        f"  hit rate   (est.) {share(device['blocks_hit'], used)} of {used:,} block uses; missed "
        f"for want of room {share(device['blocks_no_room'], misses)}, late "
        f"{share(device['blocks_late'], misses)}, unseen {share(device['blocks_unseen'], misses)}",
    ]
