"""Plots as inline SVG: stacked areas, lines, bars. Text in, text out; nothing is loaded.

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
TICKS: Final = 5

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


class _Frame:
    """Axes of a plot, and where values lie in it."""

    def __init__(self, until: float, y_steps: list[float]) -> None:
        self.x_most = max(1e-9, until)
        self.y_steps = y_steps
        self.y_most = y_steps[-1]

    def x(self, value: float) -> float:
        return LEFT + value / self.x_most * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.y_most * (HEIGHT - TOP - BOTTOM)

    def axes(self, words: Words) -> list[str]:
        parts = []
        for value in self.y_steps:
            y = self.y(value)
            parts.append(_across("grid", y))
            parts.append(_text(LEFT - 8, y + 4, words(value), "end"))
        for value in steps(self.x_most):
            if value <= self.x_most * 1.0001:
                parts.append(_text(self.x(value), HEIGHT - BOTTOM + 18, f"{value:.4g}", "middle"))
        parts.append(_text(WIDTH - RIGHT, HEIGHT - 2, "seconds", "end"))
        return parts

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _across(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _svg(parts: list[str], label: str, height: float = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(label)}">'
        + "".join(parts)
        + "</svg>"
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
    frame = _Frame(until, byte_steps(max([*sums, mark[1] if mark else 0.0, 1.0])))
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
        parts.append(_across("mark", y))
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
    """Rates over one axis: each value holds from the x before, or 0, to its own."""
    frame = _Frame(until, y_steps)
    parts = frame.axes(words)
    before = [0.0, *xs[:-1]]
    corners = [x for pair in zip(before, xs, strict=True) for x in pair]
    parts += [
        f'<polyline fill="none" stroke="{one.colour}" stroke-width="1.6" '
        f'points="{frame.path(corners, [y for y in one.values for _ in range(2)])}">'
        f"<title>{html.escape(one.name)}</title></polyline>"
        for one in series
    ]
    return _svg(parts, label)


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
