"""pump top: shows this user's GPUs and jobs, and others that the user may see, live.

A thread polls (live.Watch), because a hung job may take seconds to answer. The terminal's loop
draws the result of the last poll, and responds to keys at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time

from rich.text import Text

from pump.base import schemas
from pump.base.console import Columns, console
from pump.cli.support import live
from pump.cli.top.overview import Page, host, page
from pump.cli.top.screen import EndedError, Screen
from pump.cli.top.table import Context, History
from pump.cli.top.text import ASCII_SPARKS, SPARKS
from pump.cli.top.view import View

HELP = "watch GPUs and jobs live"
EXAMPLES = ("pump top", "pump top --once")

INTERVAL_S = 0.5
FIRST_S = 0.5
"""Interval between the two polls of --once."""
FULL = 160
"""Columns of a line if there is no screen."""
ENDS_WITHIN_S = 0.2
KEYS_S = 0.1
"""Longest wait for a key before the loop checks for something new to draw."""
DUMB = "dumb"
"""TERM of a terminal without ANSI sequences."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--once", action="store_true", help="print once and exit")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per interval")
    live.add_interval(parser, 0.1, INTERVAL_S, "updates")
    parser.epilog = (
        "On a terminal: up and down choose a job, enter shows its details, s and r sort, ? lists "
        "all keys, q quits. NO_COLOR in the environment turns colours off."
    )


def run(asked: argparse.Namespace) -> int:
    """Shows jobs and GPUs, once or until q or Ctrl-C."""
    with (
        contextlib.closing(live.Watch(cards=True)) as watch,
        contextlib.suppress(KeyboardInterrupt),
    ):
        if asked.once:
            before = watch.poll()
            time.sleep(min(FIRST_S, asked.interval))
            _print(asked.json, watch.poll(), before)
        elif asked.json or not sys.stdout.isatty() or os.environ.get("TERM", DUMB) == DUMB:
            _stream(watch, asked)
        else:
            return _screen(watch, asked.interval)
    return 0


def _stream(watch: live.Watch, asked: argparse.Namespace) -> None:
    before = None
    while True:
        poll = watch.poll()
        _print(asked.json, poll, before)
        before = poll
        time.sleep(asked.interval)


def _print(as_json: bool, poll: live.Poll, before: live.Poll | None) -> None:
    if as_json:
        print(schemas.dump("top", live.as_json(poll, before), indent=None), flush=True)
    else:
        out = console()
        for part in parts(poll, before, min(FULL, out.width)):
            out.print(part)


def parts(poll: live.Poll, before: live.Poll | None, width: int) -> list[Text | Columns]:
    """Returns the page of a poll, for `width` columns. Bytes come from the workers' models."""
    priorities = {job.socket: job.priority for job in poll.registered}
    context = Context(poll.identities, History(), priorities)
    return page(Page(poll, host(), live.rows(poll, before), context, width))


# ---- on a terminal ----


class _Poller(threading.Thread):
    """Polls repeatedly. latest: the last result. failed: the exception that ended the thread."""

    def __init__(self, watch: live.Watch, interval_s: float) -> None:
        super().__init__(name="poll", daemon=True)
        self.latest: live.Poll | None = None
        self.failed: Exception | None = None
        self._watch, self._interval_s = watch, interval_s
        self._closed = threading.Event()

    def run(self) -> None:
        """Polls until close()."""
        try:
            while not self._closed.is_set():
                begun_s = time.monotonic()
                self.latest = self._watch.poll()
                self._closed.wait(max(0.0, self._interval_s - (time.monotonic() - begun_s)))
        except Exception as error:  # the terminal's loop raises it
            self.failed = error

    def close(self) -> bool:
        """Stops polling; returns whether the thread has ended."""
        self._closed.set()
        self.join(ENDS_WITHIN_S)
        return not self.is_alive()


def _screen(watch: live.Watch, interval_s: float) -> int:
    status, poller = 0, _Poller(watch, interval_s)
    poller.start()
    try:
        with Screen() as screen:
            _loop(screen, poller, View(SPARKS if _writes(SPARKS) else ASCII_SPARKS))
    except EndedError as ended:
        status = 0 if ended.number == signal.SIGINT else 128 + ended.number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drop unwritten output
    if not poller.close():  # a hung job blocks the poll, and would block Python's exit
        os._exit(status)
    return status


def _loop(screen: Screen, poller: _Poller, view: View) -> None:
    """Draws changes and handles keys until q. Raises EndedError, OSError."""
    shown: tuple[object, ...] = ()
    pressed = 0
    while poller.failed is None:
        latest = poller.latest
        if latest is not None:
            view.take(latest)
        if shown != (now := (id(latest), screen.size(), pressed)):
            screen.draw(view.page(*screen.size()))
            shown = now
        for key in screen.keys(KEYS_S):
            pressed += 1
            if not view.press(key):
                return
    raise poller.failed


def _writes(text: str) -> bool:
    """Returns whether the terminal's encoding has these characters."""
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True
