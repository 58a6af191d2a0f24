"""A full-screen terminal: drawn by rich, read key by key.

rich positions each line at its row, and the terminal does not wrap lines. If the two disagree on a
character's width, only that line is cut short.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Self

from rich.console import RenderableType

from pump.base.console import console

WRAP, NO_WRAP = "\x1b[?7h", "\x1b[?7l"
"""Sequences that switch wrapping at the right margin on and off (DECAWM)."""
KEYS_BYTES = 256
KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "back",
    b"\x7f": "back",
    b"\x08": "back",
    b"\r": "enter",
    b"\n": "enter",
}
"""Keys by the bytes that terminals send (sequences of xterm and the VT100)."""

RESUMED = "resumed"


class EndedError(Exception):
    """The terminal is closed, or a signal asks the program to end. number: of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """The terminal of standard output, and of standard input if that is a terminal."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._before: list[Any] | None = None
        self._noted: list[int] = []
        self._console = console()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        for number in (signal.SIGTSTP, signal.SIGCONT):  # a handler must not write, so `keys` acts
            signal.signal(number, lambda number, _: self._noted.append(number))
        if self._keys >= 0:
            self._before = termios.tcgetattr(self._keys)
        self._take_terminal()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed
            self._give_back_terminal()

    def size(self) -> tuple[int, int]:
        """Returns columns and lines; 80 and 24 if the terminal does not report them. Ignores the
        environment (COLUMNS), which does not change when the terminal is resized."""
        try:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        except OSError:  # the terminal is closed; the next read or write fails
            columns = lines = 0
        return columns or 80, lines or 24

    def keys(self, wait_s: float) -> list[str]:
        """Returns the keys that arrive within this time (KEYS, or one character), and RESUMED.
        Raises EndedError."""
        there = [self._keys] if self._keys >= 0 else []
        ready = select.select(there, [], [], wait_s)[0]
        if self._noted:
            if self._noted.pop(0) == signal.SIGTSTP:  # Ctrl-Z, until the shell sends SIGCONT
                self._give_back_terminal()
                os.kill(os.getpid(), signal.SIGSTOP)
            self._take_terminal()
            return [RESUMED]
        if not ready:
            return []
        with _gone():
            data = os.read(self._keys, KEYS_BYTES)
        if not data:
            raise EndedError(signal.SIGHUP)
        return parsed(data)

    def draw(self, page: RenderableType) -> None:
        """Shows the page in place of the previous one. Raises EndedError."""
        self._console.size = self.size()
        with _gone():
            self._console.update_screen(page)

    def _take_terminal(self) -> None:
        if self._keys >= 0:
            with contextlib.suppress(termios.error):  # the next read or write fails, too
                tty.setcbreak(self._keys, termios.TCSANOW)
        with _gone():
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
            self._console.out(NO_WRAP, end="")

    def _give_back_terminal(self) -> None:
        try:
            self._console.out(WRAP, end="")
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
        finally:
            if self._before is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._keys, termios.TCSANOW, self._before)


def parsed(data: bytes, known: Mapping[bytes, str] = KEYS) -> list[str]:
    """Returns the keys in some bytes from a terminal. Skips unknown bytes."""
    found: list[str] = []
    while data:
        length = next((n for n in (4, 3, 1) if data[:n] in known), 0)
        if length == 1 and data[:1] == b"\x1b" and len(data) > 1:  # the sequence of an unknown key
            return found
        found += [known[data[:length]]] if length else []
        if not length and data[:1].isascii() and data[:1].decode("ascii").isprintable():
            found.append(data[:1].decode("ascii"))
        data = data[length or 1 :]
    return found


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Turns the error of a closed terminal into EndedError."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise EndedError(signal.SIGHUP) from None


def _end(number: int, frame: object) -> NoReturn:
    raise EndedError(number)
