"""README's chart: the iteration time of one named model that does not fit into GPU memory.

Run it after scripts/setup examples,simulate:

    .venv/bin/python lab/bench/workloads/one_model.py

The model is BERT-base, trained with a batch of 128. Its kernel times are derived from timings on an
A100 (lab/bench/data/g10/README.md); memory, link and host are simulated. Ranges come from
band.py. Writes docs/pictures/one-model.json and one-model.svg.
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "lab" / "bench")]

from workloads import band, intensity  # noqa: E402

MODEL = "bert_base_b128"
RATIO = 1.5
"""Memory that the model needs / GPU memory."""
BARS = {"Unified Memory alone": "naive", "pump": "planned"}
DATA = intensity.FOLDER / "one-model.json"
PICTURE = intensity.FOLDER / "one-model.svg"
COLOURS = {"Unified Memory alone": "#d62728", "pump": "#2ca02c", "enough GPU memory": "#888888"}
WIDTH, ROW, TOP, LEFT, SPAN = 760, 34, 48, 180, 400
TITLE = f"Time of a training iteration (simulated): BERT-base, {RATIO}x the GPU's memory"
UNDER = (
    "1x: with enough GPU memory. Ranges: hosts and links as others measured them. "
    "Batch 128, NVIDIA A100, PCIe 4."
)
SMALL = 'font-size="12" fill="#555"'


def simulated() -> dict[str, Any]:
    """Simulates the model. Times are divided by the time with enough memory."""
    from pump_lab.profiles import Profile
    from pump_lab.sim.report import Case
    from pump_lab.sim.simulation import Machine

    profile = band.machines()["server"]
    (program,) = (one for one in intensity.programs(profile) if one.name == MODEL)

    def point(profile: Profile) -> dict[str, float]:
        machine = Machine(profile, int(program.peak_bytes / RATIO))
        return intensity.point(Case(program, machine), 1.0)

    return {
        "model": MODEL,
        "profile": band.CARD,
        "simulated": True,
        "footprint_bytes": program.peak_bytes,
        "oversubscription": RATIO,
        "times": band.over(point),
    }


def picture(found: dict[str, Any]) -> str:
    """Draws the bars as SVG, each with its range over the band."""
    from pump.report import svg
    from pump_lab.sim.picture import IN_THE_DARK

    ranges, rows = {}, [("PyTorch without pump", 0.0, "out of memory")]
    for name, policy in BARS.items():
        figure = found["times"][policy]
        value, low, high = (figure[key] for key in ("value", "least", "most"))
        ranges[name] = low, high
        rows.append((name, value, f"{value:.2f}x ({low:.2f}x to {high:.2f}x)"))
    rows.append(("enough GPU memory", 1.0, "1x"))
    x = svg.axis(0.0, max(high for _, high in ranges.values()), "{:g}x".format)
    unit = SPAN / x.ticks[-1]
    bottom, height = TOP + len(rows) * ROW, TOP + len(rows) * ROW + 52
    parts = [f'<text x="10" y="24" font-weight="600">{TITLE}</text>']
    for tick in x.ticks:
        at = LEFT + tick * unit
        parts.append(f'<path d="M{at:g} {TOP - 4}V{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:g}" y="{bottom + 18}" {SMALL} text-anchor="middle">'
                     f"{x.words(tick)}</text>")  # fmt: skip
    for number, (name, value, said) in enumerate(rows):
        y, end = TOP + number * ROW, LEFT + value * unit
        parts.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{name}</text>')
        if value:
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{value * unit:.1f}" height="24" '
                         f'fill="{COLOURS[name]}"/>')  # fmt: skip
        if name in ranges:
            low, high = (LEFT + one * unit for one in ranges[name])
            ends = f"M{low:.1f} {y + 7}v10M{low:.1f} {y + 12}H{high:.1f}M{high:.1f} {y + 7}v10"
            parts.append(f'<path d="{ends}" stroke="#222" fill="none"/>')
            end = max(end, high)
        parts.append(f'<text x="{end + 8:.1f}" y="{y + 17}">{html.escape(said)}</text>')
    parts.append(f'<text x="10" y="{height - 8}" {SMALL}>{UNDER}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui,sans-serif" font-size="14"><style>{IN_THE_DARK}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def main() -> int:
    """Writes data and picture."""
    found = simulated()
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
