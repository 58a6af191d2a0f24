"""Draws curves as a picture in its own file, with the parts of the report's plots."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pump.report import svg

WIDTH, GUTTER, MARGIN, TITLE = 860, 78, 22, 30
"""Pixels of a picture in its own file: its width, and the margins around the plot."""
IN_THE_DARK: Final = (
    "@media(prefers-color-scheme:dark){:root{filter:invert(.87) hue-rotate(180deg)}}"
)
"""In dark mode, a picture in a file inverts its brightness and keeps its hues."""
BOLD: Final = ' style="font-weight:600;fill:#222"'


def curves(
    label: str,
    xs: Sequence[float],
    series: Sequence[svg.Series],
    *,
    x: svg.Axis,
    y: svg.Axis,
    x_unit: str,
    mark: tuple[str, float] | None = None,
) -> str:
    """Draws a picture for a file: lines through the values at `xs`, with their names. mark: the
    name of a dashed line, and its x."""
    shapes = [svg.polyline(one.colour, svg.points_of(x, y, xs, one.values)) for one in series]
    parts = [*svg.grid(x, y), svg.box(shapes)]
    if mark:
        at, end = svg.x_of(x, mark[1]), svg.TOP + svg.HEIGHT
        parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{svg.TOP}" y2="{end}"/>')
        parts.append(svg.text_at(at, svg.TOP + 12, mark[0], "start", ' dx="5"'))
    for number, one in enumerate(series):
        place = svg.TOP + 12 + 16 * number
        parts.append(svg.text_at("99%", place, one.name, "end", f' style="fill:{one.colour}"'))
    order = sorted(range(len(xs)), key=lambda number: xs[number])
    ordered = [xs[number] for number in order]
    sorted_series = [one._replace(values=[one.values[n] for n in order]) for one in series]
    edges = [x.low, *((a + b) / 2 for a, b in pairwise(ordered)), x.high]
    parts += svg.readouts(x, y, edges, ordered, sorted_series)
    inner, height = svg.TOP + svg.HEIGHT + svg.UNDER, TITLE + svg.TOP + svg.HEIGHT + svg.UNDER + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{html.escape(label)}" '
        f'viewBox="0 0 {WIDTH} {height}"><style>{svg.STYLE}{IN_THE_DARK}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        f"{svg.text_at(str(GUTTER), 22, label, 'start', BOLD)}"
        f"{svg.text_at(str(WIDTH - MARGIN), height - 8, x_unit, 'end')}"
        f'<svg x="{GUTTER}" y="{TITLE}" width="{WIDTH - GUTTER - MARGIN}" height="{inner}" '
        f'overflow="visible">{"".join(parts)}</svg></svg>\n'
    )
