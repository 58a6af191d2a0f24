"""The table of pump top: its columns, their cells and order, and what rows were before. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pump.cli.support import live
from pump.cli.support.columns import fitted
from pump.cli.top.text import SPARKS, Span, sparkline
from pump.names import printable
from pump.nvml import Identity
from pump.report.words import seconds, share, size

LOOKS_KEPT = 240
JOB_MOST, SPARK_MOST = 40, 24
"""Columns that a wide screen gives them."""
GOOD_HIT, FAIR_HIT = 0.99, 0.9
GOOD_LOST, FAIR_LOST = 0.02, 0.1

Key = tuple[str, int]
"""A client for as long as it runs: its job's socket, its process id."""


def key_of(row: live.Row) -> Key:
    """The client of a row."""
    return row.seen.job.socket, row.client.pid


def causes(rates: live.Rates) -> dict[str, float]:
    """Blocks that operations waited for each second, by cause."""
    return {
        "late": rates.late_per_s,
        "unseen": rates.unseen_per_s,
        "no room": rates.no_room_per_s,
        "policy": rates.policy_per_s,
    }


def waits(rates: live.Rates) -> float:
    """Blocks that operations waited for each second."""
    return sum(causes(rates).values())


def moved(rates: live.Rates) -> float:
    """Bytes that pump moved each second, both ways."""
    return rates.to_gpu_bytes_per_s + rates.to_host_bytes_per_s


class History:
    """The rates of each client and of all together, at the last LOOKS_KEPT looks."""

    def __init__(self) -> None:
        self._of: dict[Key, deque[live.Rates]] = {}
        self._all: deque[Sequence[live.Rates]] = deque(maxlen=LOOKS_KEPT)

    def add(self, rows: Iterable[live.Row]) -> None:
        """Add a look; clients that it lacks are forgotten."""
        now = {key_of(row): row.rates for row in rows}
        self._of = {key: self._of.get(key, deque(maxlen=LOOKS_KEPT)) for key in now}
        for key, rates in now.items():
            self._of[key].append(rates)
        self._all.append(list(now.values()))

    def of(self, key: Key, figure: Callable[[live.Rates], float]) -> list[float]:
        """A figure of a client, the oldest first."""
        return [figure(rates) for rates in self._of.get(key, ())]

    def of_all(self, figure: Callable[[live.Rates], float]) -> list[float]:
        """The sums of all clients."""
        return [sum(map(figure, look)) for look in self._all]


class Context(NamedTuple):
    """What cells need besides their row. marks: of sparklines."""

    identities: Mapping[str, Identity]
    history: History
    marks: str = SPARKS


class Column(NamedTuple):
    """A column of the table. width: in characters, without the blank before it. rank: a narrow
    screen leaves out the columns of the highest ranks. order: of rows that are sorted by it."""

    head: str
    width: int
    rank: int
    cell: Callable[[live.Row, Context, int], str | Span]
    """Its text for a row, in so many columns at most."""
    order: Callable[[live.Row], float | str] | None = None
    left: bool = False
    moving: bool = False
    """Only where the screen is drawn again and again."""


def total(row: live.Row, name: str) -> int:
    """Bytes of a client on all its devices."""
    return sum(int(getattr(device, f"{name}_bytes")) for device in row.client.devices)


def is_active(row: live.Row) -> bool:
    """Whether the client oversubscribes a device."""
    return any(device.active for device in row.client.devices)


def _gpus(row: live.Row, context: Context) -> str:
    known = context.identities
    found = []
    for device in row.client.devices:
        index = known[device.uuid].number if device.uuid in known else None
        found.append(str(device.index if index is None else index))
    return ",".join(found) or "-"


def hit(row: live.Row) -> Span:
    """A client's share of block uses that found their block on the GPU."""
    rate = row.rates.hit_rate
    if rate is None:
        return Span("-")
    style = "good" if rate >= GOOD_HIT else "warn" if rate >= FAIR_HIT else "bad"
    return Span(share(rate, 1.0), style)


def lost(row: live.Row) -> Span:
    """The time that a client's GPU waited for memory, and its share of the client's time."""
    found = live.lost(row)
    if found is None:
        return Span("-")
    style = "good" if found[1] < GOOD_LOST else "warn" if found[1] < FAIR_LOST else "bad"
    return Span(f"{seconds(found[0])} {share(found[1], 1.0)}", style)


def state(row: live.Row) -> Span:
    """Active, or dormant while everything fits; waiting for its turn on a GPU."""
    if any(device.held_threads for device in row.client.devices):
        return Span("waiting", "warn")
    return Span("active") if is_active(row) else Span("dormant", "dim")


def cause(row: live.Row) -> Span:
    """Why operations waited most often."""
    found = causes(row.rates)
    worst = max(found, key=lambda name: found[name])
    return Span(worst, "warn") if found[worst] else Span("-", "dim")


