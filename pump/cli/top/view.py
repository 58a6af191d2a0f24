"""What pump top shows on a terminal: the page, the order, the chosen client; and how keys change
it. No I/O but the pages' own."""

from __future__ import annotations

from collections.abc import Sequence

from pump.cli.support import live
from pump.cli.top.details import page as details_page
from pump.cli.top.overview import Page, host
from pump.cli.top.overview import page as overview_page
from pump.cli.top.table import SORTS, Context, History, Key, arranged, key_of
from pump.cli.top.text import SPARKS, Line, Span, line

KEYS = (("q", "quit"), ("up/down", "choose"), ("enter", "details"))
IN_DETAILS = (("q", "quit"), ("esc", "all jobs"), ("up/down", "other job"))
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}


class View:
    """The state of the screen. marks: of sparklines."""

    def __init__(self, marks: str = SPARKS) -> None:
        self._history = History()
        self._marks = marks
        self._look: live.Look | None = None
        self._host: Line = ()
        self._rows: list[live.Row] = []
        self._sort = "PID"
        self._backwards = False
        self._chosen: Key | None = None
        self._place = 0
        self._opened: live.Row | None = None
        """The client of the page of details, as it was seen last."""

    def take(self, look: live.Look) -> None:
        """Show another look."""
        if look is self._look:
            return
        rows = live.rows(look, self._look)
        if self._look is not None:  # rates of one look are averages since a client began
            self._history.add(rows)
        self._look = look
        self._host = host()
        self._arrange(rows)

    def press(self, key: str) -> bool:
        """Act on a key; returns whether the program goes on."""
        if key in STEPS:
            self._choose(self._place + STEPS[key])
        elif key in ("enter", " ") and self._rows:
            self._opened = self._rows[self._place]
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

    def lines(self, width: int, height: int) -> list[Line]:
        """The screen, `height` lines of at most `width` columns."""
        if self._look is None:
            return [line(("pump top", "title"), "  looks for jobs ...")]
        context = Context(self._look.identities, self._history, self._marks)
        room = max(1, height - 1)
        shown = Page(
            self._look, self._host, self._rows, context, width, room, self._sort, self._chosen
        )
        if self._opened is not None:
            keys = [key_of(row) for row in self._rows]
            ended = key_of(self._opened) not in keys
            found = details_page(shown, self._opened, ended=ended)
        else:
            found = overview_page(shown)
        blank: list[Line] = [line()] * (room - len(found))
        return [*found[:room], *blank, self._bottom()][:height]

    def _arrange(self, rows: Sequence[live.Row]) -> None:
        """Put the rows into their order; the chosen client stays chosen, if it is there."""
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

    def _bottom(self) -> Line:
        order = (("s/S", f"by {self._sort}"), ("r", f"revers{'ed' if self._backwards else 'e'}"))
        keys = (*KEYS, *order) if self._opened is None else IN_DETAILS
        return [
            span
            for key, meaning in keys
            for span in (Span(f" {key} ", "chosen"), Span(f" {meaning}  "))
        ]
