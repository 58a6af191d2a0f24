"""Runs the suites of lab/bench/suites for scripts/bench.

Prints each row at once and, with --json, writes it as one JSON object a line. The first line
describes the machine (name bench.machine). A suite that fails or cannot run here gets a line with
the reason (value null), and the other suites still run.

Exit status: 0; 1 if a suite failed; 2 for a bad option; 3 if a suite cannot run here.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
SUITES = ROOT / "lab" / "bench" / "suites"
sys.path[:0] = [str(ROOT / "lab" / "bench"), str(ROOT / "examples")]
# After the installed packages: options are checked before anything is installed.
sys.path += [str(ROOT), str(ROOT / "lab")]

from harness import (  # noqa: E402
    PAIRS,
    PAIRS_QUICK,
    MeasurementError,
    Options,
    Row,
    UnavailableError,
    cpu_model,
)

from pump.base import outputs  # noqa: E402

FAILED, CANNOT_RUN, INTERRUPTED = 1, 3, 130


def suites(folder: Path) -> dict[str, str]:
    """Returns the first docstring line of each suite, by name, without importing the suites."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        try:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        except SyntaxError as error:
            text = f"(broken: {error})"  # running the suite shows the whole error
        found[path.stem] = text.partition("\n")[0]
    return found


def parse(arguments: Sequence[str], known: dict[str, str]) -> argparse.Namespace:
    """Returns the options, with those after -- as `rest`; exits with status 2 on a bad one."""
    arguments = list(arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        usage="%(prog)s [SUITE ...] [--json FILE] [--pairs N] [--quick] [--list]"
        " [-- OPTIONS OF THE SUITE]",
        description="Measure pump. Without a SUITE: all of them.",
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="one of --list")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows there as well")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help=f"pairs of each comparison (default {PAIRS})"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"as little as shows that it works ({PAIRS_QUICK} pairs); no figure to quote",
    )
    parser.add_argument("--list", action="store_true", help="name the suites, and stop")
    parser.add_argument("--check-options", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args(arguments[:cut])
    options.rest = arguments[cut + 1 :]
    for name in options.suites:
        if name not in known:
            parser.error(f"there is no suite '{name}'; there are: {', '.join(known)}")
    if len(set(options.suites)) != len(options.suites):
        parser.error("a suite is named twice")
    options.suites = options.suites or list(known)
    if options.rest and len(options.suites) != 1:
        parser.error(f"options after -- ({' '.join(options.rest)}) need exactly one SUITE")
    if options.pairs is None:
        options.pairs = PAIRS_QUICK if options.quick else PAIRS
    if options.pairs < 1:
        parser.error(f"--pairs is {options.pairs}; it must be at least 1")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.absolute().parent}")
    try:
        if options.json:
            outputs.may_replace(str(options.json), outputs.BENCHED)
    except OSError as error:
        parser.error(f"--json: {options.json}: {error.strerror}")
    return options


def _command_line(*command: str) -> str:
    """Returns the first line that a command prints, or "" if it fails."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def machine(options: argparse.Namespace) -> Row:
    """Returns the first row: the machine, the time and the options of the measurement."""
    usable = len(os.sched_getaffinity(0))
    changed = bool(_command_line("git", "status", "--porcelain", "--untracked-files=no"))
    return Row(
        "bench.machine",
        usable,
        "CPUs",
        commit=_command_line("git", "rev-parse", "--short=12", "HEAD") + ("+" * changed),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        cpu=cpu_model(),
        kernel=platform.release(),
        python=platform.python_version(),
        driver=_driver(),
        load=[round(value, 2) for value in os.getloadavg()],
        pairs=options.pairs,
        quick=options.quick,
    )


def _driver() -> str:
    """Returns this machine's CUDA driver. Rows from the virtual GPU are marked as such."""
    if not Path("/dev/nvidiactl").exists() and not Path("/dev/dxg").exists():
        return "virtual only"
    version = _command_line(
        "nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"
    )
    return f"real: {version}" if version else "real: no answer from nvidia-smi"


class Sink:
    """Prints rows at once, and writes them to the file line by line."""

    def __init__(self, file: IO[str] | None) -> None:
        self._file = file

    def row(self, row: Row) -> None:
        print("  " + row.as_text(), flush=True)
        self._write(row.as_json())

    def trouble(self, suite: str, error: str) -> None:
        print(f"scripts/bench: {suite}: {error}", file=sys.stderr, flush=True)
        self._write({"name": suite, "value": None, "unit": "", "error": error})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def run_suite(name: str, options: Options, sink: Sink) -> int:
    """Runs one suite; returns its part of the exit status."""
    try:
        count = 0
        for row in importlib.import_module(f"suites.{name}").run(options):
            sink.row(row)
            count += 1
        if count == 0:
            raise MeasurementError("gave no row")
    except UnavailableError as error:
        sink.trouble(name, f"cannot run here: {error}")
        return CANNOT_RUN
    except MeasurementError as error:
        sink.trouble(name, f"failed: {error}")
        return FAILED
    except Exception as error:  # a bug in this suite; the others still run
        traceback.print_exc()
        sink.trouble(name, f"failed: {type(error).__name__}: {error}")
        return FAILED
    return 0


def main(arguments: Sequence[str] | None = None, folder: Path = SUITES) -> int:
    os.environ["PUMP_KEEP_LEARNED"] = "no"  # results do not depend on earlier runs
    known = suites(folder)
    options = parse(sys.argv[1:] if arguments is None else arguments, known)
    if options.list:
        width = max(map(len, known), default=0)
        for name, text in known.items():
            print(f"{name:<{width}}  {text}")
        return 0
    if options.check_options:
        return 0
    if not options.json:
        return _measure(options, known, Sink(None))
    with outputs.replacing(str(options.json), outputs.BENCHED) as file:
        return _measure(options, known, Sink(file))


def _measure(options: argparse.Namespace, known: dict[str, str], sink: Sink) -> int:
    """Runs the suites; returns the exit status. Rows measured before an interrupt are kept."""
    statuses = set()
    sink.row(machine(options))
    try:
        for number, name in enumerate(options.suites, 1):
            print(f"[{number}/{len(options.suites)}] {name}: {known[name]}", flush=True)
            statuses.add(run_suite(name, Options(options.pairs, options.quick, options.rest), sink))
    except KeyboardInterrupt:
        return INTERRUPTED
    if options.quick:
        print("These are quick figures: they show that the suites work, nothing else.")
    return FAILED if FAILED in statuses else max(statuses, default=0)


if __name__ == "__main__":
    raise SystemExit(main())
