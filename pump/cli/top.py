"""pump top: GPUs and jobs of this user, and others that it may see, live. Plain ANSI; q or
Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import psutil

from pump.cli.support import live, registered
from pump.nvml import Card
from pump.report.words import many, share, size

HELP = "watch GPUs and jobs live: residency, hit rate, transfers, stalls, window"

INTERVAL_S = 0.5
FIRST_S = 0.5
"""Between the two looks of --once."""
BAR = 30
CLEAR, HOME, REST = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[J"
BACK = "\x1b[?25h\x1b[?1049l"
LINE_END = "\x1b[K\r\n"


class Column(NamedTuple):
    """A column of the table. width: in characters, without the blank before it. rank: a narrow
    screen leaves out the columns of the highest ranks. left: aligned to the left."""

    head: str
    width: int
    rank: int
    left: bool = False


COLUMNS = (
    Column("PID", 8, 0),
    Column("JOB", 16, 0, left=True),
    Column("POLICY", 8, 3, left=True),
    Column("STATE", 8, 1, left=True),
    Column("RESIDENT", 10, 0),
    Column("BUDGET", 10, 1),
    Column("MEMORY", 10, 2),
    Column("~HIT", 6, 0),
    Column("IN/S", 10, 2),
    Column("OUT/S", 10, 2),
    Column("~MISS/S", 8, 3),
    Column("CAUSE", 8, 0, left=True),
    Column("WINDOW", 6, 4),
    Column("OPS/S", 8, 4),
)
ALL = sum(column.width + 1 for column in COLUMNS) - 1
OTHERS = "Others, as the service knows them:"
LEGEND = "~ estimated from where pump believes blocks to be"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--once", action="store_true", help="show it once and end")
    parser.add_argument("--json", action="store_true", help="as JSON, one object a look")
    live.add_interval(parser, 0.1, INTERVAL_S, "two looks")


def run(asked: argparse.Namespace) -> int:
    """Show jobs and GPUs, once or until q or Ctrl-C."""
    with (
        contextlib.closing(live.Watch(cards=True)) as watch,
        contextlib.suppress(KeyboardInterrupt),
    ):
        if asked.once:
            before = watch.look()
            time.sleep(min(FIRST_S, asked.interval))
            _print(asked.json, watch.look(), before)
        elif asked.json or not sys.stdout.isatty():
            _stream(watch, asked)
        else:
            _screen(watch, asked.interval)
    return 0


def _stream(watch: live.Watch, asked: argparse.Namespace) -> None:
    before = None
    while True:
        look = watch.look()
        _print(asked.json, look, before)
        before = look
        time.sleep(asked.interval)


def _print(as_json: bool, look: live.Look, before: live.Look | None) -> None:
    if as_json:
        print(json.dumps(live.as_json(look, before)), flush=True)
    else:
        print("\n".join(lines(look, before)), flush=True)


def _screen(watch: live.Watch, interval_s: float) -> None:
    before = None
    with _terminal() as keys:
        while True:
            begun = time.monotonic()
            look = watch.look()
            width, height = shutil.get_terminal_size()  # 80 x 24 where it tells none
            shown = [line[:width] for line in lines(look, before, width)[: height - 1]]
            sys.stdout.write(HOME + LINE_END.join(shown) + "\x1b[K" + REST)
            sys.stdout.flush()
            before = look
            left = max(0.0, interval_s - (time.monotonic() - begun))
            if _pressed(keys, left) == "q":
                return


def _pressed(keys: int, timeout_s: float) -> str:
    if keys < 0:
        time.sleep(timeout_s)
        return ""
    ready, _, _ = select.select([keys], [], [], timeout_s)
    return os.read(keys, 1).decode("ascii", "replace") if ready else ""


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    """Switches to the alternate screen and reads keys unbuffered; yields the descriptor to read
    them from, -1 for none."""
    import termios
    import tty

    keys, before = -1, None
    if sys.stdin is not None and sys.stdin.isatty():
        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
        tty.setcbreak(keys)
    sys.stdout.write(CLEAR)
    try:
        yield keys
    finally:
        sys.stdout.write(BACK)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


# ---- what is shown ----


def columns(width: int) -> list[Column]:
    """The columns that fit on a screen of `width` characters, in their order."""
    chosen = list(COLUMNS)
    while sum(column.width + 1 for column in chosen) - 1 > width:
        last = max(column.rank for column in chosen)
        chosen = [column for column in chosen if column.rank < last]
        if not last:
            return [column for column in COLUMNS if not column.rank]
    return chosen


def lines(look: live.Look, before: live.Look | None, width: int = ALL) -> list[str]:
    """A look as lines of text, its table for a screen of `width` characters. Bytes are those of
    the workers' models."""
    shown = [f"pump top  {time.strftime('%H:%M:%S')}  {many(len(look.seen), 'job')}"]
    shown.append(_host())
    cards = {card.uuid: card for card in look.cards}
    for gpu in live.gpus(look):
        shown += _gpu(gpu, width)
        shown += [f"{'':13}{_card(cards[gpu.uuid])}"] if gpu.uuid in cards else []
    chosen = columns(width)
    shown += ["", _row(chosen, {column.head: column.head for column in chosen})]
    rows = live.rows(look, before)
    shown += [_row(chosen, _cells(row)) for row in rows]
    for seen in look.seen:
        silent = [f"client {c.pid}: {c.error}" for c in seen.clients if c.error is not None]
        reasons = [seen.error] if seen.error else silent
        shown += [f"{seen.job.pid:>8} {seen.job.name[:16]:<16} {reason}" for reason in reasons]
        if not seen.clients and not seen.error:
            shown.append(f"{seen.job.pid:>8} {seen.job.name[:16]:<16} has not used a GPU yet")
    others = [line[:width] for line in registered.lines(live.others(look))]
    shown += ["", OTHERS, *others] if others else []
    shown += ["", look.untrusted] if look.untrusted else []
    return [*shown, *(["", LEGEND] if rows else [])]


