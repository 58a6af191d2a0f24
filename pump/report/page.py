"""A report as one HTML page without scripts, fonts or links.

Text of the recording (names of kernels, the command) is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

import pump
from pump.report import hops, svg
from pump.report.advice import advise, time_lost, waited_for_turns
from pump.report.svg import Series
from pump.report.words import command, plain, seconds, share, size

PLACES: Final = {
    "sure_bytes": ("on the GPU", "#3b6fb6"),
    "maybe_evicted_bytes": ("on the GPU, in doubt", "#9cc3e6"),
    "arriving_bytes": ("on their way in", "#2e9e6b"),
    "leaving_bytes": ("on their way out", "#e0a030"),
    "host_bytes": ("on the host", "#c9ccd1"),
}
CAUSES: Final = {
    "no_room": ("no room in the budget", "#c8413b"),
    "late": ("on its way, too late", "#e0a030"),
    "unseen": ("not seen in time", "#9467bd"),
}
TO_GPU, TO_HOST, WORK = "#2e9e6b", "#e0a030", "#3b6fb6"
KERNELS: Final = 12

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1d2127;--dim:#5b636e;--page:#fff;--rule:#e3e6ea;
--box:#f4f7fb;--edge:#3b6fb6}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--dim:#a3abb6;--page:#16191d;
--rule:#333a43;--box:#1e252e;--edge:#7aa7e0}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0 auto;
max-width:900px;padding:24px}
h1{font-size:24px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:18px;margin:34px 0 6px}
p{margin:4px 0;overflow-wrap:anywhere}.dim{color:var(--dim)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:10px 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
dl>dt:first-of-type,dl>dd:first-of-type{font-weight:600;color:var(--ink)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:4px 8px;border-bottom:1px solid var(--rule);text-align:right}
th:last-child,td:last-child{text-align:left;overflow-wrap:anywhere;min-width:9em}
th{color:var(--dim);font-weight:600}
svg{width:100%;min-width:620px;height:auto;display:block;margin:4px 0}
svg text{font:11.5px system-ui,sans-serif;fill:var(--dim);paint-order:stroke;
stroke:var(--page);stroke-width:3px;stroke-linejoin:round}
.grid{stroke:var(--rule)}.mark{stroke:var(--ink);stroke-dasharray:5 4}
.halo{stroke:var(--page);stroke-width:3}
.legend span{display:inline-block;margin-right:18px;font-size:13.5px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;
vertical-align:-1px}
.advice{border-left:4px solid var(--edge);background:var(--box);padding:8px 14px;margin:8px 0}
@media(max-width:600px){body{padding:12px}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:6px}}
"""


