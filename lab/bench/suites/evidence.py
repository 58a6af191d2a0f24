"""Gain of each mechanism on the model: time without it / with it, and its lines of code.

There is a row for each change of lab/bench/evidence/mechanisms.toml, and one for each mechanism
that the model cannot measure.

  `evidence.MECHANISM.CHANGE`   The geometric mean over all cases of the time with the change / the
                                time without it: above 1 if the mechanism gains. `means`: by host
                                (`cases`: their number). `best`, `worst`: the cases of the largest
                                and least ratio. `groups`: means by group of cases
                                (evidence/cases.py). `lines`: of code, without comments.

Each run is stored in build/bench/evidence, under a name made from everything that it depends on, so
an interrupted suite resumes. Without options it takes 15 minutes of one core. Options: --only
MECHANISM (repeated); --whole: all traces at all sizes on all hosts (hours). --kept: only stored
cases make rows, and nothing is simulated; `missing` is the number of other cases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import ROOT, MeasurementError, Options, Row

if TYPE_CHECKING:
    from evidence.cases import Case
    from evidence.mechanisms import Change, Mechanism, Settings

SIMULATOR = ("lab/pump_lab/sim/*.py", "pump/model/*.py", "pump/policy/*.py",
             "lab/bench/evidence/simulate.py", "lab/bench/workloads/simulated.py",
             "lab/bench/study/sim_duplicates.py", "lab/bench/study/jobs/*.py",
             "lab/bench/study/jobs/*.toml")  # fmt: skip
"""Sources that a run depends on, apart from the libraries and the profile; traces are fixed."""


def parse(arguments: list[str], known: Iterable[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench evidence --")
    parser.add_argument("--only", action="append", choices=tuple(known), metavar="MECHANISM")
    parser.add_argument("--whole", action="store_true", help="all cases: hours")
    parser.add_argument("--kept", action="store_true", help="simulate nothing: cases that are kept")
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    from evidence import mechanisms

    try:
        found, _ = mechanisms.table()
        chosen = parse(options.rest, (one.name for one in found))
        runs = Runs(options, whole=chosen.whole, kept=chosen.kept)
        for mechanism in found:
            if not chosen.only or mechanism.name in chosen.only:
                yield from _rows(mechanism, runs)
    except mechanisms.TableError as error:
        raise MeasurementError(str(error)) from None


def _rows(mechanism: Mechanism, runs: Runs) -> Iterator[Row]:
    facts = {
        "mechanism": mechanism.name,
        "decisions": list(mechanism.decisions),
        "what": mechanism.what,
        "class": mechanism.kind,
        "proof": list(mechanism.proof),
        "lines": mechanism.lines(),
    }
    if not mechanism.changes:
        yield Row(f"evidence.{_name(mechanism.name)}", None, "x", error="not measured", **facts)
    for change in mechanism.changes:
        yield runs.compared(change, f"evidence.{_name(mechanism.name)}.{_name(change.name)}", facts)


def _name(text: str) -> str:
    return "".join(one if one.isalnum() else "_" for one in text.lower())


class Runs:
    """Simulated runs, stored in a file between calls."""

    def __init__(self, options: Options, *, whole: bool = False, kept: bool = False) -> None:
        from evidence.cases import HOSTS
        from evidence.variants import Builder, name_of, texts
        from suites.sim import PROFILE

        from pump_lab import profiles

        self.options, self.whole, self.kept = options, whole, kept
        self.folder = options.tools.work / "evidence"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.builder = Builder(self.folder)
        self.sources = name_of(texts(SIMULATOR))
        loaded = {host: profiles.load(f"{PROFILE}@{host}") for host in HOSTS}
        self.profiles = {host: repr(one.values | {"name": ""}) for host, one in loaded.items()}
        self.file = self.folder / "runs.jsonl"
        self.known: dict[str, dict[str, Any]] = {}

    def compared(self, change: Change, name: str, facts: dict[str, Any]) -> Row:
        """Returns the row of a change. Raises TableError and MeasurementError."""
        from evidence import cases, table

        chosen = list(cases.of(change, whole=self.whole, quick=self.options.quick))
        before, after = (self.seconds(one, chosen) for one in (change.base, change.settings))
        ratios = {
            case: after[case] / before[case] for case in chosen if case in before.keys() & after
        }
        facts = facts | {"change": change.name, "missing": len(chosen) - len(ratios)}
        if not ratios:
            return Row(name, None, "x", error="no case is kept", **facts)
        figures = table.figures(ratios)
        value = figures.pop("mean")
        return Row(name, value, "x", "as it is", ratio=value, simulated=True, profile="a100-pcie4",
                   **figures, **facts)  # fmt: skip

    def seconds(self, settings: Settings, chosen: list[Case]) -> dict[Case, float]:
        """Returns the time of each case; with `kept`, only of stored cases. Raises TableError and
        MeasurementError."""
        from evidence.variants import name_of

        libraries = self.builder.key(settings.edits)
        specs = {case: {"case": list(case), "settings": settings.as_json()} for case in chosen}
        keys = {
            case: name_of(
                libraries, self.sources, self.profiles[case.host], json.dumps(spec, sort_keys=True)
            )
            for case, spec in specs.items()
        }
        if not set(keys.values()) <= self.known.keys() and self.file.exists():
            lines = self.file.read_text().splitlines()
            self.known = {one["key"]: one for one in map(json.loads, lines)}
        lacking = [
            {"key": keys[case], **spec}
            for case, spec in specs.items()
            if keys[case] not in self.known
        ]
        if lacking and not self.kept:
            self._simulate(self.builder.built(settings.edits), lacking)
        return {case: self.known[key]["seconds"] for case, key in keys.items() if key in self.known}

    def _simulate(self, library: Path, lacking: list[dict[str, Any]]) -> None:
        command = [self.options.tools.python, str(ROOT / "lab/bench/evidence/simulate.py")]
        environ = {**os.environ, "PUMP_LIB_DIR": str(library)}
        with (
            self.file.open("a") as kept,
            subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(lacking))
            process.stdin.close()
            for line in process.stdout:
                one = json.loads(line)
                self.known[one["key"]] = one
                kept.write(line)
                kept.flush()
        if process.returncode != 0 or any(one["key"] not in self.known for one in lacking):
            raise MeasurementError(f"a simulation ended with status {process.returncode}")
