"""Renders a report as one HTML page that loads nothing: no fonts, no links, one script of its own.

Text of the recording (names of kernels, the command) is escaped, and the page's security policy
admits only the script, which copies commands.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

import pump
from pump.base.names import readable_kernel
from pump.report import hops, svg
from pump.report.advice import Advice, advise, time_lost, waited_for_turns
from pump.report.svg import Axis, Series
from pump.report.words import command, many, memory, percent, plain, ranked, seconds, size

PLACES: Final = {
    "sure_bytes": ("on the GPU", "#3b6fb6"),
    "maybe_evicted_bytes": ("possibly evicted", "#9cc3e6"),
    "arriving_bytes": ("moving to the GPU", "#2e9e6b"),
    "leaving_bytes": ("moving to the host", "#e0a030"),
    "host_bytes": ("on the host", "#9aa1ab"),
}
CAUSES: Final = {
    "no_room": ("budget full", "#c8413b"),
    "late": ("prefetched too late", "#e0a030"),
    "unseen": ("not seen in time", "#9467bd"),
}
TO_GPU, TO_HOST, WORK = "#2e9e6b", "#e0a030", "#3b6fb6"
LOST, MAYBE_LOST = "#c8413b", "#e59a96"
KERNELS: Final = 12

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1d2127;--dim:#5b636e;--page:#fff;--rule:#e3e6ea;
--box:#f4f7fb;--edge:#3b6fb6}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--dim:#a3abb6;--page:#16191d;
--rule:#333a43;--box:#1e252e;--edge:#7aa7e0}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0 auto;
max-width:880px;padding:28px 24px}
h1{font-size:24px;line-height:1.25;margin:0 0 6px;overflow-wrap:anywhere;text-wrap:balance}
h2{font-size:18px;margin:38px 0 4px}h3{font-size:15px;margin:18px 0 4px}
p{margin:4px 0;overflow-wrap:anywhere}.dim{color:var(--dim)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:10px 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
code{font:13px ui-monospace,monospace}
.cmd{display:flex;align-items:start;gap:8px;margin:8px 0 2px}
.cmd code{flex:1;min-width:0;background:var(--page);border:1px solid var(--rule);
border-radius:4px;padding:5px 8px;overflow-wrap:anywhere;user-select:all}
button{font:13px system-ui,sans-serif;padding:5px 10px;border:1px solid var(--rule);
border-radius:4px;background:var(--page);color:var(--ink);cursor:pointer}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{vertical-align:top;padding:4px 8px;border-bottom:1px solid var(--rule);text-align:right}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;min-width:9em;padding-left:0}
th{color:var(--dim);font-weight:600}
td+td{white-space:nowrap}
td i{display:block;height:4px;border-radius:2px;background:#c8413b;margin-top:2px}
.plot{display:block;width:100%;overflow:visible;margin:8px 0 0}
.gutter{padding-left:78px;box-sizing:border-box;display:block;width:100%}
.legend{margin:6px 0}.legend span{display:inline-block;margin-right:18px;font-size:13.5px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;
vertical-align:-1px}
.advice{border-left:4px solid var(--edge);background:var(--box);padding:10px 14px;margin:10px 0}
details{margin:34px 0 0;border-top:1px solid var(--rule);padding-top:12px}
details+details{margin-top:12px}
summary{font-size:18px;font-weight:600;cursor:pointer}
@media(max-width:600px){body{padding:16px 12px}h1{font-size:21px}
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:6px}
.gutter{padding-left:70px}}
"""
_SCRIPT: Final = """
for (const button of document.querySelectorAll("button")) {
  button.hidden = false;
  button.onclick = () => {
    getSelection().selectAllChildren(button.previousElementSibling);
    if (document.execCommand("copy")) button.textContent = "Copied";
  };
}
"""
_ADMITTED: Final = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()


