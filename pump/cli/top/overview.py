"""Shows all GPUs and jobs: the first page of pump top, and the output of --once. No I/O except in
`host`, which queries this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil
from rich.text import Text

from pump.base.console import Columns
from pump.base.nvml import Card, gpu_uuid
from pump.cli.support import listed, live
from pump.cli.top.table import Context, Key, key_of, table, waits
from pump.cli.top.text import cut, line, sparkline
from pump.report.words import many, size

BAR_LEAST, BAR_MOST = 10, 40
INDENT = "       "
OTHERS = "Jobs of other users:"
LEGEND = "~ estimated by pump"
SWITCHED_OFF = "PUMP_SERVICE"
TIGHT, SCARCE = 0.2, 0.1
"""Available shares of the host's memory below which the text becomes yellow, and red."""
ROWS_LEAST = 3
MOVES = "in/s 1023.9 MiB   out/s 1023.9 MiB   ~waits/s 9,999 "
"""The longest line of all transfers, without its sparklines."""
SPARK_LEAST, SPARK_MOST = 4, 24


class Page(NamedTuple):
    """The data of a page. host: the line from `host`. height: 0 for unlimited."""

    poll: live.Poll
    host: Text
    rows: Sequence[live.Row]
    context: Context
    width: int
    height: int = 0
    sort: str = "PID"
    chosen: Key | None = None


def page(shown: Page) -> list[Text | Columns]:
    """Returns the parts of the page, within its height if possible."""
    parts = _page(shown, brief=False)
    high = sum(part.row_count + 1 if isinstance(part, Columns) else 1 for part in parts)
    return _page(shown, brief=True) if 0 < shown.height < high else parts


def _page(shown: Page, *, brief: bool) -> list[Text | Columns]:
    """Returns the parts of the page. brief: one line for each GPU, and only the rows that fit."""
    poll = shown.poll
    head = [title(poll), shown.host]
    head += _moves(shown) if shown.height and shown.rows else []
    head += [*_gpus(shown, brief=brief), line()]
    tail = [*_messages(poll), *_others(poll), *_notes(poll)]
    if not poll.seen:
        return [*head, *_how_to_start(poll), *tail]
    tail += [line(), line((LEGEND, "dim"))] if shown.rows else []
    rows = list(shown.rows)
    left: list[Text] = []
    if brief:
        room = max(ROWS_LEAST, shown.height - len(head) - 1 - len(tail))
        rows, left = _window(rows, room, _chosen_index(shown))
        tail = tail[: max(0, shown.height - len(head) - 1 - len(rows) - len(left))]
    found = table(rows, shown.context, sort=shown.sort if shown.height else "", chosen=shown.chosen)
    return [*head, found, *left, *tail]


def title(poll: live.Poll) -> Text:
    """Returns the first line."""
    mine = many(len(poll.seen), "job")
    return line(("pump top", "title"), f"  {time.strftime('%H:%M:%S')}  {mine}")


def host() -> Text:
    """Returns a line about the host's memory and CPU cores."""
    memory = psutil.virtual_memory()
    left = memory.available / max(1, memory.total)
    style = "bad" if left < SCARCE else "warn" if left < TIGHT else ""
    return line(
        "host".ljust(len(INDENT)),
        (f"{size(memory.available)} of {size(memory.total)} available", style),
        f", {psutil.cpu_count()} CPU cores {psutil.cpu_percent():.0f}% busy",
    )


