"""The model against what others measured on real cards and published.

A row for each figure of lab/bench/data/published/figures.csv, or of another file in the same
columns (README.md there): `ratio` is the model's value / the published one. A row for each group:
the geometric mean, with the least and the most. `ratio_server`: the same in a server instead of the
host that follows from card and link. Neither a GPU nor a clock is asked, so each run gives the same
digits. Options: --figures FILE, and --json ROWS for the figures' rows alone. --constants: also a
row for each constant of the host, with the figures that move by more than 5 % if it is doubled, or
a share halved: what the constant rests on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness import MeasurementError, Options, Row

from pump import outputs


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
    """Yields a row for each constant of hosts.toml: how many figures it moves, and which."""
    from pump_lab import profiles

    for key in sorted(profiles.of_hosts()):
        doubled = compared(path, {key: 2.0 if profiles.KEYS[key].of_host else 0.5})
        moved = [
            (before, after.value / before.value)
            for before, after in zip(rows, doubled, strict=True)
            if not 0.95 < after.value / before.value < 1.05
        ]
        yield Row(
            f"published.constants.{key.split('.')[1]}",
            len(moved),
            "figures",
            case=key,
            sources=sorted({before.more["sources"][0] for before, _ in moved}),
            moves={before.more["id"]: round(by, 2) for before, by in moved},
        )


def compared(path: Path, factors: Mapping[str, float] | None = None) -> list[Row]:
    """Returns a row for each figure of the file. factors: of the profiles' values, by key.

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