def page(report: dict[str, Any]) -> str:
    """Returns the report of pump.report.gather as an HTML document."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; script-src 'sha256-{_ADMITTED}'\">",
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>pump report: {escape(command(report['command']))}</title>",
        f"<style>{svg.STYLE}{_STYLE}</style></head><body>",
        *_head(report),
        *_lost(report),
        "<h2>Why, and what to do</h2>",
        *map(_advice_card, advise(report)),
    ]
    devices, x = report["devices"], svg.time_axis(_until(report))
    for device in devices:
        parts += _misses(device, x, _gpu_suffix(report, device))
    for device in devices:
        parts += _places(device, x)
    if devices:
        parts += _traffic(report, devices[0]["series"], x)
    parts += [*_kernels(report), *_run(report), *_internals(report)]
    parts += [f'<p class="dim">Made by pump {escape(pump.__version__)}.</p>']
    return "\n".join([*parts, f"<script>{_SCRIPT}</script></body></html>"]) + "\n"


def _head(report: dict[str, Any]) -> list[str]:
    virtual = isinstance(report["job"], dict) and report["job"].get("virtual")
    facts = [f"Recorded {plain(report['recorded'])}", f"policy {plain(report['policy'])}"]
    facts += ["on a virtual GPU: all times come from a model"] if virtual else []
    title = re.sub(r"(?<=\d) ", "\N{NO-BREAK SPACE}", time_lost(report))  # no break before units
    return [
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{escape(command(report['command']))}</code></p>",
        f'<p class="dim">{escape(", ".join(facts))}</p>',
    ]


def _lost(report: dict[str, Any]) -> list[str]:
    """Returns the bars of the time lost; none if it is not known."""
    compared, lost = report.get("compared"), report.get("time_lost")
    if compared:
        whole, other = compared["seconds"], compared["other_seconds"]
        spans = _spans(min(whole, other), 0.0, max(0.0, whole - other))
        rows = [("this run", spans), (plain(compared["file"], 60), _spans(other, 0.0, 0.0))]
        whole = max(whole, other)
    elif lost:
        whole, least, most = (lost[f"{name}_seconds"] for name in ("of", "least", "most"))
        rows = [("this run, from its first launch", _spans(whole - most, most - least, least))]
    else:
        return []
    names = [("with enough memory", WORK), ("range of the estimate", MAYBE_LOST)]
    return [
        svg.bars("time lost to memory", rows, svg.time_axis(whole)),
        _legend([*names[: 1 if compared else 2], ("lost to memory", LOST)]),
    ]


def _spans(work: float, maybe: float, lost: float) -> list[tuple[float, str, str]]:
    return [
        (work, WORK, f"with enough memory: {seconds(work)}"),
        (maybe, MAYBE_LOST, f"possibly lost to memory: {seconds(maybe)}"),
        (lost, LOST, f"lost to memory: {seconds(lost)}"),
    ]


def _advice_card(item: Advice) -> str:
    return (
        f'<div class="advice"><p>{escape(item.found)}</p><p><b>{escape(item.advice)}</b></p>'
        f'<div class="cmd"><code>{escape(item.command)}</code>'
        "<button hidden>Copy</button></div></div>"
    )


def _legend(names: Iterable[tuple[str, str]]) -> str:
    spans = (f'<span><i style="background:{c}"></i>{escape(n)}</span>' for n, c in names)
    return f'<p class="legend">{"".join(spans)}</p>'


def _plot(drawn: str) -> str:
    return f'<div class="gutter">{drawn}</div>'


def _gpu_suffix(report: dict[str, Any], device: dict[str, Any]) -> str:
    """Returns the GPU for a heading if there are several, else ""."""
    return f", GPU {device['device']}" if len(report["devices"]) > 1 else ""


def _until(report: dict[str, Any]) -> float:
    """Returns the end of all time axes, in seconds."""
    ends: list[list[float]] = [device["series"]["seconds"][-1:] for device in report["devices"]]
    ends.append(report["operations_series"]["seconds"][-1:])
    return max([0.0, *(end for found in ends for end in found)])


def _misses(device: dict[str, Any], x: Axis, of_device: str) -> list[str]:
    series, used = device["series"], device["blocks_used"]
    missed = used - device["blocks_hit"]
    rate = used and f"Estimated hit rate: {percent(1 - missed / used, 1)} of {used:,} block uses. "
    causes = ", ".join(
        f"{name} {percent(device[f'blocks_{cause}'] / missed)}"
        for cause, (name, _) in CAUSES.items()
        if missed
    )
    parts = [
        f"<h2>Block misses by cause{of_device}</h2>",
        f'<p class="dim">{rate or ""}'
        f"{f'Causes of the misses: {causes}.' if missed else 'No operation missed a block.'}</p>",
    ]
    layers = [
        Series(name, colour, svg.rates(series["seconds"], series[f"blocks_{cause}"]))
        for cause, (name, colour) in CAUSES.items()
    ]
    if not missed or len(series["seconds"]) < 2:
        return parts
    most = svg.crest([value for layer in layers for value in layer.values])
    ticks = svg.count_steps(most)
    drawn = svg.lines("misses", series["seconds"], layers, words=_a_second, x=x, y_steps=ticks)
    return [*parts, _plot(drawn), _legend(CAUSES.values())]


def _a_second(value: float) -> str:
    return f"{value:,.0f}/s"


def _places(device: dict[str, Any], x: Axis) -> list[str]:
    series = device["series"]
    budget = size(device["budget_bytes"])
    parts = [
        f"<h2>Memory of GPU {device['device']}</h2>",
        f'<p class="dim">Peaks: {size(device["allocated_bytes_peak"])} allocated, '
        f"{size(device['resident_bytes_peak'])} on the GPU. From pump's model, every 50 ms.</p>",
    ]
    if len(series["seconds"]) < 2:
        return [*parts, "<p>The recording is too short for a plot.</p>"]
    layers = [Series(name, colour, series[key]) for key, (name, colour) in PLACES.items()]
    mark = f"budget {budget}".replace(".0 ", " "), device["budget_bytes"]
    drawn = svg.stacked("memory by place", series["seconds"], layers, words=size, x=x, mark=mark)
    return [*parts, _plot(drawn), _legend(PLACES.values())]


def _traffic(report: dict[str, Any], series: dict[str, list[float]], x: Axis) -> list[str]:
    xs = series["seconds"]
    both = [
        Series("to the GPU", TO_GPU, svg.rates(xs, series["moved_to_gpu_bytes"])),
        Series("to the host", TO_HOST, svg.rates(xs, series["moved_to_host_bytes"])),
    ]
    done = report["operations_series"]
    executed = svg.rates(done["seconds"], done["executed"])
    everywhere = ", all GPUs" if len(report["devices"]) > 1 else ""
    parts = []
    if len(xs) > 1:
        most = svg.crest([value for one in both for value in one.values])
        ticks = svg.byte_steps(max(1.0, most))
        drawn = svg.lines(
            "transfers", xs, both, words=lambda value: f"{size(value)}/s", x=x, y_steps=ticks
        )
        parts += [f"<h2>Transfers{everywhere}</h2>", _plot(drawn)]
        parts.append(_legend((one.name, one.colour) for one in both))
    if len(executed) > 1:
        work = [Series("operations", WORK, executed)]
        ticks = svg.count_steps(svg.crest(executed))
        drawn = svg.lines(
            "operations executed", done["seconds"], work, words=_a_second, x=x, y_steps=ticks
        )
        parts += [f"<h2>Operations executed{everywhere}</h2>", _plot(drawn)]
    return parts


def _kernels(report: dict[str, Any]) -> list[str]:
    kernels = report["kernel_list"]
    most = max([1.0, *(kernel["estimated_missed_blocks"] for kernel in kernels)])
    rows = [
        (
            f'<code title="{escape(plain(kernel["name"], 400))}">'
            f"{escape(readable_kernel(kernel['name']))}</code>",
            f"{kernel['estimated_missed_blocks']:,.0f}"
            + f'<i style="width:{100 * kernel["estimated_missed_blocks"] / most:.1f}%"></i>',
            seconds(kernel["estimated_seconds"]) if kernel["estimated_seconds"] else "-",
            f"{kernel['count']:,}",
        )
        for kernel in ranked(kernels)[:KERNELS]
    ]
    return [
        "<h2>Kernels with the most misses</h2>",
        '<p class="dim">Missed blocks and times are estimates.</p>',
        _table(("kernel", "missed blocks", "time", "launches"), rows),
    ]


def _run(report: dict[str, Any]) -> list[str]:
    turns, in_place = waited_for_turns(report), report["in_place_bytes_peak"]
    lost = ", ".join(f"{count:,} events ({reason})" for reason, count in report["lost"].items())
    rows = {
        "recording": f"{plain(report['file'], 200)} ({report['state']})",
        "recorded by": f"pump {plain(report['pump'])}",
        "duration": f"{seconds(report['active_seconds'])} from the first launch, "
        f"{seconds(report['seconds'])} in total",
        "operations": f"{report['kernels']:,} kernels, {report['copies']:,} copies, "
        f"{report['memsets']:,} memsets",
        "waits for the GPU": f"{seconds(report['waited_seconds'])} in "
        f"{many(report['synchronisations'], 'synchronization')}",
        **({"waits for turns": turns} if turns else {}),
        "prefetched": f"{size(report['moved_to_gpu_bytes'])} to the GPU, "
        f"{size(report['moved_to_host_bytes'])} to the host",
        **({"read in place": f"{size(in_place)} of allocations on the host"} if in_place else {}),
        **({"lost events": lost} if lost else {}),
    }
    for device in report["devices"]:
        rows[f"GPU {device['device']}"] = memory(device)
    job = report["job"] if isinstance(report["job"], dict) else {}
    if isinstance(job.get("virtual"), dict):
        words = ", ".join(f"{key} {value}" for key, value in job["virtual"].items())
        rows["virtual GPU"] = plain(words, 200)
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    return [f"<details><summary>This run</summary><dl>{items}</dl></details>"]


def _internals(report: dict[str, Any]) -> list[str]:
    found = report["hops"]
    parts = ["<details><summary>Inside pump: transfers, threads, memory</summary>"]
    if tables := hops.parts(found):
        parts += ["<h3>Where transfers waited</h3>", f"<p>{escape(hops.largest(found))}</p>"]
    for part in tables:
        hop_rows = [(row.hop, row.median, row.p99, row.sum) for row in part.rows]
        parts.append(_table((part.heading, "median", "99th percentile", "sum"), hop_rows))
    if times := hops.thread_times(found):
        thread_rows = [(name, ran, delay) for ran, delay, name in times]
        parts += ["<h3>Which threads waited for a CPU core</h3>"]
        parts.append(_table(("threads", "ran", "waited for a core"), thread_rows))
    cells = [
        (
            f"range {extent['slot']}.{extent['generation']} + {size(extent['offset_bytes'])}",
            size(extent["length_bytes"]),
            size(extent["range_bytes"]),
            f"{extent['uses']:,}",
        )
        for extent in report["top_extents"]
    ]
    heads = ("extent", "length", "of an allocation of", "uses")
    return [*parts, "<h3>Extents used most</h3>", _table(heads, cells), "</details>"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; its cells are already HTML."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{word}</th>" for word in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
