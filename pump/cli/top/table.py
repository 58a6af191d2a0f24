"""The table of pump top: its columns, their cells and order, and the history of its clients."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from pump.base.console import Columns
from pump.base.nvml import Identity
from pump.base.processes import age_s
from pump.cli.support import live
from pump.cli.support.listed import time_of, user
from pump.cli.top.text import SPARKS, cut, line, sparkline
from pump.report.words import seconds, share, size

POLLS_KEPT = 240
JOB_MOST = 40
SPARK_LEAST, SPARK_MOST = 8, 24
WIDE = 190
"""Columns of a screen with space for long sparklines."""
GOOD_HIT, FAIR_HIT = 0.99, 0.9
GOOD_LOST, FAIR_LOST = 0.02, 0.1

Key = tuple[str, int]
"""Identifies a client while it runs: its job's socket, its process id."""


def key_of(row: live.Row) -> Key:
    """Returns the key of a row's client."""
    return row.seen.job.socket, row.client.pid


def causes(rates: live.Rates) -> dict[str, float]:
    """Returns the blocks that operations waited for each second, by cause."""
    return {
        "late": rates.late_per_s,
        "unseen": rates.unseen_per_s,
        "no room": rates.no_room_per_s,
        "policy": rates.policy_per_s,
    }


def waits(rates: live.Rates) -> float:
    """Returns the blocks that operations waited for each second."""
    return sum(causes(rates).values())


def moved(rates: live.Rates) -> float:
    """Returns the bytes that pump moved each second, in both directions."""
    return rates.to_gpu_bytes_per_s + rates.to_host_bytes_per_s


class History:
    """The rates of each client, and of all clients together, in the last POLLS_KEPT polls."""

    def __init__(self) -> None:
        self._of: dict[Key, deque[live.Rates]] = {}
        self._all: deque[Sequence[live.Rates]] = deque(maxlen=POLLS_KEPT)

    def add(self, rows: Iterable[live.Row]) -> None:
        """Adds a poll. Forgets clients that are not in it."""
        now = {key_of(row): row.rates for row in rows}
        self._of = {key: self._of.get(key, deque(maxlen=POLLS_KEPT)) for key in now}
        for key, rates in now.items():
            self._of[key].append(rates)
        self._all.append(list(now.values()))

    def of(self, key: Key, metric: Callable[[live.Rates], float]) -> list[float]:
        """Returns the history of a client's metric, the oldest value first."""
        return [metric(rates) for rates in self._of.get(key, ())]

    def of_all(self, metric: Callable[[live.Rates], float]) -> list[float]:
        """Returns the history of a metric's sum over all clients."""
        return [sum(map(metric, poll)) for poll in self._all]


class Context(NamedTuple):
    """Data for cells, in addition to their row. priorities: of jobs, by socket. marks: characters
    for sparklines. spark: length of a sparkline."""

    identities: Mapping[str, Identity]
    history: History
    priorities: Mapping[str, int] = {}
    marks: str = SPARKS
    spark: int = SPARK_LEAST


class Column(NamedTuple):
    """A column of the table. `rank`: a narrow screen leaves out columns with the highest ranks.
    `order`: the sort key of a row. `moving`: only for a screen that is drawn repeatedly."""

    head: str
    rank: int
    cell: Callable[[live.Row, Context], str | Text]
    order: Callable[[live.Row], float | str] | None = None
    left: bool = False
    moving: bool = False


def total(row: live.Row, name: str) -> int:
    """Returns the bytes of a client on all its devices."""
    return sum(int(getattr(device, f"{name}_bytes")) for device in row.client.devices)


def is_active(row: live.Row) -> bool:
    """Returns whether the client oversubscribes a device."""
    return any(device.active for device in row.client.devices)


def _gpus(row: live.Row, context: Context) -> str:
    known = context.identities
    found = []
    for device in row.client.devices:
        index = known[device.uuid].number if device.uuid in known else None
        found.append(str(device.index if index is None else index))
    return ",".join(found) or "-"


def hit(row: live.Row) -> Text:
    """Formats the share of a client's block uses that found the block on the GPU."""
    rate = row.rates.hit_rate
    if rate is None:
        return Text("-")
    style = "good" if rate >= GOOD_HIT else "warn" if rate >= FAIR_HIT else "bad"
    return Text(share(rate, 1.0), style)


def lost(row: live.Row) -> Text:
    """Formats the time that a client's GPU waited for memory, and its share of the whole time."""
    found = live.lost(row)
    if found is None:
        return Text("-")
    style = "good" if found[1] < GOOD_LOST else "warn" if found[1] < FAIR_LOST else "bad"
    return Text(f"{seconds(found[0])} {share(found[1], 1.0)}", style)


