"""Published results: reads a CSV file into rows and modelled machines (data/published/README.md).

Raises FigureError for faults in a file: one line with row, column and remedy.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ROOT

from pump.base import inputs
from pump.config.values import BadValueError, nearest, parse_size
from pump_lab import profiles

FOLDER = ROOT / "lab" / "bench" / "data" / "published"
FIGURES = FOLDER / "figures.csv"
COLUMNS = ("id", "source", "card", "driver", "link", "kind", "parameters", "group", "quantity",
           "value", "unit", "profiled", "note")  # fmt: skip
OBSERVED = {"source", "value", "profiled", "note"}
"""Columns in which several observations of one figure may differ."""
_SIZES: dict[str, dict[str, float]] = {
    "time": {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "bytes": {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "rate": {"MB/s": 1e6, "GB/s": 1e9, "GiB/s": 2**30},
    "number": {"1": 1, "x": 1, "%": 0.01},
}
UNITS = {unit: (what, size) for what, sizes in _SIZES.items() for unit, size in sizes.items()}
"""The dimension of each unit, and its size in seconds, bytes, bytes a second or 1."""
PROFILE = "a100-pcie4"
TFLOPS = 19.5
"""FP32 rate of the profile's GPU (NVIDIA A100 data sheet)."""
USABLE = 0.97
"""Share of a GPU's memory that a program gets, as on the P100 of figures.csv (15.6 of 16 GiB)."""

Value = Any
Parsers = Mapping[str, Callable[[str], Value]]


class FigureError(ValueError):
    """A figure cannot be used; the text names row, column and remedy."""


@dataclass(frozen=True)
class Figure:
    """A published result. `value`: the median of its observations, in seconds, bytes, bytes a
    second or 1. `observations`: their number. `profiled`: whether all were made under a profiler.
    """

    id: str
    sources: tuple[str, ...]
    columns: Mapping[str, str]
    parameters: Mapping[str, Value]
    value: float
    observations: int
    profiled: bool

    @property
    def name(self) -> str:
        """Returns the name of its row: published.ID in lower case, with _ for other signs."""
        return "published." + re.sub("[^a-z0-9]+", "_", self.id.lower()).strip("_")


@dataclass(frozen=True)
class Machine:
    """A modelled GPU in its host. `memory_bytes`: None if unknown; the GPU then holds the whole
    workload. `gbps`, `tflops`: rates of its memory and of FP32 arithmetic. `host`: the name of the
    profile's host."""

    profile: profiles.Profile
    memory_bytes: int | None
    gbps: float
    tflops: float
    host: str


@dataclass(frozen=True)
class Kind:
    """A kind of workload: parsers of its parameters by name, the parameters that a row must set,
    and the dimension of each quantity."""

    parameters: Parsers
    needed: tuple[str, ...]
    quantities: Mapping[str, str] = field(default_factory=dict)


def read(path: Path, kinds: Mapping[str, Kind]) -> list[Figure]:
    """Returns the results of a file, in order; rows with the same id are observations of one."""
    try:
        rows = csv.DictReader(
            io.StringIO(inputs.text(str(path)).removeprefix("\ufeff")), strict=True
        )
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise FigureError(f"{path.name}: the first line must be {','.join(COLUMNS)}")
        found: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            where = f"{path.name}: line {rows.line_num}"
            if None in row or None in row.values():
                raise FigureError(f"{where}: needs {len(COLUMNS)} cells; quote those with commas")
            if not re.search("[a-zA-Z0-9]", row["id"]):
                raise FigureError(f"{where}: id: needs a letter or digit, not '{row['id']}'")
            found.setdefault(row["id"], []).append(row)
    except OSError as error:
        raise FigureError(f"{path.name}: {error.strerror}; name a CSV file") from None
    except csv.Error as error:
        raise FigureError(f"{path.name}: not CSV: {error}; write it again as CSV") from None
    figures = [_figure(path.name, rows, kinds) for rows in found.values()]
    taken: dict[str, str] = {}
    for figure in figures:
        if taken.setdefault(figure.name, figure.id) != figure.id:
            raise FigureError(
                f"{path.name}: row {figure.id}: id: too close to '{taken[figure.name]}'; "
                "use other letters"
            )
    if not figures:
        raise FigureError(f"{path.name}: no figure; add a line below the first")
    return figures


def _figure(file: str, rows: list[dict[str, str]], kinds: Mapping[str, Kind]) -> Figure:
    first = rows[0]
    where = f"{file}: row {first['id']}"
    for row in rows[1:]:
        for column in COLUMNS:
            if column not in OBSERVED and row[column] != first[column]:
                raise FigureError(
                    f"{where}: {column}: observations of one figure must agree; "
                    f"write '{first[column]}' or give the row another id"
                )
    kind = kinds.get(first["kind"])
    if kind is None:
        raise FigureError(f"{where}: kind: '{first['kind']}' is none of {', '.join(kinds)}")
    quantity = first["quantity"]
    if quantity not in kind.quantities:
        raise FigureError(
            f"{where}: quantity: {first['kind']} has {', '.join(kind.quantities)}, not '{quantity}'"
        )
    if not first["group"]:
        raise FigureError(f"{where}: group: must not be empty; name what it is judged with")
    dimension, unit = UNITS.get(first["unit"], ("", 0.0))
    if dimension != kind.quantities[quantity]:
        fitting = ", ".join(_SIZES[kind.quantities[quantity]])
        raise FigureError(f"{where}: unit: {quantity} has {fitting}, not '{first['unit']}'")
    return Figure(
        first["id"],
        tuple(dict.fromkeys(row["source"] for row in rows)),
        first,
        _parameters(where, first["parameters"], kind),
        statistics.median(_number(where, row["value"]) for row in rows) * unit,
        len(rows),
        all(_yes(where, row["profiled"]) for row in rows),
    )


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise FigureError(f"{where}: value: must be a number above 0, not '{text}'")
    return value


