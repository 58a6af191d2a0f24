"""The model against published measurements of real GPUs.

There is a row for each result of lab/bench/data/published/figures.csv, or of another file with the
same columns (README.md there). `ratio` is the model's value / the published one. A row for each
group has the geometric mean, with the least and the most. `ratio_server`: the same with a server
instead of the host that follows from card and link. No GPU and no clock is used, so each run gives
the same digits. Options: --figures FILE, and --json ROWS for only the results' rows. --constants
adds a row for each constant of the host. It has the results that move by more than 5 % if the
constant is doubled, or a share halved: the evidence for the constant. If these have several
sources, `best` is the factor of FACTORS that fits them best, and `left_out` the best factor without
each source.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import MeasurementError, Options, Row

from pump.base import outputs

FACTORS = {True: (0.5, 0.71, 1.41, 2.0), False: (0.5, 0.71, 1.1)}
"""Factors that are tried as well as 1: for constants of the host, and shares of the link."""
OPTIONS = {"uvm.host_page_kib": 4 / 2048}
"""Factors for constants with few possible values: host pages of 4 KiB."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of the suite; exits with status 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="scripts/bench published --")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="CSV; see data/published")
    parser.add_argument("--json", type=Path, metavar="ROWS", help="write the figures' rows there")
    parser.add_argument("--constants", action="store_true", help="also what they rest on: a minute")
    return parser.parse_args(arguments)


def run(options: Options) -> Iterator[Row]:
    from published import figures, table

    chosen = parse(options.rest)
    try:
        rows = compared(chosen.figures or figures.FIGURES)
        if chosen.json:
            with outputs.replacing(str(chosen.json), outputs.BENCHED) as file:
                file.writelines(json.dumps(row.as_json()) + "\n" for row in rows)
    except figures.FigureError as error:
        raise MeasurementError(str(error)) from None
    except OSError as error:
        raise MeasurementError(f"--json: {chosen.json}: {error.strerror}") from None
    yield from rows
    for number, group in enumerate(table.groups(row.as_json() for row in rows), 1):
        mean = group.pop("mean")
        yield Row(f"published.groups.{number}", mean, "x", "published", ratio=mean, **group)
    if chosen.constants:
        yield from constants(rows, chosen.figures or figures.FIGURES)


def constants(rows: list[Row], path: Path) -> Iterator[Row]:
    """Yields a row for each constant of hosts.toml: how many results it moves, and which."""
    from pump_lab import profiles

    for key in sorted(profiles.of_hosts()):
        of_host = profiles.KEYS[key].of_host
        first = OPTIONS.get(key, 2.0 if of_host else 0.5)
        tried = {1.0: rows, first: compared(path, {key: first})}
        changes = [
            after.value / before.value for before, after in zip(rows, tried[first], strict=True)
        ]
        moved = [number for number, by in enumerate(changes) if not 0.95 < by < 1.05]
        source_of = {number: rows[number].more["sources"][0] for number in moved}
        sources = sorted(set(source_of.values()))
        fits: dict[str, Any] = {}
        if len(sources) > 1:
            more = set() if key in OPTIONS else set(FACTORS[of_host]) - {first}
            tried |= {by: compared(path, {key: by}) for by in sorted(more)}
            others = {
                source: [number for number in moved if source_of[number] != source]
                for source in sources
            }
            left_out = {source: best(tried, numbers) for source, numbers in others.items()}
            fits = {"best": best(tried, moved), "left_out": left_out}
        yield Row(
            f"published.constants.{key.split('.')[1]}",
            len(moved),
            "figures",
            case=key,
            sources=sources,
            moves={rows[number].more["id"]: round(changes[number], 2) for number in moved},
            **fits,
        )


def best(tried: Mapping[float, list[Row]], numbers: list[int]) -> float:
    """Returns the factor with the least mean square of the logarithms of the rows' ratios."""

    def error(by: float) -> float:
        return sum(math.log(tried[by][number].ratio or 1.0) ** 2 for number in numbers)

    return min(tried, key=error)


def compared(path: Path, factors: Mapping[str, float] | None = None) -> list[Row]:
    """Returns a row for each result of the file. `factors`: multiply the profiles' values, by key.

    Raises published.figures.FigureError.
    """
    from published import figures, workloads

    found = figures.read(path, workloads.KINDS)
    machines = figures.Machines(factors)
    rows = []
    for figure in found:
        machine = machines.of(figure)
        value = workloads.measure(machine, figure)
        server = value
        if machine.host != "server":
            server = workloads.measure(machines.of(figure, "server"), figure)
        columns = figure.columns
        unit = figures.UNITS[columns["unit"]][1]
        row = Row(
            figure.name,
            value / unit,
            columns["unit"],
            figure.value / unit,
            ratio=value / figure.value,
            id=figure.id,
            group=columns["group"],
            ratio_server=server / figure.value,
            host=machine.host,
            sources=list(figure.sources),
            **{key: columns[key] for key in ("card", "link", "kind", "parameters", "quantity")},
            observations=figure.observations,
            profiled=figure.profiled,
        )
        rows.append(row)
    return rows