def _spark(figure: Callable[[live.Rates], float], style: str) -> Callable[..., Span]:
    def cell(row: live.Row, context: Context, width: int) -> Span:
        values = context.history.of(key_of(row), figure)
        return Span(sparkline(values, width, context.marks), style)

    return cell


def _bytes(name: str) -> Callable[..., str]:
    return lambda row, context, width: size(total(row, name))


COLUMNS = (
    Column("PID", 8, 0, lambda row, *_: str(row.client.pid), lambda row: row.client.pid),
    Column("JOB", 16, 0, lambda row, *_: row.seen.job.name, lambda row: row.seen.job.name, True),
    Column("GPU", 3, 4, lambda row, context, _: _gpus(row, context)),
    Column("POLICY", 8, 6, lambda row, *_: row.client.policy, left=True),
    Column("STATE", 8, 2, lambda row, *_: state(row), left=True),
    Column("RESIDENT", 10, 0, _bytes("resident"), lambda row: -total(row, "resident")),
    Column("BUDGET", 10, 1, _bytes("budget"), lambda row: -total(row, "budget")),
    Column("MEMORY", 10, 5, _bytes("allocated"), lambda row: -total(row, "allocated")),
    Column("~HIT", 6, 0, lambda row, *_: hit(row), lambda row: row.rates.hit_rate or 0.0),
    Column("LOST", 14, 1, lambda row, *_: lost(row), lambda row: -(live.lost(row) or (0, 0))[1]),
    Column(
        "IN/S", 10, 5,
        lambda row, *_: size(row.rates.to_gpu_bytes_per_s),
        lambda row: -row.rates.to_gpu_bytes_per_s,
    ),
    Column(
        "OUT/S", 10, 5,
        lambda row, *_: size(row.rates.to_host_bytes_per_s),
        lambda row: -row.rates.to_host_bytes_per_s,
    ),
    Column("MOVED", 8, 3, _spark(moved, "in"), lambda row: -moved(row.rates), True, True),
    Column(
        "~MISS/S", 8, 6, lambda row, *_: f"{waits(row.rates):,.0f}", lambda row: -waits(row.rates)
    ),
    Column("WAITS", 8, 4, _spark(waits, "warn"), None, True, True),
    Column("CAUSE", 7, 0, lambda row, *_: cause(row), left=True),
    Column("WINDOW", 6, 7, lambda row, *_: str(row.client.worker.get("window_depth", 0))),
    Column("OPS/S", 8, 7, lambda row, *_: f"{row.rates.operations_per_s:,.0f}"),
)  # fmt: skip
SORTS = tuple(column.head for column in COLUMNS if column.order)


def columns(width: int, *, with_lost: bool, moving: bool) -> list[Column]:
    """The columns that fit on a screen of `width` characters, in their order and with what more
    room there is. with_lost: whether a client tells the time that it lost."""
    chosen = [
        column
        for column in COLUMNS
        if (moving or not column.moving) and (with_lost or column.head != "LOST")
    ]
    while (more := width - _width(chosen)) < 0 and (last := max(c.rank for c in chosen)):
        chosen = [column for column in chosen if column.rank < last]
    wide = [
        _widened(column, JOB_MOST, more) if column.head == "JOB" else column for column in chosen
    ]
    sparks = sum(column.moving for column in wide)
    more = max(0, width - _width(wide)) // max(1, sparks)
    return [_widened(column, SPARK_MOST, more) if column.moving else column for column in wide]


def _widened(column: Column, most: int, more: int) -> Column:
    return column._replace(width=max(column.width, min(most, column.width + more)))


def _width(chosen: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in chosen) - 1


def arranged(rows: Sequence[live.Row], head: str, *, backwards: bool) -> list[live.Row]:
    """Rows in the order of a column, the largest first; process ids and names the other way."""
    order = next(column.order for column in COLUMNS if column.head == head)
    assert order is not None
    return sorted(rows, key=lambda row: (order(row), row.client.pid), reverse=backwards)


def head_of(chosen: Sequence[Column], sort: str) -> list[Span]:
    """The line above the table; the column by which it is sorted stands out."""
    spans = []
    for column in chosen:
        style = "chosen" if column.head == sort else "bold"
        spans += [Span(fitted(column.head, column.width, left=column.left), style), Span(" ")]
    return spans[:-1]


def row_of(
    chosen: Sequence[Column], row: live.Row, context: Context, *, is_chosen: bool
) -> list[Span]:
    """A client's line; ">" and reverse video for the chosen one."""
    spans = []
    for column in chosen:
        found = column.cell(row, context, column.width)
        text, style = found if isinstance(found, Span) else (found, "")
        spans.append(Span(fitted(printable(text), column.width, left=column.left), style))
        spans.append(Span(" "))
    spans = spans[:-1]
    if is_chosen:
        words = "".join(span.text for span in spans)
        return [Span(">" + words[1:], "chosen")]
    return spans
