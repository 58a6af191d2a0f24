"""Plots as inline SVG: stacked areas, lines, bars. Pure.

Coordinates are in pixels of a box of WIDTH x HEIGHT; it scales with the page. The x axis
begins at 0, so that plots of one recording stand above each other.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 860
HEIGHT: Final = 250
LEFT, RIGHT, TOP, BOTTOM = 78, 14, 12, 34
UNDER: Final = 4
"""From the lowest line of text to the edge: letters reach below their line."""
TICKS: Final = 5
IN_THE_DARK: Final = "@media(prefers-color-scheme:dark){svg{filter:invert(.87) hue-rotate(180deg)}}"
"""A picture of its own turns from black on white to the other way, and keeps its hues."""
USUAL: Final = 0.97
"""Share of the values that are no spike."""
SPIKE: Final = 1.5
"""Multiple of a usual value at which an axis is cut."""

Words = Callable[[float], str]


class Series(NamedTuple):
    """One line or one layer: a name for the legend, a colour, values over the plot's x."""

    name: str
    colour: str
    values: Sequence[float]


def steps(most: float) -> list[float]:
    """Round values from 0 to about `most`, for an axis."""
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    raw = most / TICKS
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * nice for nice in (1, 2, 2.5, 5, 10) if scale * nice >= raw)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def count_steps(most: float) -> list[float]:
    """The same in whole numbers."""
    return steps(max(most, float(TICKS)))


def byte_steps(most: float) -> list[float]:
    """The same in powers of 1024, so that labels are round in MiB and GiB."""
    unit = 1.0
    while most / unit >= 1024:
        unit *= 1024
    return [step * unit for step in steps(most / unit)]


def crest(values: Sequence[float]) -> float:
    """Where an axis for these values ends: at the greatest, but where that is a rare spike, at a
    multiple of the others, so that they stay readable; `lines` names what it cuts off."""
    ordered = sorted(values)
    if not ordered:
        return 1.0
    usual = ordered[int((len(ordered) - 1) * USUAL)]
    return SPIKE * usual if 0 < 2 * SPIKE * usual < ordered[-1] else ordered[-1]