def page(report: dict[str, Any]) -> str:
    """The report of pump.report.gather as an HTML document."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>pump report: {_escape(command(report['command']))}</title>",
        f"<style>{_STYLE}</style></head><body>",
        *_head(report),
        "<h2>Why it may be slow</h2>",
        *(
            f'<div class="advice"><p>{_escape(item.found)}</p>'
            f"<p><b>{_escape(item.advice)}</b> "
            f"<span class=dim>(pump explain {item.key})</span></p></div>"
            for item in advise(report)
        ),
    ]
    for device in report["devices"]:
        parts += _device(report, device)
    parts += [*_hops(report["hops"]), *_kernels(report), *_extents(report)]
    parts += [_foot(), "</body></html>"]
    # A plot keeps a readable width and scrolls by itself on a narrow screen.
    whole = "\n".join(parts) + "\n"
    return whole.replace("<svg ", '<div class="wide"><svg ').replace("</svg>", "</svg></div>")


def _escape(text: str) -> str:
    return html.escape(text)


def _head(report: dict[str, Any]) -> list[str]:
    turns = waited_for_turns(report)
    rows = {
        "time lost to memory": time_lost(report),
        "recording": f"{plain(report['file'], 200)} ({report['state']})",
        "recorded": f"{plain(report['recorded'])} by pump {plain(report['pump'])}",
        "policy": plain(report["policy"]),
        "length": f"{seconds(report['seconds'])}, {report['operations']:,} operations: "
        f"{report['kernels']:,} kernels, {report['copies']:,} copies, "
        f"{report['memsets']:,} memsets",
        "waited for the GPU": f"{seconds(report['waited_seconds'])} in "
        f"{report['synchronisations']:,} synchronisations",
        **({"waited for turns": turns} if turns else {}),
        "brought in and out": f"{size(report['moved_to_gpu_bytes'])} to the GPU, "
        f"{size(report['moved_to_host_bytes'])} to the host (asked of the driver by pump)",
        "events lost": ", ".join(
            f"{count:,} events ({reason})" for reason, count in report["lost"].items()
        )
        or "nothing",
    }
    job = report["job"] if isinstance(report["job"], dict) else {}
    if isinstance(job.get("virtual"), dict):
        words = " ".join(f"{key}={value}" for key, value in job["virtual"].items())
        rows["virtual GPU"] = f"{plain(words, 200)}: times are a model's"
    items = "".join(f"<dt>{_escape(k)}</dt><dd>{_escape(v)}</dd>" for k, v in rows.items())
    return [f"<h1>{_escape(command(report['command']))}</h1>", f"<dl>{items}</dl>"]


def _legend(names: Sequence[tuple[str, str]]) -> str:
    spans = (f'<span><i style="background:{c}"></i>{_escape(n)}</span>' for n, c in names)
    return f'<p class="legend">{"".join(spans)}</p>'


def _device(report: dict[str, Any], device: dict[str, Any]) -> list[str]:
    series = device["series"]
    xs, until = series["seconds"], _until(report)
    by_choice = ", by choice" if device["emulated"] else ""
    parts = [
        f"<h2>GPU {device['device']}: where memory was</h2>",
        f'<p class="dim">{size(device["total_bytes"])}, budget {size(device["budget_bytes"])}'
        f"{by_choice}; allocated at most {size(device['allocated_bytes_peak'])}, resident at most "
        f"{size(device['resident_bytes_peak'])} (as pump believed, every 50 ms)</p>",
    ]
    if len(xs) < 2:
        return [*parts, "<p>Too short for a plot.</p>"]
    layers = [Series(name, colour, series[key]) for key, (name, colour) in PLACES.items()]
    parts.append(
        svg.stacked(
            "memory by place",
            xs,
            layers,
            words=size,
            until=until,
            mark=("budget", device["budget_bytes"]),
        )
    )
    parts.append(_legend(list(PLACES.values())))
    if device is report["devices"][0]:  # what moved is told of all of them together
        parts += _traffic(report, series, until)
    return [*parts, *_stalls(device, series, until, _of_device(report, device))]


def _of_device(report: dict[str, Any], device: dict[str, Any]) -> str:
    """The GPU of a heading, where there are several; else ""."""
    return f"GPU {device['device']}: " if len(report["devices"]) > 1 else ""


def _until(report: dict[str, Any]) -> float:
    """Where all time axes end, in seconds."""
    ends: list[list[float]] = [device["series"]["seconds"][-1:] for device in report["devices"]]
    ends.append(report["operations_series"]["seconds"][-1:])
    return max([0.0, *(end for found in ends for end in found)])


def _traffic(report: dict[str, Any], series: dict[str, list[float]], until: float) -> list[str]:
    xs = series["seconds"]
    coming = svg.rates(xs, series["moved_to_gpu_bytes"])
    going = svg.rates(xs, series["moved_to_host_bytes"])
    both = [Series("to the GPU", TO_GPU, coming), Series("to the host", TO_HOST, going)]
    done = report["operations_series"]
    executed = svg.rates(done["seconds"], done["executed"])
    parts = [
        "<h2>Transfers against compute"
        f"{', all GPUs together' if len(report['devices']) > 1 else ''}</h2>",
        svg.lines(
            "transfers",
            xs,
            both,
            words=lambda value: f"{size(value)}/s",
            until=until,
            y_steps=svg.byte_steps(max(1.0, svg.crest([*coming, *going]))),
        ),
        _legend([("to the GPU", TO_GPU), ("to the host", TO_HOST)]),
    ]
    if len(executed) > 1:
        work = [Series("operations executed", WORK, executed)]
        parts += [
            svg.lines(
                "operations executed",
                done["seconds"],
                work,
                words=lambda value: f"{value:,.0f}/s",
                until=until,
                y_steps=svg.count_steps(svg.crest(executed)),
            ),
            _legend([("operations executed, by the markers that pump saw", WORK)]),
        ]
    return parts


def _stalls(
    device: dict[str, Any], series: dict[str, list[float]], until: float, of_device: str
) -> list[str]:
    xs, used = series["seconds"], device["blocks_used"]
    missed = used - device["blocks_hit"]
    said = ", ".join(
        f"{name} {share(device[f'blocks_{cause}'], missed)}" for cause, (name, _) in CAUSES.items()
    )
    others = f"the others waited: {_escape(said)}" if missed else "nothing waited"
    parts = [
        f"<h2>{of_device}{'s' if of_device else 'S'}talls by cause</h2>",
        f'<p class="dim">Hit rate (estimated) {share(device["blocks_hit"], used)} of {used:,} '
        f"block uses; {others}.</p>",
    ]
    if not missed:
        return parts
    layers = [
        Series(name, colour, svg.rates(xs, series[f"blocks_{cause}"]))
        for cause, (name, colour) in CAUSES.items()
    ]
    most = svg.crest([value for layer in layers for value in layer.values])
    return [
        *parts,
        svg.lines(
            "misses",
            xs,
            layers,
            words=lambda value: f"{value:,.0f}/s",
            until=until,
            y_steps=svg.count_steps(most),
        ),
        _legend(
            [(f"{name} (blocks a second, estimated)", colour) for name, colour in CAUSES.values()]
        ),
    ]


def _hops(found: dict[str, Any]) -> list[str]:
    parts: list[str] = []
    if tables := hops.parts(found):
        parts += ["<h2>Where moved slices waited</h2>", f"<p>{_escape(hops.largest(found))}</p>"]
    for part in tables:
        parts += [
            f'<p class="dim">{_escape(part.heading)}</p>',
            _table(("median", "99th percentile", "sum", "hop"), part.rows),
        ]
    if delays := hops.delays(found):
        heads = ("ran", "runnable without a processor", "threads")
        parts += ["<h2>Which threads waited for a processor</h2>", _table(heads, delays)]
    return parts


def _kernels(report: dict[str, Any]) -> list[str]:
    ranked = sorted(report["kernel_list"], key=lambda kernel: -kernel["estimated_missed_blocks"])
    chosen = [kernel for kernel in ranked[:KERNELS] if kernel["estimated_missed_blocks"] >= 1]
    rows = [
        (
            plain(kernel["name"], 44),
            kernel["estimated_missed_blocks"],
            f"{kernel['estimated_missed_blocks']:,.0f} blocks",
        )
        for kernel in chosen
    ]
    parts = ["<h2>Stalls by kernel (estimate)</h2>"]
    parts.append(
        '<p class="dim">The misses of each moment, shared among the operations that executed '
        "then by the bytes that they reach.</p>"
    )
    parts.append(svg.bars("missed blocks by kernel", rows, "#c8413b") if rows else "<p>None.</p>")
    by_time = sorted(report["kernel_list"], key=lambda kernel: -(kernel["estimated_seconds"] or 0))
    cells = [
        (
            f"{kernel['count']:,}",
            seconds(kernel["estimated_seconds"])
            if kernel["estimated_seconds"] is not None
            else "-",
            f"{kernel['estimated_missed_blocks']:,.0f}",
            plain(kernel["name"], 120),
        )
        for kernel in by_time[:KERNELS]
    ]
    return [
        *parts,
        _table(("launches", "time (estimate)", "missed blocks (estimate)", "kernel"), cells),
    ]


def _extents(report: dict[str, Any]) -> list[str]:
    cells = [
        (
            f"{extent['uses']:,}",
            size(extent["length_bytes"]),
            size(extent["range_bytes"]),
            f"range {extent['slot']}.{extent['generation']}, from {size(extent['offset_bytes'])}",
        )
        for extent in report["top_extents"]
    ]
    parts = ["<h2>Extents reached most</h2>"]
    return [*parts, _table(("uses", "length", "of an allocation of", "where"), cells)]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{_escape(word)}</th>" for word in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _foot() -> str:
    return (
        f'<p class="dim">Made by pump {_escape(pump.__version__)}. Bytes by place are what pump '
        "believed; what is called an estimate is one.</p>"
    )
