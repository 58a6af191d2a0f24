"""scripts/gpu_acceptance: parses the options, describes the machine, and runs the stages in order.

Exit status: 0 nothing failed; 1 something failed; 2 bad arguments; 3 no GPU to run on.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from acceptance import (
    build,
    child,
    host_memory,
    machine,
    prepare,
    processes,
    results,
    runner,
    running,
    stages,
    summary,
)
from acceptance.contract import (
    FAIL,
    LATE,
    MIB,
    STATUSES,
    UNAVAILABLE,
    Context,
    Json,
    Machine,
    Stage,
)
from acceptance.first_card import page

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ".wheels"
OUT_VARIABLE = "OUT"
EXIT_FAILED, EXIT_USAGE, EXIT_NOTHING = 1, 2, 3
PROGRAM = "scripts/gpu_acceptance"


def say(text: str) -> None:
    """Prints a line of progress for the user."""
    print(text, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Check pump on a GPU and measure what its model needs, in less than nine "
        "minutes. docs/gpu.md tells how to read what it writes.",
    )
    add = parser.add_argument
    add("--stage", nargs="+", action="extend", choices=stages.ORDER, metavar="NAME",
        help=f"only these: {', '.join(stages.ORDER)}")  # fmt: skip
    add("--out", type=Path, metavar="DIR",
        help="results (default: below $OUT if set, else build/acceptance/results)")  # fmt: skip
    add("--resume", action="store_true", help="keep what an earlier call into --out finished")
    add("--virtual", metavar="PROFILE", help="run on the virtual GPU: figures are a model's")
    add("--quick", action="store_true", help="smallest sizes: shows that it works, no figures")
    add("--full", action="store_true",
        help="all of every stage, over as many calls with --resume as it takes")  # fmt: skip
    add("--minutes", type=float, metavar="N",
        help=f"end after so long (default {stages.CORE_TOTAL_S / 60:.1f}), and let stages take "
        "all of it")  # fmt: skip
    add("--keep-free", type=int, default=0, metavar="MIB", help="GPU memory to leave to others")
    add("--prepare", type=Path, nargs="?", const=ROOT / WHEELS, metavar="DIR",
        help=f"with a network: fetch the missing wheels to carry (default: {WHEELS})")  # fmt: skip
    add("--machine", choices=prepare.MACHINES, default=prepare.MACHINES[0],
        help="that the wheels of --prepare are for (default %(default)s)")  # fmt: skip
    add("--wheels", type=Path, metavar="DIR", help=f"wheels to use (default: {WHEELS})")
    add("--first-card", type=Path, nargs="?", const=results_base(), metavar="RESULTS",
        help="print docs/first-card.md filled in from results (default: the newest)")  # fmt: skip
    add("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.minutes is not None and not 0.2 <= options.minutes <= 600:
        parser.error("--minutes must lie between 0.2 and 600")
    if options.keep_free < 0:
        parser.error("--keep-free must not be negative")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out} is a file; name a folder")
    if options.wheels is not None and not options.wheels.is_dir():
        parser.error(f"--wheels: there is no folder {options.wheels}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parse(given)
    if options.child or options.first_card:
        return child.main(options.child) if options.child else print_first_card(options.first_card)
    signal.signal(signal.SIGTERM, _interrupt)
    processes.adopt_orphans()
    try:
        if options.prepare is None:
            return accept(options, given)
        return prepare.main(options.prepare, options.machine, say)
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted; --resume goes on")
        return 130
    except (build.BuildError, prepare.PrepareError) as error:
        say(f"{PROGRAM}: {error}")
        return EXIT_FAILED
    except machine.NothingToRunOnError as error:
        say(f"{PROGRAM}: {error}")
        return EXIT_NOTHING


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def print_first_card(path: Path) -> int:
    """Prints the page and returns the exit status."""
    if path == results_base():
        dated = sorted(path.glob("*-????-??-??"), key=lambda folder: folder.stat().st_mtime)
        path = dated[-1] if dated else path
    try:
        print(page.page(*page.load(path)), end="")
    except ValueError as error:
        say(f"{PROGRAM}: --first-card: {error}")
        return EXIT_USAGE
    return 0


def accept(options: argparse.Namespace, given: Sequence[str]) -> int:
    """Runs the stages and returns the exit status. Raises BuildError, NothingToRunOnError."""
    began = time.monotonic()
    if options.virtual is None and not machine.driver_loads():
        machine.decide(None, False, {}, {})  # raises before anything is built
    wheels = options.wheels or ROOT / WHEELS
    _use_a_python_that_has_all(wheels, given)
    built = make_ready(wheels, bool(options.virtual))
    there = look(options.virtual, ROOT / running.BUILD / "site", options.keep_free * MIB)
    identity = results.Identity(*results.commit_of(ROOT), there)
    out = results_folder(options, there)
    say(f"{there.label}: results in {shown(out)}")
    total_s = 60 * options.minutes if options.minutes else stages.CORE_TOTAL_S
    place = runner.Place(ROOT, out, identity, built.lacks)
    found = run_stages(options, place, began + total_s)
    report(place, found, time.monotonic() - began)
    return EXIT_FAILED if built.lacks or results.failures(found.values()) else 0


def make_ready(wheels: Path, virtual: bool) -> build.Built:
    """Prepares libraries, packages and memory for the stages. Raises BuildError."""
    built = build.build(ROOT, wheels if wheels.is_dir() else None, virtual, stages.BUILD_LIMIT_S)
    running.see_packages(ROOT)
    if built.lacks:
        say(f"only {', '.join(stages.WITHOUT_PUMP)} can run: {built.lacks}")
    else:
        names = ", ".join(built.wheels) or "none"
        say(f"libraries: {built.libraries}, {built.seconds:.1f} s; wheels: {names}")
    before, now = host_memory.grow()
    if now != before:
        say(f"host memory: {before.available >> 20} MiB were available, {now.available >> 20} are")
    return built


def report(place: runner.Place, found: dict[str, dict[str, Json]], seconds: float) -> None:
    """Writes the summary page and prints a line for each stage. `seconds`: time of this call."""
    every = [results.read(place.out / f"{name}.json") for name in stages.ORDER]
    mine = [result for result in every if result and place.identity.same(result)]
    page_file = place.out / "summary.md"
    page_file.write_text(summary.page(mine, seconds))
    for name, result in found.items():
        counts = ", ".join(
            f"{summary.count(result, status)} {status}"
            for status in STATUSES
            if summary.count(result, status)
        )
        left = "" if result["complete"] else "; not complete, --resume goes on"
        print(f"{name:9} {result['seconds']:6.1f} s  {counts}{left}")
    print(f"{place.identity.machine.label}; {seconds:.0f} s; {shown(page_file)}")


def _use_a_python_that_has_all(wheels: Path, given: Sequence[str]) -> None:
    """Replaces this process by .venv's Python if this Python lacks a package. Raises BuildError."""
    lacking = machine.lacking(wheels)
    if not lacking:
        return
    other = ROOT / ".venv" / "bin" / "python"
    if other.exists() and Path(sys.prefix) != ROOT / ".venv":
        os.execv(other, [str(other), str(runner.LAUNCHER), *given])
    raise build.BuildError(
        f"this Python lacks {', '.join(lacking)}: run scripts/setup examples, or {PROGRAM} "
        f"--prepare on a machine with a network and carry {WHEELS} here"
    )


