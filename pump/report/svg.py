"""Draws plots as SVG: stacked areas, lines, bars of time. Pure.

DESIGN
  Heights are in pixels, and positions along x are percentages. So a plot fills a page of any width,
  its text keeps its size, and a phone shows the whole axis. Curves are drawn in a box of BOX units
  that stretches with the plot.

  The values at a point are text that CSS shows while the pointer is over that point, so they need
  no script. The page must contain STYLE.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

HEIGHT: Final = 190
TOP, UNDER = 16, 26
"""Pixels above the plot, and below it for the labels of the x axis."""
BOX: Final = 1000
BAR: Final = 28
TICKS: Final = 5
LETTER: Final = 7
"""Upper bound of the mean width of a letter, in pixels."""
STYLE: Final = """
svg text{font:12px system-ui,sans-serif;fill:var(--dim,#555);paint-order:stroke;
stroke:var(--page,#fff);stroke-width:3px;stroke-linejoin:round}
.grid{stroke:var(--rule,#ddd)}.halo{stroke:var(--page,#fff);stroke-width:3px;opacity:.7}
.mark{stroke:var(--ink,#222);stroke-dasharray:5 4}
.at{opacity:0}.at:hover{opacity:1}.at rect{fill:transparent}.at line{stroke:var(--ink,#222)}
.at text{fill:var(--ink,#222);stroke:none}.at .said{fill:var(--page,#fff);opacity:.92}
"""
USUAL: Final = 0.97
"""Share of the values that are not spikes."""
SPIKE: Final = 1.5
"""Axes are cut at this multiple of a usual value."""
TIMES: Final = ((1.0, 1e-3, "ms"), (300.0, 1.0, "s"), (10800.0, 60.0, "min"))
"""Units of time axes: (the axis's upper bound in seconds, the unit in seconds, its name)."""
HOURS: Final = (math.inf, 3600.0, "h")

Words = Callable[[float], str]


class Series(NamedTuple):
    """One line or one layer: a name for the legend, a colour, values over the plot's x."""

    name: str
    colour: str
    values: Sequence[float]


class Axis(NamedTuple):
    """The values at the ends of an axis, round values between them, and the text of a value."""

    low: float
    high: float
    ticks: list[float]
    words: Words

    def part(self, value: float) -> float:
        """Returns the position of a value, from 0 to 1."""
        return (value - self.low) / max(1e-12, self.high - self.low)


def axis(low: float, high: float, words: Words, *, whole: bool = False) -> Axis:
    """Returns an axis with these ends and round ticks between them. whole: moves the ends outwards
    to ticks."""
    step = _step((high - low) / TICKS)
    if whole:
        low, high = (step * f(end / step) for f, end in ((math.floor, low), (math.ceil, high)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, [step * number for number in range(first, last + 1)], words)


def time_axis(until: float) -> Axis:
    """Returns an axis from 0 to `until` seconds, in a unit that suits its length."""
    until = max(1e-9, until)
    _, unit, name = next((row for row in TIMES if until < row[0]), HOURS)
    found = axis(0.0, until / unit, str)
    ticks = [unit * tick for tick in found.ticks]
    return Axis(0.0, until, ticks, lambda value: f"{value / unit:.4g} {name}" if value else "0")


def steps(most: float) -> list[float]:
    """Returns round values from 0 to about `most`, for an axis: 1, 2 or 5 times a power of 10
    apart."""
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    step = _step(most / TICKS)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def count_steps(most: float) -> list[float]:
    """Returns round integers from 0 to about `most`."""
    return steps(max(most, float(TICKS)))


def byte_steps(most: float) -> list[float]:
    """Returns `steps` in the fitting unit (KiB, MiB, GiB ...), so that its labels are round."""
    unit = 1.0
    while most / unit >= 1024:
        unit *= 1024
    return [step * unit for step in steps(most / unit)]


def _step(raw: float) -> float:
    scale = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next(scale * nice for nice in (1, 2, 5, 10) if scale * nice >= raw * 0.999)


def crest(values: Sequence[float]) -> float:
    """Returns where an axis for these values ends: at the greatest, or at a multiple of the usual
    values if the greatest is a rare spike. `lines` prints the value of a spike that it cuts off."""
    ordered = sorted(values)
    if not ordered:
        return 1.0
    usual = ordered[int((len(ordered) - 1) * USUAL)]
    return SPIKE * usual if 0 < 2 * SPIKE * usual < ordered[-1] else ordered[-1]


def stacked(
    label: str,
    xs: Sequence[float],
    layers: Sequence[Series],
    *,
    words: Words,
    x: Axis,
    mark: tuple[str, float] | None = None,
) -> str:
    """Draws layers on top of each other. mark: the name and value of a dashed line across."""
    sums = [math.fsum(values) for values in zip(*(layer.values for layer in layers), strict=True)]
    ticks = byte_steps(max([*sums, mark[1] if mark else 0.0, 1.0]))
    y = Axis(0.0, ticks[-1], ticks, words)
    shapes, below = [], [0.0] * len(xs)
    for layer in layers:
        above = [a + b for a, b in zip(below, layer.values, strict=True)]
        points = f"{points_of(x, y, xs, above)} {points_of(x, y, xs[::-1], below[::-1])}"
        shapes.append(f'<polygon fill="{layer.colour}" points="{points}"/>')
        below = above
    parts = [*grid(x, y), box(shapes)]
    if mark:
        height = _height(y, mark[1])
        parts += [_across("halo", height), _across("mark", height)]
        parts += [text_at("99.5%", height - 5, mark[0], "end", ' style="fill:var(--ink,#222)"')]
    middles = [xs[0], *((a + b) / 2 for a, b in pairwise(xs)), xs[-1]]
    return _svg(label, [*parts, *readouts(x, y, middles, xs, layers)])


def lines(
    label: str,
    xs: Sequence[float],
    series: Sequence[Series],
    *,
    words: Words,
    x: Axis,
    y_steps: list[float],
) -> str:
    """Draws rates: each value is valid from the previous x, or 0, to its own x. Values above the
    last of y_steps are cut off there, and the greatest is printed."""
    y = Axis(0.0, y_steps[-1], y_steps, words)
    edges = [0.0, *xs]
    corners = [end for pair in pairwise(edges) for end in pair]
    cut = [[min(value, y.high) for value in one.values for _ in range(2)] for one in series]
    shapes = [
        polyline(one.colour, points_of(x, y, corners, values))
        for one, values in zip(series, cut, strict=True)
    ]
    parts = [*grid(x, y), box(shapes)]
    greatest = max([0.0, *(value for one in series for value in one.values)])
    if greatest > y.high * 1.0001:
        said = f"cut off; the peak is {words(greatest)}"
        parts.append(text_at("100%", TOP - 5, said, "end"))
    return _svg(label, [*parts, *readouts(x, y, edges, xs, series)])


def bars(label: str, rows: Sequence[tuple[str, Sequence[tuple[float, str, str]]]], x: Axis) -> str:
    """Draws a bar for each row, with its name above it. A bar is a row of spans: the length, colour
    and tooltip of each."""
    parts, y = [], TOP
    for name, spans in rows:
        parts.append(text_at("0", y + 8, name, "start"))
        y += 16
        begin = 0.0
        for length, colour, said in spans:
            width = f"{100 * (x.part(begin + length) - x.part(begin)):.2f}%"
            parts.append(
                f'<rect x="{x_of(x, begin)}" y="{y}" width="{width}" height="{BAR}" '
                f'fill="{colour}"><title>{html.escape(said)}</title></rect>'
            )
            begin += length
        y += BAR + 12
    for tick in x.ticks:
        at = x_of(x, tick)
        parts.insert(0, f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{y}"/>')
        parts.append(text_at(at, y + 14, x.words(tick), _anchor(x.part(tick))))
    return _svg(label, parts, y + 20)


def rates(xs: Sequence[float], totals: Sequence[float]) -> list[float]:
    """Returns the growth of a total, which is 0 at x = 0, per unit of x between each value and the
    previous one."""
    found, x, total = [], 0.0, 0.0
    for next_x, next_total in zip(xs, totals, strict=True):
        span, grown = next_x - x, next_total - total
        found.append(max(0.0, grown) / span if span > 0 else 0.0)
        x, total = next_x, next_total
    return found


def x_of(x: Axis, value: float) -> str:
    """Returns where a value is along x, as a percentage."""
    return f"{100 * x.part(value):.2f}%"


def _height(y: Axis, value: float) -> float:
    return TOP + HEIGHT * (1 - y.part(value))


def _anchor(part: float) -> str:
    return "start" if part < 0.01 else "end" if part > 0.97 else "middle"


def _tick(y: Axis, value: float) -> str:
    text = y.words(value).replace(".0 ", " ")
    return "0" if text.startswith(("0 ", "0/")) else text


def grid(x: Axis, y: Axis) -> list[str]:
    """Returns the lines and labels of both axes."""
    parts = []
    for value in y.ticks:
        height = _height(y, value)
        parts.append(_across("grid", height))
        parts.append(text_at("-8", height + 4, _tick(y, value), "end"))
    for value in x.ticks:
        at = x_of(x, value)
        parts.append(text_at(at, TOP + HEIGHT + 18, x.words(value), _anchor(x.part(value))))
    return parts


def points_of(x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float]) -> str:
    """Returns the points (xs, ys) for a shape in a box."""
    pairs = zip(xs, ys, strict=True)
    return " ".join(f"{BOX * x.part(a):.1f},{HEIGHT * (1 - y.part(b)):.1f}" for a, b in pairs)


def box(shapes: Sequence[str]) -> str:
    """Returns a box of BOX units with these shapes."""
    return (
        f'<svg y="{TOP}" width="100%" height="{HEIGHT}" viewBox="0 0 {BOX} {HEIGHT}" '
        f'preserveAspectRatio="none" overflow="visible">{"".join(shapes)}</svg>'
    )


def polyline(colour: str, points: str) -> str:
    """Returns a line through points of `points_of`."""
    return (
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" '
        f'vector-effect="non-scaling-stroke" points="{points}"/>'
    )


def readouts(
    x: Axis, y: Axis, edges: Sequence[float], xs: Sequence[float], series: Sequence[Series]
) -> list[str]:
    """Returns the values at xs, each shown while the pointer is between its two edges."""
    parts = []
    for number, value in enumerate(xs):
        part, begin, end = (x.part(at) for at in (value, *edges[number : number + 2]))
        rows = [("none", x.words(value))]
        rows += [
            (one.colour, f"{one.name} {y.words(one.values[number])}")
            for one in series
            if one.values[number]
        ]
        wide, left = LETTER * (3 + max(len(words) for _, words in rows)), part > 0.5
        text = "".join(
            f'<tspan x="8" dy="15"><tspan fill="{colour}">&#9632;</tspan> {html.escape(words)}'
            "</tspan>"
            for colour, words in rows
        )
        at = f"{100 * part:.2f}%"
        parts.append(
            f'<g class="at"><rect x="{100 * begin:.2f}%" y="{TOP}" height="{HEIGHT}" '
            f'width="{100 * (end - begin):.2f}%"/>'
            f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{TOP + HEIGHT}"/>'
            f'<svg x="{at}" y="{TOP}" overflow="visible"><g transform="translate({-wide * left})">'
            f'<rect class="said" width="{wide}" height="{15 * len(rows) + 8}"/>'
            f"<text>{text}</text></g></svg></g>"
        )
    return parts


def text_at(x: str, y: float, words: str, anchor: str, more: str = "") -> str:
    """Returns a label at a position. more: attributes."""
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def _across(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'


def _svg(label: str, parts: list[str], height: float = TOP + HEIGHT + UNDER) -> str:
    return (
        f'<svg class="plot" height="{height:.0f}" role="img" aria-label="{html.escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
