"""Prints for people, with rich: colours on a terminal, plain lines of any length elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.theme import Theme

WIDE = 10_000
"""Columns if the output is not a terminal, so that no line is cut or wrapped."""
STYLES = Theme(
    {
        **{"good": "green", "warn": "yellow", "bad": "red", "bar": "cyan", "in": "cyan"},
        **{"out": "magenta", "chosen": "reverse", "title": "bold cyan"},
    }
)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - Console calls it while it handles a BrokenPipeError


def console(out: TextIO | None = None) -> Console:
    """Returns a console for `out` (default: standard output). Characters that the output's
    encoding lacks become "?"."""
    out = sys.stdout if out is None else out
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")
    made = _Console(
        file=out, theme=STYLES, soft_wrap=True, highlight=False, markup=False, emoji=False
    )
    if not made.is_terminal:
        made.width = WIDE
    return made


class Columns(Table):
    """A table without lines. On a narrow screen the table leaves out columns.

    right: the right-aligned columns. least: the columns to leave out, in that order.
    chosen: the column with a highlighted name.
    """

    def __init__(
        self, names: Iterable[str], right: Iterable[str], least: Iterable[str], chosen: str = ""
    ) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        self._least = list(least)
        for name in names:
            self.add_column(
                name,
                justify="right" if name in right else "left",
                header_style="chosen" if name == chosen else "bold",
                no_wrap=True,
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=WIDE)
        while self._least and Measurement.get(console, wide, self).maximum > options.max_width:
            left = self._least.pop(0)
            kept = [column for column in self.columns if column.header != left]
            self.columns = [replace(column, _index=at) for at, column in enumerate(kept)]
        return super().__rich_console__(console, options)