def look(virtual: str | None, site: Path, kept_bytes: int = 0) -> Machine:
    """Describes the machine as if `kept_bytes` of its GPU memory were in use. Raises
    NothingToRunOnError."""
    asked = Machine(kind="virtual" if virtual else "card", profile=virtual or "")
    context = Context(ROOT, site, site, asked)
    environ = running.environment(context, {"PUMP_DISABLE": "1"} if virtual else {})
    virtually = ["pump-run", "--virtual", virtual, "--"] if virtual else []
    command = running.pump_command(ROOT, *virtually) if virtually else []
    card = machine.ask_card(environ, command)
    found = machine.decide(virtual, machine.driver_loads(), card, machine.facts(site))
    return replace(found, free_bytes=max(0, found.free_bytes - kept_bytes))


def results_base() -> Path:
    """Returns the folder with each device's results: the one in OUT_VARIABLE if that is set (some
    machines keep only that folder), else one in the build."""
    given = os.environ.get(OUT_VARIABLE)
    return Path(given).absolute() if given else ROOT / running.BUILD / "results"


def results_folder(options: argparse.Namespace, there: Machine) -> Path:
    """Returns (and makes) the results folder; --resume without --out: this device's newest."""
    if options.out:
        out: Path = options.out.absolute()
    else:
        name = f"virtual-{there.profile}" if there.profile else there.name
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        base = results_base()
        out = base / f"{slug}-{results.now()[:10]}"
        if options.resume:
            old = sorted(base.glob(f"{slug}-????-??-??"))
            out = old[-1] if old else out
    out.mkdir(parents=True, exist_ok=True)
    return out


def run_stages(
    options: argparse.Namespace, place: runner.Place, deadline: float
) -> dict[str, dict[str, Json]]:
    """Runs the incomplete stages; returns and writes the results of all chosen stages."""
    chosen = [name for name in stages.ORDER if name in (options.stage or stages.ORDER)]
    found: dict[str, dict[str, Json]] = {}
    modules: dict[str, Stage] = {}
    for name in chosen:
        earlier = results.read(place.out / f"{name}.json") if options.resume else None
        if earlier is not None and place.identity.same(earlier):
            found[name] = earlier
        if place.lacks and name not in stages.WITHOUT_PUMP:
            found[name] = found.get(name) or runner.absent(place, name, UNAVAILABLE, place.lacks)
            continue
        try:
            module = stages.load(name)
        except Exception as error:  # a broken stage must not stop the others
            why = f"cannot be loaded: {type(error).__name__}: {error}"
            found[name] = runner.absent(place, name, FAIL, why)
            continue
        if module is None:
            why = "this checkout has no such stage"
            found[name] = runner.absent(place, name, UNAVAILABLE, why)
        else:
            modules[name] = module
    todo = [name for name in modules if not found.get(name, {}).get("complete")]
    for turn, name in enumerate(todo):
        left = deadline - time.monotonic()
        limits = {other: modules[other].LIMIT_S for other in todo[turn:]}
        if options.full:
            limits = {name: left}
        limit_s = stages.shares(limits, left, lengthen=options.minutes is not None)[name]
        if limit_s < 1:
            say(f"{name}: no time left in this call; --resume goes on")
            found[name] = found.get(name) or runner.absent(place, name, UNAVAILABLE, LATE)
            continue
        say(f"{name}: {modules[name].WHAT}; at most {limit_s:.0f} s")
        run = runner.StageRun(
            place,
            name,
            modules[name].WHAT,
            limit_s,
            core=not options.full,
            quick=options.quick,
            told=say,
        )
        if name in found:
            run.keep(found[name])
        found[name] = run.run(place.identity.machine)
    return {name: found[name] for name in chosen}


def shown(path: Path) -> str:
    """Returns the path relative to the checkout if it is inside it, else the whole path."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