def _gpu(gpu: live.Gpu, width: int) -> list[str]:
    """One line, or two on a narrow screen."""
    filled = round(BAR * min(1.0, gpu.resident_bytes / max(1, gpu.total_bytes)))
    first = (
        f"GPU {gpu.uuid[:8]} [{'#' * filled}{'.' * (BAR - filled)}] "
        f"{size(gpu.resident_bytes)} of {size(gpu.total_bytes)} resident"
    )
    second = (
        f"budgets {size(gpu.budget_bytes)}, allocated {size(gpu.allocated_bytes)}; "
        f"{many(gpu.clients, 'client')}"
    )
    if len(first) + 2 + len(second) <= width:
        return [f"{first}, {second}"]
    return [first, f"{'':13}{second}"]


def _host() -> str:
    memory = psutil.virtual_memory()
    return (
        f"host {size(memory.available)} of {size(memory.total)} available, "
        f"{psutil.cpu_count()} processors {psutil.cpu_percent():.0f}% busy"
    )


def _card(card: Card) -> str:
    """NVML's figures of a GPU, of all its processes together."""

    def rate(bytes_per_s: int | None) -> str:
        return "?" if bytes_per_s is None else f"{size(bytes_per_s)}/s"

    count = "?" if card.processes is None else card.processes
    busy = "?" if card.busy is None else f"{card.busy:.0%}"
    link = f"link {rate(card.to_gpu_bytes_per_s)} in, {rate(card.to_host_bytes_per_s)} out"
    return f"by NVML {busy} busy, {link}, {size(card.used_bytes)} used by {count} processes"


def _row(chosen: list[Column], cells: Mapping[str, str]) -> str:
    words = [
        f"{cells[column.head]:{'<' if column.left else '>'}{column.width}}" for column in chosen
    ]
    return " ".join(words).rstrip()


def _cells(row: live.Row) -> dict[str, str]:
    """The cells of a client's row by the heads of their columns."""
    devices, rates = row.client.devices, row.rates
    causes = {
        "late": rates.late_per_s,
        "unseen": rates.unseen_per_s,
        "no room": rates.no_room_per_s,
        "policy": rates.policy_per_s,
    }
    misses = sum(causes.values())
    active = any(device.active for device in devices)
    return {
        "PID": str(row.client.pid),
        "JOB": row.seen.job.name[:16],
        "POLICY": row.client.policy[:8],
        "STATE": "active" if active else "dormant",
        "RESIDENT": size(sum(d.resident_bytes for d in devices)),
        "BUDGET": size(sum(d.budget_bytes for d in devices)),
        "MEMORY": size(sum(d.allocated_bytes for d in devices)),
        "~HIT": "-" if rates.hit_rate is None else share(rates.hit_rate, 1.0),
        "IN/S": size(rates.to_gpu_bytes_per_s),
        "OUT/S": size(rates.to_host_bytes_per_s),
        "~MISS/S": f"{misses:,.0f}",
        "CAUSE": max(causes, key=lambda name: causes[name]) if misses else "-",
        "WINDOW": str(row.client.worker.get("window_depth", 0)),
        "OPS/S": f"{rates.operations_per_s:,.0f}",
    }
