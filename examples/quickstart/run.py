"""The main job of scripts/quickstart: trains out of memory with and without pump, and compares.

scripts/quickstart has installed pump into the Python that runs this. First it checks results: a
small model must give bit-identical weights under every policy. Then it compares speed. On a real
GPU each run shows both, and a budget limits the memory, so that the GPU is never
oversubscribed. The virtual GPU needs separate runs (compute mode, timing mode).

Exit status: 0; 1 if results differ or a run fails; 2 for a bad option.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
sys.path += [str(ROOT), str(ROOT / "lab")]  # last: options are checked before pump is installed

from host_build import BuildError, build  # noqa: E402
from quickstart import report  # noqa: E402
from quickstart.report import DEMAND, NAIVE, UNLIMITED, WINDOW, Run, Setting  # noqa: E402
from quickstart.workload import (  # noqa: E402
    RATIOS,
    RESULTS,
    SPEED,
    Workload,
    link_bytes_per_second,
)

from pump.base import outputs  # noqa: E402
from pump.measure import runs  # noqa: E402
from pump.measure.progress import Progress  # noqa: E402
from pump.measure.runs import Stop  # noqa: E402

RUN_SECONDS_MAX = 180
LOGS = ROOT / "build" / "quickstart"
CURVE = ROOT / "docs" / "pictures" / "intensity.json"
DEFAULT_PROFILE = "a100-pcie4"


class RunError(Exception):
    """A training run failed. The text names it and shows the end of its log."""


class Runner:
    """Runs trainings one after another and prints the progress."""

    def __init__(self, total: int, stop: Stop) -> None:
        self._progress = Progress(total, sys.stdout)
        self._done = 0
        self._stop = stop

    def __call__(self, title: str, command: Sequence[str], environ: dict[str, str]) -> Any:
        """Runs one training; returns the result of train_mlp.py. Raises RunError."""
        self._done += 1
        name = f"{self._done:02}-" + "".join(c if c.isalnum() else "-" for c in title)
        log, result = LOGS / f"{name}.log", LOGS / f"{name}.json"
        result.unlink(missing_ok=True)
        with self._progress.step(title):
            line = [*command, "--json", str(result)]
            ran = runs.run(line, {**os.environ, **environ}, log, self._stop, RUN_SECONDS_MAX)
            if ran.failure() or not result.exists():
                failure = ran.failure() or "no result"
                raise RunError(f"{title}: {failure}\n{runs.tail(log)}\n(whole log: {log})")
        return json.loads(result.read_text())


def tool(name: str) -> str:
    """Returns the path of a command that is installed next to this Python."""
    return str(Path(sys.executable).parent / name)


def training(workload: Workload, *more: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "train_mlp.py"), *workload.options(), *more]


def cases(policies: Sequence[str]) -> list[tuple[str, float]]:
    """Returns (policy, oversubscription) of every run, the unlimited one first."""
    return [(UNLIMITED, 1.0), *((policy, ratio) for ratio in RATIOS for policy in policies)]


def title(policy: str, ratio: float) -> str:
    return policy if policy == UNLIMITED else f"{policy} at {ratio}x"


# ---- virtual GPU ------------------------------------------------------------


def virtual_run(
    run: Runner, case: tuple[str, float], workload: Workload, mode: str, profile: str
) -> tuple[Any, tuple[int, int, int]]:
    """Runs once on the virtual GPU; returns its result and the numbers of moved()."""
    policy, ratio = case
    spare = 512 << 20
    memory = (
        workload.footprint_bytes + spare if policy == UNLIMITED else workload.memory_bytes(ratio)
    )
    command = [tool("pump-run"), "--virtual", profile]
    command += ["--virtual-set", f"memory={memory}", "--virtual-set", f"mode={mode}"]
    environ = {"PUMP_VIRTUAL_REPORT": str(LOGS / "driver.json")}
    options = ["--no-hash"] if mode == "timing" else []
    if mode == "compute":
        environ["PUMP_VIRTUAL_KERNELS"] = str(build())
    if policy in (UNLIMITED, NAIVE):
        environ["PUMP_DISABLE"] = "1"
        options += ["--managed"] if policy == NAIVE else []
    else:
        command += ["--policy", policy]
    (LOGS / "driver.json").unlink(missing_ok=True)
    result = run(
        f"{title(policy, ratio)}, virtual, {mode}",
        [*command, "--", *training(workload, *options)],
        environ,
    )
    return result, moved(json.loads((LOGS / "driver.json").read_text()))


def moved(driver_report: dict[str, Any]) -> tuple[int, int, int]:
    """Returns bytes to the GPU, bytes to the host and faults from the virtual driver's report.

    Raises RunError if the program broke a rule of the driver, such as using freed memory.
    """
    if driver_report["violations"]:
        raise RunError(f"the virtual driver saw {driver_report['violations_by_check']}")
    return driver_report["h2d_bytes"], driver_report["d2h_bytes"], driver_report["faults"]


def on_virtual(profile: str, stop: Stop) -> tuple[Setting, list[Run]]:
    """Makes all runs on the virtual GPU. Raises RunError, BuildError."""
    every = cases((NAIVE, DEMAND, WINDOW))
    run = Runner(2 * len(every), stop)
    print("\nResults: a small model computes on the virtual GPU.", flush=True)
    hashes = {}
    for case in every:
        result, _ = virtual_run(run, case, RESULTS, "compute", profile)
        hashes[case] = result["weights_sha256"]
        if case[0] == UNLIMITED:
            losses = list(result["losses"].values())
            print(f"        loss {losses[0]:.3f} -> {losses[-1]:.3f}", flush=True)
    print("\nSpeed: a model of 4 GiB; kernels take modelled time.", flush=True)
    done, name = [], ""
    for case in every:
        result, figures = virtual_run(run, case, SPEED, "timing", profile)
        name = result["gpu"]
        done.append(Run(*case, result["seconds"], *figures, hashes[case]))
    link = link_bytes_per_second(profile)
    return (
        Setting(
            gpu=f"{name} ({profile})",
            virtual=True,
            mode="timing",
            time_scale=1.0,
            baseline=NAIVE,
            floors=floors(done, link),
            remark="Baseline of the speed-up: naive. Weights were compared in compute mode.\n"
            "Where these times come from: we CHOSE the kernels' speeds, and so how much paging\n"
            "slows them down. The table below shows other speeds.",
        ),
        done,
    )


def floors(done: Sequence[Run], link: float) -> dict[float, float]:
    compute = report.unlimited(done).seconds
    return {
        ratio: SPEED.floor_seconds(ratio, compute, link)
        for ratio in {run.oversubscription for run in done}
    }


# ---- real GPU ---------------------------------------------------------------


def find_gpu() -> dict[str, Any] | None:
    """Returns the facts of card.py about the real GPU, or None."""
    asked = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart" / "card.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def on_gpu(gpu: dict[str, Any], stop: Stop) -> tuple[Setting, list[Run]]:
    """Makes all runs on the real GPU, with budgets as limits. Raises RunError."""
    if gpu["free_bytes"] < 1.25 * SPEED.footprint_bytes:
        raise RunError(
            f"{gpu['name']} has {gpu['free_bytes'] >> 20} MiB free, but this needs "
            f"{int(1.25 * SPEED.footprint_bytes) >> 20}: end other programs, or add --virtual"
        )
    every = cases((DEMAND, WINDOW))
    run = Runner(len(every), stop)
    print(f"\nTraining on {gpu['name']}; budgets limit its memory.", flush=True)
    done = []
    for policy, ratio in every:
        command = []
        if policy != UNLIMITED:
            budget = SPEED.memory_bytes(ratio)
            command = [tool("pump-run"), "--budget", str(budget), "--policy", policy, "--"]
        result = run(title(policy, ratio), [*command, *training(SPEED)], {})
        sha256 = result["weights_sha256"]
        done.append(Run(policy, ratio, result["seconds"], None, None, None, sha256))
    return (
        Setting(
            gpu=gpu["name"],
            virtual=False,
            mode="hardware",
            time_scale=1.0,
            baseline=DEMAND,
            floors=floors(done, gpu["link_bytes_per_second"]),
            remark="Baseline of the speed-up: demand, which EMULATES Unified Memory under "
            "the same budget.",
        ),
        done,
    )


# ---- command line -----------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/quickstart",
        description="Install pump in .venv, train out of GPU memory with and without it, compare.",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the result to FILE")
    parser.add_argument(
        "--virtual",
        nargs="?",
        const=DEFAULT_PROFILE,
        metavar="PROFILE",
        help=f"use the virtual GPU even if there is a real one (default: {DEFAULT_PROFILE})",
    )
    parser.add_argument("--check-options", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.absolute().parent}")
    try:
        if options.json:
            outputs.may_replace(str(options.json), outputs.COMPARED)
    except OSError as error:
        parser.error(f"--json: {options.json}: {error.strerror}")
    return options


def main() -> int:
    options = parse()
    if options.check_options:
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    stop = Stop()
    try:
        gpu = None if options.virtual else find_gpu()
        if gpu is None and options.virtual is None:
            print("No NVIDIA GPU found: running on the virtual GPU.", flush=True)
        with stop:
            profile = options.virtual or DEFAULT_PROFILE
            setting, done = on_gpu(gpu, stop) if gpu else on_virtual(profile, stop)
    except (RunError, BuildError, OSError) as error:
        print(f"scripts/quickstart: {error}", file=sys.stderr)
        return 128 + stop.number if stop.number else 1
    print("\n" + report.table(setting, done))
    if setting.virtual:
        print("\n" + report.curve(json.loads(CURVE.read_text(encoding="utf-8"))))
    print(f"Took {time.monotonic() - began:.0f} s.")
    if options.json:
        text = json.dumps(report.as_json(setting, done), indent=1) + "\n"
        outputs.write(str(options.json), text, outputs.COMPARED)
    return 0 if report.identical(done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