def _moves(shown: Page) -> list[Text]:
    """Returns a line about the transfers and waits of all jobs together."""
    history, marks = shown.context.history, shown.context.marks

    def part(metric: str, style: str) -> tuple[str, str]:
        values = history.of_all(lambda rates: float(getattr(rates, f"{metric}_bytes_per_s")))
        return f"{size(values[-1] if values else 0):>10} {sparkline(values, room, marks)}", style

    room = max(SPARK_LEAST, min(SPARK_MOST, (shown.width - len(MOVES)) // 3))
    waited = history.of_all(waits)
    return [
        line(
            *("in/s ", part("to_gpu", "in"), "  out/s ", part("to_host", "out")),
            "  ~waits/s ",
            (f"{waited[-1] if waited else 0:>5,.0f} {sparkline(waited, room, marks)}", "warn"),
        )
    ]


# ---- GPUs ----


def _gpus(shown: Page, *, brief: bool) -> list[Text]:
    poll, width = shown.poll, shown.width
    cards = {card.uuid: card for card in poll.cards}
    used = live.gpus_in_use(poll)
    found = [gpu_lines(gpu, cards.get(gpu.uuid), width, brief=brief) for gpu in used]
    idle = [card for uuid, card in cards.items() if uuid not in {gpu.uuid for gpu in used}]
    lines = [one for lines in found for one in lines] + [_idle(card, poll) for card in idle]
    most = max(1, shown.height // 3)
    if brief and len(lines) > most:
        left = len(lines) - most + 1
        lines = [*lines[: most - 1], line((f"{INDENT}{left} more GPUs", "dim"))]
    return lines


def gpu_lines(gpu: live.Gpu, card: Card | None, width: int, *, brief: bool = False) -> list[Text]:
    """Returns lines about a GPU: its name, resident memory, NVML's metrics. brief: only resident
    memory."""
    words = f"{size(gpu.resident_bytes)} of {size(gpu.total_bytes)} resident"
    budgets = f"budgets {size(gpu.budget_bytes)}"
    over = "warn" if gpu.budget_bytes > gpu.total_bytes else ""
    more = f"allocated {size(gpu.allocated_bytes)}; {many(gpu.clients, 'client')}"
    needed = len(f"{INDENT}[] {words}, {budgets}")
    fits = needed + len(f", {more}") + BAR_LEAST <= width
    room = width - needed - (len(f", {more}") if fits else 0)
    bar = _bar(gpu.resident_bytes / max(1, gpu.total_bytes), min(BAR_MOST, room))
    start = f"GPU {gpu.number}".ljust(len(INDENT)) if brief else INDENT
    first: list[str | tuple[str, str]] = [start, *bar, f" {words}, ", (budgets, over)]
    if brief:
        return [line(*first)]
    lines = [_name(gpu, width), line(*first, f", {more}" if fits else "")]
    lines += [] if fits else [line(f"{INDENT}{more}")]
    return [*lines, line(f"{INDENT}{_by_nvml(card)}")] if card else lines


def _name(gpu: live.Gpu, width: int) -> Text:
    index, uuid = f"GPU {gpu.number}".ljust(len(INDENT)), gpu_uuid(gpu.uuid)
    model = cut(gpu.model, width - len(INDENT) - len(uuid) - 2)
    return line((index, "bold"), (model, "bold"), "  " if model else "", (uuid, "dim"))


def _bar(part: float, width: int) -> list[tuple[str, str]]:
    room = max(BAR_LEAST, width)
    filled = round(room * min(1.0, part))
    return [("[", "dim"), ("#" * filled, "bar"), ("." * (room - filled), "dim"), ("]", "dim")]


def _by_nvml(card: Card) -> str:
    """Formats NVML's metrics of a GPU, over all its processes."""

    def rate(bytes_per_s: int | None) -> str:
        return "?" if bytes_per_s is None else f"{size(bytes_per_s)}/s"

    count = "?" if card.processes is None else card.processes
    link = f"link {rate(card.to_gpu_bytes_per_s)} in, {rate(card.to_host_bytes_per_s)} out"
    return f"NVML: {_busy(card)} busy, {link}, {size(card.used_bytes)} used by {count} processes"


def _busy(card: Card) -> str:
    return "?" if card.busy is None else f"{card.busy:.0%}"


def _idle(card: Card, poll: live.Poll) -> Text:
    """Formats a GPU that is not used by any job of this user."""
    known = poll.identities.get(card.uuid)
    index = "GPU ?" if known is None or known.number is None else f"GPU {known.number}"
    used = f"{size(card.used_bytes)} of {size(card.total_bytes)} used, {_busy(card)} busy"
    model = known.model if known and known.model else gpu_uuid(card.uuid)
    text = f"{model}: {used} (NVML); not used by your jobs"
    return line((index.ljust(len(INDENT)), "bold"), text)


# ---- lines outside the table ----


def _messages(poll: live.Poll) -> list[Text]:
    """Returns lines about jobs and clients without metrics, with the reasons."""
    lines: list[Text] = []
    for seen in poll.seen:
        start = f"{seen.job.pid:>8} {cut(seen.job.name, 16, pad=True)} "
        silent = [f"client {c.pid}: {c.error}" for c in seen.clients if c.error is not None]
        lines += [line(start, (why, "bad")) for why in ([seen.error] if seen.error else silent)]
        if not seen.clients and not seen.error:
            lines.append(line(start, ("has not used a GPU yet", "dim")))
    return lines


def _others(poll: live.Poll) -> list[Text | Columns]:
    found = live.others(poll)
    return [line(), line(OTHERS), listed.table([], found)] if found else []


def _notes(poll: live.Poll) -> list[Text]:
    """Returns lines about a service that is untrusted or not running."""
    if poll.warning:
        return [line(), line((poll.warning, "bad"))]
    if not poll.no_service:
        return []
    if SWITCHED_OFF in poll.no_service:
        words = "Only your own jobs are shown: PUMP_SERVICE=none."
    else:
        words = "Only your own jobs are shown: no system service is running."
    return [line(), line((words, "dim"))]


def _how_to_start(poll: live.Poll) -> list[Text]:
    lines = [line("You have no jobs running under pump.")]
    if poll.no_card:
        lines.append(line(f"NVML finds no GPU: {poll.no_card}"))
    virtual = " --virtual a100-pcie4" if poll.no_card else ""
    return [
        *lines,
        line("  Start one:               ", (f"pump-run{virtual} python train.py", "bold")),
        line("  Check this machine:      ", ("pump doctor", "bold")),
    ]


# ---- the part of the table that is shown ----


def _chosen_index(shown: Page) -> int:
    keys = [key_of(row) for row in shown.rows]
    return keys.index(shown.chosen) if shown.chosen in keys else 0


def _window(rows: list[live.Row], room: int, place: int) -> tuple[list[live.Row], list[Text]]:
    """Returns the rows that fit, including the chosen one, and a line about their position."""
    if len(rows) <= room:
        return rows, []
    kept = max(1, room - 1)
    first = min(max(0, place - kept // 2), len(rows) - kept)
    left = line((f"  rows {first + 1} to {first + kept} of {len(rows)}", "dim"))
    return rows[first : first + kept], [left]
