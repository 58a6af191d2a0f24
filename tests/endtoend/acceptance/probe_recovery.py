"""Runs the probe on hidden profiles and compares the constants that it finds with the real ones.

Usage, which prints a table per seed:

    python tests/endtoend/acceptance/probe_recovery.py --seeds 5

A random profile is written to a file for pump-run. The probe runs as a separate process. Only the
driver gets the profile, from its environment; the probe's arguments have no parts of the profile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pump_lab import profiles

ROOT = Path(__file__).resolve().parents[3]
PROBE = ROOT / "scripts" / "gpu_probe"
PACKAGE = ROOT / "tests" / "acceptance" / "probe"
KERNELS = ROOT / "tests" / "acceptance" / "probe_kernels.c"
PUMP_RUN = Path(sys.executable).parent / "pump-run"
BASE = "a100-pcie4"
LIMIT_S = 100

BANDWIDTH, SUM, PART = 0.05, 0.25, 0.6
"""Largest relative errors of found values. PART: the fixed part of a call in which each block costs
more; there a late wake-up of the caller has a large effect."""

GIB = 1 << 30
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A constant that the probe reports, and its expected value in the model."""

    constant: str
    expected: Callable[[Values], float]
    tolerance: float
    questions: tuple[str, ...]
    what: str


def one(key: str) -> Callable[[Values], float]:
    return lambda values: float(values[key])


def both(first: str, second: str) -> Callable[[Values], float]:
    return lambda values: float(values[first]) + float(values[second])


def passes(values: Values) -> float:
    return float(values["uvm.prefetch_block_us"] * (1 + values["uvm.prefetch_second_pass"]))


def unmapping(values: Values) -> float:
    return float(values["uvm.cpu_unmap_us"]) + 32 * float(values["uvm.cpu_unmap_page_us"])


FAULTS = ("faults", "kernel_speed")
IDLE = ("prefetch_idle", "populate")
FIGURES = (
    Figure(
        "bw_h2d_gbps",
        one("link.prefetch_h2d_gbps"),
        BANDWIDTH,
        ("prefetch_idle",),
        "prefetch_h2d",
    ),
    Figure("copy_h2d_gbps", one("link.copy_h2d_gbps"), BANDWIDTH, ("copy_engine",), "copy_h2d"),
    Figure("copy_d2h_gbps", one("link.copy_d2h_gbps"), BANDWIDTH, ("copy_engine",), "copy_d2h"),
    Figure("delta_in", one("link.duplex_in"), BANDWIDTH, ("copy_engine",), "duplex_in"),
    Figure("delta_out", one("link.duplex_out"), BANDWIDTH, ("copy_engine",), "duplex_out"),
    Figure("bw_memset_gbps", one("uvm.populate_gbps"), BANDWIDTH, ("kernel_speed",), "populate"),
    Figure(
        "kernel_gbps", one("kernels.default_gbps"), BANDWIDTH, ("kernel_speed",), "default_gbps"
    ),
    Figure(
        "t0_replay_us",
        both("uvm.fault_base_us", "uvm.fault_replay_us"),
        SUM,
        FAULTS,
        "fault_base + fault_replay",
    ),
    Figure("t_wake_us", one("uvm.fault_wake_us"), SUM, FAULTS, "fault_wake"),
    Figure("t_blk_us", one("uvm.fault_block_us"), SUM, FAULTS, "fault_block"),
    Figure("t_pg_us", one("uvm.fault_page_us"), SUM, FAULTS, "fault_page"),
    Figure(
        "t_call_hblk_us",
        both("uvm.prefetch_call_us", "uvm.prefetch_block_us"),
        SUM,
        IDLE,
        "prefetch_call + prefetch_block",
    ),
    Figure("t_hblk_passes_us", passes, SUM, IDLE, "prefetch_block * (1 + second_pass)"),
    Figure("t_cpupte_us", one("uvm.cpu_pte_us"), SUM, (*IDLE, "copy_engine"), "cpu_pte"),
    Figure("t_cpuunmap_us", unmapping, SUM, IDLE, "cpu_unmap"),
    Figure("t_hostalloc_us", one("uvm.host_alloc_us"), SUM, ("way_back",), "host_alloc"),
    Figure(
        "t_nonreplayable_us",
        one("uvm.nonreplayable_us"),
        SUM,
        ("small_copies", "faults"),
        "nonreplayable",
    ),
    Figure("t_discard_us", one("uvm.discard_call_us"), PART, ("discard",), "discard_call"),
    Figure("t_discard_block_us", one("uvm.discard_block_us"), SUM, ("discard",), "discard_block"),
    Figure("t_advise_us", one("uvm.advise_call_us"), PART, ("duplicates",), "advise_call"),
    Figure("t_advise_block_us", one("uvm.advise_block_us"), SUM, ("duplicates",), "advise_block"),
    Figure(
        "t_collapse_page_us",
        one("uvm.collapse_page_us"),
        SUM,
        ("duplicates", *FAULTS),
        "collapse_page",
    ),
    Figure("kernel_min_us", one("kernels.min_us"), SUM, ("markers",), "kernels.min"),
    Figure(
        "kernel_idle_us",
        both("kernels.launch_us", "kernels.min_us"),
        SUM,
        ("markers",),
        "kernels.launch + kernels.min",
    ),
)
QUESTIONS = tuple(dict.fromkeys(name for figure in FIGURES for name in figure.questions))