def _yes(where: str, text: str) -> bool:
    if text not in ("yes", "no", ""):
        raise FigureError(f"{where}: profiled: must be yes, no or empty, not '{text}'")
    return text == "yes"


def _parameters(where: str, text: str, kind: Kind) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        key, sign, value = (one.strip() for one in part.partition("="))
        parser = kind.parameters.get(key)
        if parser is None:
            raise FigureError(
                f"{where}: parameters: no parameter '{key}'{nearest(key, list(kind.parameters))}; "
                f"this kind has {', '.join(kind.parameters)}. A row sets no costs of the model"
            )
        if not sign or key in found:
            raise FigureError(f"{where}: parameters: write {key}=VALUE once")
        try:
            found[key] = parser(value)
        except ValueError as error:
            raise FigureError(f"{where}: parameters: {key}: {error}") from None
    for key in kind.needed:
        if key not in found:
            raise FigureError(f"{where}: parameters: add {key}=VALUE")
    return found


# ---- values of parameters ---------------------------------------------------------


def size(text: str) -> int:
    """Returns the bytes of "10GiB". Raises ValueError."""
    try:
        found = parse_size(text)
    except BadValueError as error:
        raise ValueError(str(error)) from None
    if not 0 < found <= 1 << 40:
        raise ValueError(f"must be above 0 and at most 1 TiB, not '{text}'")
    return found


def seconds(text: str) -> float:
    """Returns the seconds of "115ms". Raises ValueError."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|ms|us)", text)
    found = float(parts[1]) * UNITS[parts[2]][1] if parts else 0.0
    if not 0 < found < 1e6:
        raise ValueError(f"must be a time such as 115ms, not '{text}'")
    return found


def count(most: int) -> Callable[[str], int]:
    """Returns a parser of an integer from 1 to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
            raise ValueError(f"must be an integer from 1 to {most}, not '{text}'")
        return int(text)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """Returns a parser that takes one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be {' or '.join(words)}, not '{text}'")
        return text

    return parse


def several(*words: str) -> Callable[[str], list[str]]:
    """Returns a parser of such words with commas between them."""
    return lambda text: [one_of(*words)(part.strip()) for part in text.split(",")]


# ---- machines -------------------------------------------------------------------


class Machines:
    """Finds a modelled machine for the columns card and link (machines.toml). `factors`: multiply
    values of its profile, by key."""

    def __init__(self, factors: Mapping[str, float] | None = None) -> None:
        self._factors = factors or {}
        text = inputs.text(str(FOLDER / "machines.toml"))
        self._lists: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
        self._profiles: dict[tuple[float, float, str], profiles.Profile] = {}

    def of(self, figure: Figure, host: str | None = None) -> Machine:
        """Returns the machine of a figure. `host`: replaces the host that card and link imply.

        Raises FigureError if its link is unknown.
        """
        card, link = figure.columns["card"], figure.columns["link"]
        known = self._first("card", card) or {}
        rate = self._rate(link) or self._rate(str(known.get("link", "")))
        if rate is None:
            raise FigureError(
                f"row {figure.id}: link: neither a generation nor a rate; write "
                "'PCIe 3.0' or '12 GB/s'"
            )
        gib = _named(card, r"(\d+) ?GB\b(?!/)") or known.get("memory_gib")
        memory_bytes = figure.parameters.get("memory") or (gib and int(gib * USABLE * (1 << 30)))
        gbps = _named(card, r"([\d.]+) ?GB/s") or known.get("gbps")
        host = host or (self._first("host", f"{card}; {link}") or {})["name"]
        profile = self._profile(rate, known.get("remote_gbps", 0.0), str(host))
        return Machine(
            profile,
            memory_bytes,
            gbps or float(profile.values["kernels.default_gbps"]),
            known.get("tflops", TFLOPS),
            str(host),
        )

    def _first(self, kind: str, text: str) -> dict[str, Any] | None:
        entries = self._lists[kind]
        return next((one for one in entries if re.search(one["pattern"], text, re.I)), None)

    def _rate(self, link: str) -> float | None:
        generation = self._first("link", link)
        return generation["gbps"] if generation else _named(link, r"([\d.]+) ?GB/s")

    def _profile(self, rate: float, remote_gbps: float, host: str) -> profiles.Profile:
        """Returns the profile on a host, with all rates of the link changed in proportion.
        `remote_gbps`: replaces the rate of reads in place, unless 0."""
        if (rate, remote_gbps, host) not in self._profiles:
            base = profiles.load(f"{PROFILE}@{host}")
            copies = float(base.values["link.copy_h2d_gbps"])
            keys = [k for k in base.values if k.startswith("link.") and k.endswith("_gbps")]
            changes = {key: str(float(base.values[key]) * rate / copies) for key in keys}
            if remote_gbps:
                changes["link.remote_gbps"] = str(remote_gbps)
            for key, factor in self._factors.items():
                changes[key] = str(float(base.values[key]) * factor)
            self._profiles[rate, remote_gbps, host] = base.changed(changes)
        return self._profiles[rate, remote_gbps, host]


def _named(text: str, pattern: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None