def state(row: live.Row) -> Text:
    """Formats the state: waiting for a turn on a GPU, active, or dormant while everything fits."""
    if any(device.held_threads for device in row.client.devices):
        return Text("waiting", "warn")
    return Text("active") if is_active(row) else Text("dormant", "dim")


def cause(row: live.Row) -> Text:
    """Formats the most frequent cause of waits."""
    found = causes(row.rates)
    worst = max(found, key=lambda name: found[name])
    return Text(worst, "warn") if found[worst] else Text("-", "dim")


def _spark(metric: Callable[[live.Rates], float], style: str) -> Callable[..., Text]:
    def cell(row: live.Row, context: Context) -> Text:
        values = context.history.of(key_of(row), metric)
        return Text(sparkline(values, context.spark, context.marks), style)

    return cell


def _bytes(name: str) -> Callable[..., str]:
    return lambda row, _: size(total(row, name))


COLUMNS = (
    Column("PID", 0, lambda row, _: str(row.client.pid), lambda row: row.client.pid),
    Column("USER", 6, lambda *_: user(os.geteuid()), left=True),
    Column("JOB", 0, lambda row, _: cut(row.seen.job.name, JOB_MOST),
           lambda row: row.seen.job.name, True),
    Column("PRIO", 6, lambda row, known: str(known.priorities.get(row.seen.job.socket, "-"))),
    Column("TIME", 2, lambda row, _: time_of(age_s(row.client.pid)),
           lambda row: -age_s(row.client.pid)),
    Column("GPU", 4, _gpus),
    Column("POLICY", 6, lambda row, _: row.client.policy, left=True),
    Column("STATE", 2, lambda row, _: state(row), left=True),
    Column("RESIDENT", 0, _bytes("resident"), lambda row: -total(row, "resident")),
    Column("BUDGET", 1, _bytes("budget"), lambda row: -total(row, "budget")),
    Column("MEMORY", 5, _bytes("allocated"), lambda row: -total(row, "allocated")),
    Column("~HIT", 0, lambda row, _: hit(row), lambda row: row.rates.hit_rate or 0.0),
    Column("LOST", 1, lambda row, _: lost(row), lambda row: -(live.lost(row) or (0, 0))[1]),
    Column("IN/S", 5, lambda row, _: size(row.rates.to_gpu_bytes_per_s),
           lambda row: -row.rates.to_gpu_bytes_per_s),
    Column("OUT/S", 5, lambda row, _: size(row.rates.to_host_bytes_per_s),
           lambda row: -row.rates.to_host_bytes_per_s),
    Column("MOVED", 3, _spark(moved, "in"), lambda row: -moved(row.rates), True, True),
    Column("~MISS/S", 6, lambda row, _: f"{waits(row.rates):,.0f}", lambda row: -waits(row.rates)),
    Column("WAITS", 4, _spark(waits, "warn"), None, True, True),
    Column("CAUSE", 0, lambda row, _: cause(row), left=True),
    Column("WINDOW", 7, lambda row, _: str(row.client.worker.get("window_depth", 0))),
    Column("OPS/S", 7, lambda row, _: f"{row.rates.operations_per_s:,.0f}"),
)  # fmt: skip
SORTS = tuple(column.head for column in COLUMNS if column.order)


def arranged(rows: Sequence[live.Row], head: str, *, backwards: bool) -> list[live.Row]:
    """Returns rows in the order of a column: the largest first, process ids and names ascending."""
    order = next(column.order for column in COLUMNS if column.head == head)
    assert order is not None
    return sorted(rows, key=lambda row: (order(row), row.client.pid), reverse=backwards)


def table(
    rows: Sequence[live.Row], context: Context, *, sort: str = "", chosen: Key | None = None
) -> Columns:
    """Returns the table of these rows, with ">" and reverse video for the chosen row. sort: on a
    screen, the column that the rows are sorted by; "" elsewhere."""
    lost_known = any(live.lost(row) is not None for row in rows)
    shown = [
        column
        for column in COLUMNS
        if (sort or not column.moving) and (lost_known or column.head != "LOST")
    ]
    made = Columns(
        ["", *(column.head for column in shown)],
        {column.head for column in shown if not column.left},
        [column.head for column in sorted(shown, key=lambda one: -one.rank) if column.rank],
        sort,
    )
    for row in rows:
        marked = key_of(row) == chosen
        cells = [line(column.cell(row, context)) for column in shown]
        if marked:
            cells = [line(cell.plain) for cell in cells]
        made.add_row(">" if marked else "", *cells, style="chosen" if marked else None)
    return made
