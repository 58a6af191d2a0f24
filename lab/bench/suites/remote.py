"""Sparse memory that does not fit: migrated, or read in place on the host. Simulated.

DESIGN
  For each program of study/sparse/in_place.py, on a virtual A100 and H100 with all of their memory:

    `remote.<card>.<case>`   Seconds of a step if the range is read in place. `ratio`: to window's,
                             the baseline. `bound_s`: by the model's own read rate; `naive_s`,
                             `window_s`. `of_bound`: bound / remote. `over_naive`, `over_window`:
                             how many times as fast. `in_gib`, `window_in_gib`: bytes to the GPU.
                             `no_walks_s`: the bound if the GPU missed no translation, which no one
                             has published for managed memory. `naive_most_s`, `naive_least_s`:
                             naive's time on the slowest and fastest host of hosts.toml.

  The read rate is the model's in all of them. So `of_bound` shows only what faults, mappings and
  steps add. It says nothing about a GPU. Option: --only TEXT, cases whose name contains it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from harness import Options, Row

CARDS = "a100-pcie4", "h100-pcie5"
HOSTS = "desktop", "vm"
QUICK_BYTES = 1 << 30
GIB = 1 << 30


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench remote --")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    from study.sparse import in_place as study

    from pump_lab import profiles

    chosen = parse(options.rest)
    cases = {**study.tables(), **study.skewed(), **study.others()}
    for card in CARDS[: 1 if options.quick else None]:
        profile = profiles.load(card)
        memory_bytes = int(profile.values["device.memory_bytes"])
        if options.quick:
            memory_bytes = QUICK_BYTES
        for name, case in cases.items():
            if chosen.only not in name:
                continue
            times, counters = {}, {}
            for way in study.WAYS:
                times[way], counters[way] = study.seconds(case, profile, memory_bytes, way)
            on_hosts = [
                study.seconds(case, profiles.load(f"{card}@{host}"), memory_bytes, "naive")[0]
                for host in HOSTS
            ]
            bound_s = study.bound_seconds(case, profile, memory_bytes)
            yield Row(
                f"remote.{card.split('-')[0]}.{name}",
                times["remote"],
                "s",
                times["window"],
                ratio=times["remote"] / times["window"],
                bound_s=bound_s,
                naive_s=times["naive"],
                window_s=times["window"],
                of_bound=bound_s / times["remote"],
                over_naive=times["naive"] / times["remote"],
                over_window=times["window"] / times["remote"],
                share=case.share,
                in_gib=_inward(counters["remote"]) / GIB,
                window_in_gib=_inward(counters["window"]) / GIB,
                no_walks_s=study.bound_seconds(case, study.without_walks(profile), memory_bytes),
                naive_least_s=min(*on_hosts, times["naive"]),
                naive_most_s=max(*on_hosts, times["naive"]),
                profile_hash=profile.hash(),
                memory_bytes=memory_bytes,
            )


def _inward(counters: dict[str, int]) -> int:
    return sum(counters[f"h2d_{name}_bytes"] for name in ("demand", "prefetch", "remote"))
