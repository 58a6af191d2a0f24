"""pump top: GPUs and jobs of this user, live. Plain ANSI; q or Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Iterator

from pump.cli import live
from pump.cli.lines import BadInputError
from pump.report.words import share, size

HELP = "watch GPUs and jobs live: residency, hit rate, transfers, stalls, window"

INTERVAL_S = 0.5
FIRST_S = 0.5
"""Between the two looks of --once."""
BAR = 30
CLEAR, HOME, REST = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[J"
BACK = "\x1b[?25h\x1b[?1049l"
LINE_END = "\x1b[K\r\n"
HEAD = (
    f"{'PID':>8} {'JOB':<16} {'POLICY':<8} {'STATE':<8} {'RESIDENT':>10} {'BUDGET':>10} "
    f"{'MEMORY':>10} {'HIT':>6} {'IN/S':>10} {'OUT/S':>10} {'MISS/S':>7} {'CAUSE':<8} "
    f"{'WINDOW':>6} {'OPS/S':>8}"
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="show it once and end")
    parser.add_argument("--json", action="store_true", help="as JSON, one object a look")
    parser.add_argument(
        "--interval",
        metavar="S",
        type=float,
        default=INTERVAL_S,
        help=f"seconds between two looks (default: {INTERVAL_S})",
    )


def run(asked: argparse.Namespace) -> int:
    if not 0.1 <= asked.interval <= 3600:
        raise BadInputError(f"--interval is {asked.interval:g}; write seconds from 0.1 to 3600")
    watch = live.Watch()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if asked.once:
                before = watch.look()
                time.sleep(min(FIRST_S, asked.interval))
                _print(asked.json, watch.look(), before)
            elif asked.json or not sys.stdout.isatty():
                _stream(watch, asked)
            else:
                _screen(watch, asked.interval)
    finally:
        watch.close()
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
            width, height = os.get_terminal_size(sys.stdout.fileno())
            shown = [line[:width] for line in lines(look, before)[: height - 1]]
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
    """The other screen, and keys one by one; yields where to read them, -1 for nowhere."""
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


def lines(look: live.Look, before: live.Look | None) -> list[str]:
    """A look as lines of text. Bytes are what pump believes; nothing of it is estimated."""
    shown = [f"pump top  {time.strftime('%H:%M:%S')}  {len(look.seen)} jobs"]
    for gpu in live.gpus(look):
        filled = round(BAR * min(1.0, gpu.resident_bytes / max(1, gpu.total_bytes)))
        shown.append(
            f"GPU {gpu.uuid[:8]} [{'#' * filled}{'.' * (BAR - filled)}] "
            f"{size(gpu.resident_bytes)} of {size(gpu.total_bytes)} resident, budgets "
            f"{size(gpu.budget_bytes)}, allocated {size(gpu.allocated_bytes)}; "
            f"{gpu.clients} client{'' if gpu.clients == 1 else 's'}"
        )
    shown += ["", HEAD]
    shown += [_client(row) for row in live.rows(look, before)]
    for seen in look.seen:
        silent = [f"client {c.pid}: {c.error}" for c in seen.clients if c.error is not None]
        reasons = [seen.error] if seen.error else silent
        shown += [f"{seen.job.pid:>8} {seen.job.name[:16]:<16} {reason}" for reason in reasons]
        if not seen.clients and not seen.error:
            shown.append(f"{seen.job.pid:>8} {seen.job.name[:16]:<16} has not used a GPU yet")
    return shown


def _client(row: live.Row) -> str:
    devices, rates = row.client.devices, row.rates
    causes = {
        "late": rates.late_per_s,
        "unseen": rates.unseen_per_s,
        "no room": rates.no_room_per_s,
        "policy": rates.policy_per_s,
    }
    misses = sum(causes.values())
    cause = max(causes, key=lambda name: causes[name]) if misses else "-"
    active = any(device.active for device in devices)
    hit = "-" if rates.hit_rate is None else share(rates.hit_rate, 1.0)
    return (
        f"{row.client.pid:>8} {row.seen.job.name[:16]:<16} {row.client.policy[:8]:<8} "
        f"{'active' if active else 'dormant':<8} "
        f"{size(sum(d.resident_bytes for d in devices)):>10} "
        f"{size(sum(d.budget_bytes for d in devices)):>10} "
        f"{size(sum(d.allocated_bytes for d in devices)):>10} {hit:>6} "
        f"{size(rates.to_gpu_bytes_per_s):>10} {size(rates.to_host_bytes_per_s):>10} "
        f"{misses:>7,.0f} {cause:<8} {row.client.worker.get('window_depth', 0):>6} "
        f"{rates.operations_per_s:>8,.0f}"
    )
