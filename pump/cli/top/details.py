"""Shows all metrics of one client: the second page of pump top. No I/O except for its age."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from pump.base.processes import age_s
from pump.cli.support import live
from pump.cli.support.listed import time_of
from pump.cli.top.overview import INDENT, Page, gpu_lines, title
from pump.cli.top.table import causes, hit, key_of, lost, state, waits
from pump.cli.top.text import line, sparkline
from pump.control import DeviceState
from pump.report.words import many, seconds, share, size

LABEL = 13
SPARK_LEAST, SPARK_MOST = 10, 60
SIDES = 50
"""Columns of a line without its sparkline."""


def page(shown: Page, row: live.Row, *, ended: bool) -> list[Text]:
    """Returns the lines of the page for a client. If the page is too high, each device gets one
    line. ended: the client has ended, and these are its last metrics."""
    lines = _page(shown, row, ended=ended, brief=False)
    short = 0 < shown.height < len(lines)
    return _page(shown, row, ended=ended, brief=True) if short else lines


def _page(shown: Page, row: live.Row, *, ended: bool, brief: bool) -> list[Text]:
    job, client = row.seen.job, row.client
    lines: list[Text] = [title(shown.poll), line()]
    if ended:
        lines += [line(("This process has ended. These are its last numbers.", "bad")), line()]
    lines += [
        _fact("job", (job.name, "bold"), f"  first process: {job.pid}"),
        _fact("command", job.command),
        _fact("process", _processes(row)),
        _fact("policy", client.policy, "  ", state(row)),
        _fact("limit", _limit(job.limit)),
    ]
    for device in client.devices:
        lines += [] if brief else [line()]
        lines += _device(device, shown, brief=brief)
    return [*lines, line(), *_rates(row, shown), *_counts(row)]


def _fact(label: str, *parts: str | Text | tuple[str, str]) -> Text:
    return line((label.ljust(LABEL), "dim"), *parts)


def _processes(row: live.Row) -> str:
    """Returns the process ids of the job's clients, the shown one first."""
    others = [str(one.pid) for one in row.seen.clients if one.pid != row.client.pid]
    more = f"; other processes of the job: {', '.join(others)}" if others else ""
    return f"{row.client.pid}{more}"


def _limit(asked: str) -> str:
    """Returns a description of the limit that a job requested at its start."""
    if not asked:
        return "all available host memory"
    if asked.isdecimal():
        return size(int(asked))
    return f"{asked} of the available host memory" if "%" in asked else f"{asked} its GPUs' memory"


def _device(device: DeviceState, shown: Page, *, brief: bool) -> list[Text]:
    gpu = live.gpu_of(device.uuid, shown.poll.identities.get(device.uuid), [device])
    cards = {card.uuid: card for card in shown.poll.cards}
    lines = gpu_lines(gpu, cards.get(device.uuid), shown.width, brief=brief)
    elsewhere = (
        f"{INDENT}host {size(device.host_bytes)}, arriving "
        f"{size(device.arriving_bytes)}, leaving {size(device.leaving_bytes)}, not pageable "
        f"{size(device.plain_bytes)}"
    )
    return lines if brief else [*lines, line(elsewhere)]


def _rates(row: live.Row, shown: Page) -> list[Text]:
    """Returns lines about transfers and waits, with their history."""
    history, marks = shown.context.history, shown.context.marks
    width = max(SPARK_LEAST, min(SPARK_MOST, shown.width - SIDES))

    def moving(
        label: str, now: str, metric: Callable[[live.Rates], float], style: str, more: str
    ) -> Text:
        drawn = sparkline(history.of(key_of(row), metric), width, marks)
        return _fact(label, f"{now:>12}  {more:<20}  ", (drawn, style))

    rates = row.rates
    shim = row.client.shim
    by_cause = ", ".join(f"{name} {count:,.0f}" for name, count in causes(rates).items())
    worker = row.client.worker
    missed = worker.get("blocks_used", 0) - worker.get("blocks_hit", 0)
    return [
        moving(
            "in",
            f"{size(rates.to_gpu_bytes_per_s)}/s",
            lambda one: one.to_gpu_bytes_per_s,
            "in",
            f"{size(shim.get('moved_to_gpu_bytes', 0))} in total",
        ),
        moving(
            "out",
            f"{size(rates.to_host_bytes_per_s)}/s",
            lambda one: one.to_host_bytes_per_s,
            "out",
            f"{size(shim.get('moved_to_host_bytes', 0))} in total",
        ),
        moving("~waits", f"{waits(rates):,.0f}/s", waits, "warn", f"{missed:,} in total"),
        _fact("  by cause", f"{by_cause} per second"),
        moving(
            "operations",
            f"{rates.operations_per_s:,.0f}/s",
            lambda one: one.operations_per_s,
            "",
            f"{worker.get('window_depth', 0):,} in the window",
        ),
    ]


def _counts(row: live.Row) -> list[Text]:
    """Returns lines about sums since the client began."""
    worker = row.client.worker
    used, found = worker.get("blocks_used", 0), worker.get("blocks_hit", 0)
    faults = sum(worker.get(f"miss_{cause}", 0) for cause in ("unseen", "no_room", "policy"))
    predicted = live.predicted_share(row.client)
    dropped = many(worker.get("predictions_lost", 0), "time")
    lines = [
        _fact("~hit rate", hit(row), f" now, {share(found, used)} in total"),
        _fact("~faults", f"{faults:,} blocks in total"),
    ]
    if predicted:
        lines.append(
            _fact("predicted", f"{share(predicted, 1.0)} of operations; gave up {dropped}")
        )
    if in_place := worker.get("in_place_bytes_peak", 0):
        lines.append(_fact("in place", f"read up to {size(in_place)} of allocations on the host"))
    lines.append(_fact("running for", time_of(age_s(row.client.pid))))
    if (found_lost := live.lost(row)) is not None:
        least, most, of = (
            seconds(worker.get(f"lost_{name}_ns", 0) / 1e9) for name in ("least", "most", "of")
        )
        room = seconds(max(0.0, worker["lost_of_ns"] / 1e9 - found_lost[0]))
        lines += [
            _fact("lost", lost(row), f" of its time waiting for memory ({least} to {most})"),
            _fact("if it fitted", f"{room} instead of {of}; to measure:"),
            _fact("", (f"pump compare -- {row.seen.job.command}", "bold")),
        ]
    return lines