class _Frame:
    """Axes of a plot with labels at given values, and where values lie in it. until: where the
    x axis ends, if not at its last label."""

    def __init__(self, x_steps: list[float], y_steps: list[float], until: float = 0) -> None:
        self.x_steps, self.y_steps = x_steps, y_steps
        self.x_span = max(1e-9, (until or x_steps[-1]) - x_steps[0])
        self.y_span = max(1e-9, y_steps[-1] - y_steps[0])

    @classmethod
    def of_time(cls, until: float, y_steps: list[float]) -> _Frame:
        """Over seconds from 0 to `until`."""
        until = max(1e-9, until)
        return cls([value for value in steps(until) if value <= until * 1.0001], y_steps, until)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_steps[0]) / self.x_span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        room = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - (value - self.y_steps[0]) / self.y_span * room

    def axes(
        self, words: Words, x_unit: str = "seconds", x_words: Words = "{:.4g}".format
    ) -> list[str]:
        parts = []
        for value in self.y_steps:
            y = self.y(value)
            parts.append(_across("grid", y))
            parts.append(_text(LEFT - 8, y + 4, words(value), "end"))
        for value in self.x_steps:
            parts.append(_text(self.x(value), HEIGHT - BOTTOM + 18, x_words(value), "middle"))
        parts.append(_text(WIDTH - RIGHT, HEIGHT - UNDER, x_unit, "end"))
        return parts

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def _across(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _svg(parts: list[str], label: str, height: float = HEIGHT, more: str = "") -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    return f'<svg {more}{box} role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'


def _line(one: Series, points: str) -> str:
    return (
        f'<polyline fill="none" stroke="{one.colour}" stroke-width="1.6" points="{points}">'
        f"<title>{html.escape(one.name)}</title></polyline>"
    )


def stacked(
    label: str,
    xs: Sequence[float],
    layers: Sequence[Series],
    *,
    words: Words,
    until: float,
    mark: tuple[str, float] | None = None,
) -> str:
    """Layers on top of each other. until: where the x axis ends. mark: a dashed line across,
    with its name."""
    sums = [0.0] * len(xs)
    for layer in layers:
        sums = [a + b for a, b in zip(sums, layer.values, strict=True)]
    frame = _Frame.of_time(until, byte_steps(max([*sums, mark[1] if mark else 0.0, 1.0])))
    parts = frame.axes(words)
    below = [0.0] * len(xs)
    for layer in layers:
        above = [a + b for a, b in zip(below, layer.values, strict=True)]
        points = f"{frame.path(xs, above)} {frame.path(xs[::-1], below[::-1])}"
        parts.append(
            f'<polygon fill="{layer.colour}" points="{points}"><title>{html.escape(layer.name)}'
            "</title></polygon>"
        )
        below = above
    if mark:
        y = frame.y(mark[1])
        parts += [_across("halo", y), _across("mark", y)]
        parts.append(_text(WIDTH - RIGHT - 4, y - 5, mark[0], "end"))
    return _svg(parts, label)


def lines(
    label: str,
    xs: Sequence[float],
    series: Sequence[Series],
    *,
    words: Words,
    until: float,
    y_steps: list[float],
) -> str:
    """Rates over one axis: each value holds from the x before, or 0, to its own. What is above
    the last of y_steps is cut there, and the greatest value said."""
    frame = _Frame.of_time(until, y_steps)
    parts = frame.axes(words)
    before = [0.0, *xs[:-1]]
    corners = [x for pair in zip(before, xs, strict=True) for x in pair]
    top = y_steps[-1]
    parts += [
        _line(one, frame.path(corners, [min(y, top) for y in one.values for _ in range(2)]))
        for one in series
    ]
    greatest = max([0.0, *(y for one in series for y in one.values)])
    if greatest > top * 1.0001:
        said = f"cut off here: up to {words(greatest)}"
        parts.append(_text(WIDTH - RIGHT - 4, frame.y(top) + 12, said, "end"))
    return _svg(parts, label)


def curves(
    label: str,
    xs: Sequence[float],
    series: Sequence[Series],
    *,
    words: Words,
    x_unit: str,
    x_words: Words = "{:.4g}".format,
    ends: tuple[float, float] | None = None,
    mark: tuple[str, float] | None = None,
) -> str:
    """A picture of its own, for a file: lines through the values at `xs`, with their names. ends:
    of the y axis; None: 1 and the greatest value. mark: a dashed line up at an x, with its name."""
    least, most = ends or (1.0, max([*(y for one in series for y in one.values), 1.0]))
    low, high = min(xs), max(xs)
    quarters = [number / 4 for number in range(5)]
    frame = _Frame(
        [low + (high - low) * part for part in quarters],
        [least + (most - least) * part for part in quarters],
    )
    parts = [
        f"<style>text{{font:12px sans-serif}}.grid{{stroke:#ddd}}{IN_THE_DARK}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *frame.axes(words, x_unit, x_words),
        _text(LEFT, HEIGHT - UNDER, label, "start"),
    ]
    if mark:
        x, along = frame.x(mark[1]), f'y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
        parts.append(
            f'<line stroke="#999" stroke-dasharray="4" x1="{x:.1f}" x2="{x:.1f}" {along}/>'
        )
        parts.append(_text(x + 5, TOP + 12, mark[0], "start"))
    for number, one in enumerate(series):
        parts.append(_line(one, frame.path(xs, one.values)))
        place = WIDTH - RIGHT - 8, TOP + 12 + 14 * number
        parts.append(_text(*place, one.name, "end", f' fill="{one.colour}"'))
    return _svg(parts, label, more='xmlns="http://www.w3.org/2000/svg" ') + "\n"


def bars(label: str, rows: Sequence[tuple[str, float, str]], colour: str) -> str:
    """Horizontal bars: name, value, the value in words."""
    most = max([value for _, value, _ in rows] or [1.0]) or 1.0
    row, names, room = 24, 300, WIDTH - 300 - 110
    parts = []
    for number, (name, value, said) in enumerate(rows):
        y, width = number * row + 4, max(1.0, value / most * room)
        parts.append(_text(names - 8, y + 14, name, "end"))
        parts.append(f'<rect x="{names}" y="{y}" width="{width:.1f}" height="17" fill="{colour}"/>')
        parts.append(_text(names + width + 6, y + 14, said, "start"))
    return _svg(parts, label, len(rows) * row + 8)


def rates(xs: Sequence[float], totals: Sequence[float]) -> list[float]:
    """A total that grows from 0 at x = 0, as a rate per unit of x between each value and the
    one before."""
    found, x, total = [], 0.0, 0.0
    for next_x, next_total in zip(xs, totals, strict=True):
        span, grown = next_x - x, next_total - total
        found.append(max(0.0, grown) / span if span > 0 else 0.0)
        x, total = next_x, next_total
    return found
