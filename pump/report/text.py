"""Renders a report as text: the result, its causes with the next commands, then the numbers."""

from __future__ import annotations

import textwrap
from typing import Any

from pump.base.names import readable_kernel
from pump.report.advice import advise, time_lost, waited_for_turns
from pump.report.words import command, memory, percent, plain, ranked, seconds, size

SHOWN = 10
WIDTH = 96
LABEL = 13


def text(report: dict[str, Any]) -> str:
    """Returns the report of pump.report.gather for a terminal."""
    turns, in_place = waited_for_turns(report), report["in_place_bytes_peak"]
    lines = [time_lost(report), *_wrapped_item("command", command(report["command"])), ""]
    for item in advise(report):
        lines += _wrapped_item(item.key, f"{item.found} {item.advice}")
        lines += [f"{'':<{LABEL}}$ {item.command}"]
    facts = [
        ("recording", f"{report['file']} ({report['state']}), {plain(report['recorded'])}, policy "
                      f"{plain(report['policy'])}"),
        ("duration", f"{seconds(report['active_seconds'])} from the first launch, "
                     f"{seconds(report['seconds'])} in total"),
        *([("turns", f"waited {turns} for turns on the GPU")] if turns else []),
        ("operations", f"{report['operations']:,}"),
        ("prefetched", f"{size(report['moved_to_gpu_bytes'])} to the GPU, "
                       f"{size(report['moved_to_host_bytes'])} to the host"),
        *([("in place", f"kernels read up to {size(in_place)} of allocations on the host")]
          if in_place else []),
    ]  # fmt: skip
    for device in report["devices"]:
        facts += _device(device)
    lines += ["", *(line for name, words in facts for line in _wrapped_item(name, words))]
    lines += ["", "  missed blocks     time   launches   kernel (misses and times are estimates)"]
    for kernel in ranked(report["kernel_list"])[:SHOWN]:
        time = kernel["estimated_seconds"]
        lines.append(
            f"{kernel['estimated_missed_blocks']:>15,.0f}{seconds(time) if time else '-':>9}"
            f"{kernel['count']:>11,}   {readable_kernel(kernel['name'])}"
        )
    return "\n".join(lines)


def _wrapped_item(name: str, words: str) -> list[str]:
    begin = f"{name:<{LABEL}}"
    return textwrap.wrap(
        words, WIDTH, initial_indent=begin, subsequent_indent=" " * LABEL, break_on_hyphens=False
    )


def _device(device: dict[str, Any]) -> list[tuple[str, str]]:
    used, misses = device["blocks_used"], device["blocks_used"] - device["blocks_hit"]
    causes = ", ".join(
        f"{percent(device[f'blocks_{cause}'] / misses)} {name}"
        for cause, name in (("no_room", "budget full"), ("late", "late"), ("unseen", "unseen"))
        if misses
    )
    sizes = (
        f"{memory(device)}; peaks: {size(device['allocated_bytes_peak'])} allocated, "
        f"{size(device['resident_bytes_peak'])} on the GPU"
    )
    hits = f"{percent(1 - misses / used, 1)} of {used:,} block uses (estimate)" if used else "-"
    return [
        (f"GPU {device['device']}", sizes),
        ("hit rate", f"{hits}; misses: {causes}" if causes else hits),
    ]
