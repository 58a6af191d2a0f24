"""The state of pump top on a terminal, and the effect of keys: the page, the order, the chosen
client. No I/O except in the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.text import Text

from pump.cli.support import live
from pump.cli.top.details import page as details_page
from pump.cli.top.overview import Page, host
from pump.cli.top.overview import page as overview_page
from pump.cli.top.table import (
    SORTS,
    SPARK_LEAST,
    SPARK_MOST,
    WIDE,
    Context,
    History,
    Key,
    arranged,
    key_of,
)
from pump.cli.top.text import SPARKS, line

KEYS = (("q", "quit"), ("?", "help"), ("up/down", "choose"), ("enter", "details"))
IN_DETAILS = (("q", "quit"), ("esc", "all jobs"), ("up/down", "other job"))
IN_HELP = (("q", "quit"), ("esc", "back"))
HELP = (
    ("up, down, k, j", "choose a process; page up and page down move by ten"),
    ("enter", "details of the chosen process"),
    ("esc", "back to all jobs"),
    ("s, S", "sort by the next or previous column"),
    ("r", "reverse the order"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("STATE", "dormant: all memory fits; active: pump moves memory;"),
    ("", "waiting: another job has the GPU"),
    ("RESIDENT", "memory on the GPU now; the rest is in host RAM"),
    ("BUDGET", "the most memory that may be on the GPU"),
    ("MEMORY", "all pageable memory of the job"),
    ("~HIT", "share of blocks that were on the GPU when a kernel used them"),
    ("LOST", "time that kernels waited for memory, and its share"),
    ("IN/S, OUT/S, MOVED", "transfers to the GPU, to the host, both"),
    ("~MISS/S, WAITS", "blocks that kernels waited for, per second"),
    ("CAUSE", "why they waited, most often"),
)
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}


class View:
    """The state of the screen. marks: characters for sparklines."""

    def __init__(self, marks: str = SPARKS) -> None:
        self._history = History()
        self._marks = marks
        self._poll: live.Poll | None = None
        self._host = line()
        self._rows: list[live.Row] = []
        self._sort = "PID"
        self._backwards = False
        self._chosen: Key | None = None
        self._place = 0
        self._opened: live.Row | None = None
        """The client of the details page, in its last known state."""
        self._helps = False

    def take(self, poll: live.Poll) -> None:
        """Shows the result of another poll."""
        if poll is self._poll:
            return
        rows = live.rows(poll, self._poll)
        if self._poll is not None:  # the first poll has only averages
            self._history.add(rows)
        self._poll = poll
        self._host = host()
        self._arrange(rows)

    def press(self, key: str) -> bool:
        """Handles a key; returns whether the program continues."""
        if key in STEPS:
            self._choose(self._place + STEPS[key])
        elif key in ("enter", " ") and self._rows:
            self._opened = self._rows[self._place]
        elif key == "?":
            self._helps = not self._helps
        elif key == "back" and self._helps:
            self._helps = False
        elif key == "back":
            self._opened = None
        elif key in ("s", "S") and self._opened is None:
            at = SORTS.index(self._sort) + (1 if key == "s" else -1)
            self._sort = SORTS[at % len(SORTS)]
            self._arrange(self._rows)
        elif key == "r" and self._opened is None:
            self._backwards = not self._backwards
            self._arrange(self._rows)
        return key != "q"

    def page(self, width: int, height: int) -> Layout:
        """Returns the screen of `width` columns and `height` lines."""
        made = Layout()
        made.split_column(
            Layout(Group(*self._body(width, max(1, height - 1)))), Layout(self._bottom(), size=1)
        )
        return made

    def _body(self, width: int, height: int) -> Sequence[RenderableType]:
        if self._helps:
            return [line((name.ljust(19), "bold"), meaning) for name, meaning in HELP]
        if self._poll is None:
            return [line(("pump top", "title"), "  looking for jobs ...")]
        context = Context(
            self._poll.identities,
            self._history,
            {job.socket: job.priority for job in self._poll.registered},
            self._marks,
            SPARK_MOST if width >= WIDE else SPARK_LEAST,
        )
        shown = Page(
            self._poll, self._host, self._rows, context, width, height, self._sort, self._chosen
        )
        if self._opened is None:
            return overview_page(shown)
        ended = key_of(self._opened) not in [key_of(row) for row in self._rows]
        return details_page(shown, self._opened, ended=ended)

    def _arrange(self, rows: Sequence[live.Row]) -> None:
        """Sorts the rows. The chosen client stays chosen if it is still there."""
        self._rows = arranged(rows, self._sort, backwards=self._backwards)
        keys = [key_of(row) for row in self._rows]
        self._choose(keys.index(self._chosen) if self._chosen in keys else self._place, moves=False)

    def _choose(self, place: int, *, moves: bool = True) -> None:
        self._place = max(0, min(place, len(self._rows) - 1))
        row = self._rows[self._place] if self._rows else None
        self._chosen = key_of(row) if row else None
        opened = self._opened
        if row and opened and (moves or key_of(opened) == self._chosen):
            self._opened = row

    def _bottom(self) -> Text:
        order = (("s/S", f"by {self._sort}"), ("r", f"revers{'ed' if self._backwards else 'e'}"))
        overall = IN_DETAILS if self._opened else (*KEYS, *order)
        keys: Iterable[tuple[str, str]] = IN_HELP if self._helps else overall
        parts = [((f" {key} ", "chosen"), f" {meaning} ") for key, meaning in keys]
        return line(*(part for pair in parts for part in pair))
