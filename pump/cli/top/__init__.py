"""pump top: GPUs and jobs of this user, and others that it may see, live.

A thread looks (live.Watch), since a job that hangs may take seconds to answer; the terminal's
loop draws what was seen last, and answers keys at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time

from pump import schemas
from pump.cli.support import live
from pump.cli.top.overview import Page, host, page
from pump.cli.top.screen import NEWS, RESIZED, EndedError, Screen
from pump.cli.top.table import Context, History
from pump.cli.top.text import ASCII_SPARKS, SPARKS, plain
from pump.cli.top.view import View

HELP = "watch GPUs and jobs live"
EXAMPLES = ("pump top", "pump top --once")

INTERVAL_S = 0.5
FIRST_S = 0.5
"""Between the two looks of --once."""
FULL = 160
"""Columns of a line where there is no screen."""
ENDS_WITHIN_S = 0.2
DUMB = "dumb"
"""A terminal without ANSI sequences (TERM)."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--once", action="store_true", help="print once and exit")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per interval")
    live.add_interval(parser, 0.1, INTERVAL_S, "updates")
    parser.epilog = (
        "On a terminal: up and down choose a job, enter shows all of it, s and r sort, q ends. "
        "NO_COLOR in the environment leaves colours out."
    )


def run(asked: argparse.Namespace) -> int:
    """Show jobs and GPUs, once or until q or Ctrl-C."""
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # names need not be of the terminal's characters
    with (
        contextlib.closing(live.Watch(cards=True)) as watch,
        contextlib.suppress(KeyboardInterrupt),
    ):
        if asked.once:
            before = watch.look()
            time.sleep(min(FIRST_S, asked.interval))
            _print(asked.json, watch.look(), before)
        elif asked.json or not sys.stdout.isatty() or os.environ.get("TERM", DUMB) == DUMB:
            _stream(watch, asked)
        else:
            return _screen(watch, asked.interval)
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
        print(schemas.dump("top", live.as_json(look, before), indent=None), flush=True)
    else:
        print("\n".join(lines(look, before)), flush=True)


def lines(look: live.Look, before: live.Look | None, width: int = FULL) -> list[str]:
    """A look as lines of text, its table for `width` characters. Bytes are those of the workers'
    models."""
    context = Context(look.identities, History())
    shown = Page(look, host(), live.rows(look, before), context, width)
    return [plain(one) for one in page(shown)]


# ---- on a terminal ----


class _Looker(threading.Thread):
    """Looks again and again. latest: the newest look. failed: what ended the thread."""

    def __init__(self, watch: live.Watch, interval_s: float, screen: Screen) -> None:
        super().__init__(name="look", daemon=True)
        self.latest: live.Look | None = None
        self.failed: Exception | None = None
        self._watch, self._interval_s, self._screen = watch, interval_s, screen
        self._closed = threading.Event()

    def run(self) -> None:
        """Look until close()."""
        try:
            while not self._closed.is_set():
                begun_s = time.monotonic()
                self.latest = self._watch.look()
                self._screen.news()
                self._closed.wait(max(0.0, self._interval_s - (time.monotonic() - begun_s)))
        except Exception as error:  # the terminal's loop raises it
            self.failed = error
            self._screen.news()

    def close(self) -> bool:
        """Look no more; returns whether the thread has ended."""
        self._closed.set()
        self.join(ENDS_WITHIN_S)
        return not self.is_alive()


def _screen(watch: live.Watch, interval_s: float) -> int:
    status, looker = 0, None
    try:
        with Screen() as screen:
            looker = _Looker(watch, interval_s, screen)
            looker.start()
            _loop(screen, looker, View(SPARKS if _writes(SPARKS) else ASCII_SPARKS))
    except EndedError as ended:
        status = 0 if ended.number == signal.SIGINT else 128 + ended.number
    if looker and not looker.close():  # it waits for a job that hangs, and Python would wait for it
        os._exit(status)
    return status


def _loop(screen: Screen, looker: _Looker, view: View) -> None:
    """Draw and obey until q. Raises EndedError, OSError."""
    while True:
        screen.draw(view.lines(*screen.size()))
        for event in screen.wait():
            if event == NEWS:
                if looker.failed is not None:
                    raise looker.failed
                if looker.latest is not None:
                    view.take(looker.latest)
            elif event != RESIZED and not view.press(event):
                return


def _writes(text: str) -> bool:
    """Whether the terminal's encoding has these characters."""
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True