def draw(seed: int) -> dict[str, str]:
    """Returns random settings of a profile: from PCIe 3 to PCIe 6, cheap and expensive faults."""
    chance = random.Random(seed)

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(chance.uniform(math.log(low), math.log(high))):.4g}")

    link = between(10, 105)
    fault, share = between(5, 60), chance.uniform(0.3, 0.9)
    numbers = {
        "link.prefetch_h2d_gbps": link,
        "link.copy_h2d_gbps": link * chance.uniform(1.02, 1.2),
        "link.copy_d2h_gbps": link * chance.uniform(0.85, 1.2),
        "link.duplex_in": chance.uniform(0.6, 1.0),
        "link.duplex_out": chance.uniform(0.6, 1.0),
        "uvm.populate_gbps": between(400, 3000),
        "uvm.fault_wake_us": between(20, 150),
        "uvm.fault_base_us": fault * share,
        "uvm.fault_replay_us": fault * (1 - share),
        "uvm.fault_block_us": between(2, 20),
        "uvm.fault_page_us": between(0.1, 1.5),
        "uvm.evict_us": between(5, 50),
        "uvm.prefetch_call_us": between(4, 15),
        "uvm.prefetch_block_us": between(3, 12),
        "uvm.prefetch_second_pass": chance.uniform(0.1, 0.6),
        "uvm.cpu_pte_us": between(0.05, 0.5),
        # Shorter than a block's copy: otherwise no prefetch reaches the link's rate.
        "uvm.cpu_unmap_us": between(2, 5),
        "uvm.cpu_unmap_page_us": between(0.05, 0.15),
        "uvm.host_alloc_us": between(50, 300),
        "uvm.nonreplayable_us": between(15, 100),
        "uvm.discard_call_us": between(4, 15),
        "uvm.discard_block_us": between(3, 30),
        "uvm.advise_call_us": between(4, 15),
        "uvm.advise_block_us": between(3, 30),
        "uvm.collapse_page_us": between(0.1, 2),
        "kernels.default_gbps": between(500, 5000),
        "kernels.min_us": between(1.5, 6),
        "kernels.launch_us": between(2, 8),
    }
    settings = {key: f"{number:.5g}" for key, number in numbers.items()}
    settings["memory"] = str(chance.randrange(16, 142) * GIB)
    settings["device.multiprocessors"] = str(chance.randrange(20, 200))
    settings["device.name"] = f"Card {chance.randrange(10**6)} (pump virtual)"
    return settings


def write_profile(profile: profiles.Profile, path: Path) -> None:
    """Writes the profile as TOML, like a handwritten one."""
    lines = [f'name = "{profile.name}"']
    for section in ("device", "link", "uvm", "kernels"):
        lines.append(f"[{section}]")
        for key, value in profile.values.items():
            if key.startswith(f"{section}."):
                lines.append(f"{key.removeprefix(section + '.')} = {json.dumps(value)}")
    path.write_text("\n".join(lines) + "\n")


def kernels(folder: Path) -> Path:
    """Compiles the functions that list the memory touched by the probe's kernels."""
    library = folder / "probe_kernels.so"
    command = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(KERNELS)]
    subprocess.run(command, check=True, timeout=60)
    return library


class Hidden:
    """A random profile, and the probe's answers about it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.profile = profiles.load(BASE).changed(draw(seed))
        self.file = folder / "hidden.toml"
        write_profile(self.profile, self.file)
        self.library = kernels(folder)
        self.words: list[str] = []

    def probe(self, questions: Sequence[str]) -> dict[str, Any]:
        """Runs the probe once; returns its report."""
        out = self.folder / "report.json"
        self.words = [sys.executable, str(PROBE), "--out", str(out), "--only", *questions]
        virtual = ["--virtual", str(self.file), "--virtual-set", "copies=modelled"]
        done = subprocess.run(
            [str(PUMP_RUN), *virtual, "--", *self.words],
            env={**os.environ, "PUMP_DISABLE": "1", "PUMP_VIRTUAL_KERNELS": str(self.library)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(out.read_text()))

    def error(self, figure: Figure, found: Mapping[str, Any]) -> float:
        """Returns the signed relative error of a found value; infinite without an answer."""
        value = found.get(figure.constant)
        expected = figure.expected(self.profile.values)
        return math.inf if value is None else float(value) / expected - 1

    def misses(self, found: Mapping[str, Any]) -> list[Figure]:
        return [f for f in FIGURES if not abs(self.error(f, found)) <= f.tolerance]

    def ask_again(self, found: dict[str, Any]) -> dict[str, Any]:
        """Repeats the questions of missed values, and keeps the better answers."""
        missed = self.misses(found)
        if not missed:
            return found
        wanted = {name for figure in missed for name in figure.questions}
        again = self.probe([name for name in QUESTIONS if name in wanted])["profile"]
        better = {
            figure.constant: again[figure.constant]
            for figure in missed
            if abs(self.error(figure, again)) < abs(self.error(figure, found))
        }
        return found | better

    def table(self, found: Mapping[str, Any]) -> str:
        lines = [f"{'':<36}{'hidden':>10}{'found':>10}{'error':>8}"]
        for figure in FIGURES:
            expected, error = figure.expected(self.profile.values), self.error(figure, found)
            value = found.get(figure.constant)
            mark = "" if abs(error) <= figure.tolerance else "  <-- missed"
            shown = "-" if value is None else f"{value:.4g}"
            lines.append(f"{figure.what:<36}{expected:>10.4g}{shown:>10}{error:>8.1%}{mark}")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many profiles (default 5)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--once", action="store_true", help="never ask again what missed")
    asked = parser.parse_args()
    missed = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            hidden = Hidden(seed, Path(folder))
            found = hidden.probe(QUESTIONS)["profile"]
            found = found if asked.once else hidden.ask_again(found)
            missed += len(hidden.misses(found))
            print(f"\nseed {seed}\n{hidden.table(found)}", flush=True)
    print(f"\n{missed} figures missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
