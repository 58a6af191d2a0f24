"""A terminal as a whole screen: drawn by ANSI sequences (ECMA-48), read key by key.

DESIGN
  One loop waits in `wait` for a key, a signal, or news from another thread. Signal handlers do
  nothing: Python writes each signal's number into a pipe (signal.set_wakeup_fd), and the loop
  acts on it where it stands. So no exception interrupts half a picture, and the terminal is
  given back in one place.

  Each line is put at its row, and the terminal does not wrap: where it and text.py differ on a
  character's width, that line alone is cut short.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pump.cli.top.text import Line, painted

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, without a cursor, without wrapping at the right margin."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
CLEAR = "\x1b[2K"
"""The line; before the text, because the cursor stays on a full line's last character."""
BELOW = "\x1b[J"
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
"""What terminals send (xterm's and the VT100's sequences), by bytes."""
RESIZED, NEWS = "resized", "news"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndedError(Exception):
    """The terminal has gone, or a signal asks the program to end. number: of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """The terminal of standard output, and of standard input where that is one."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._before: list[Any] | None = None
        self._old: dict[int, object] = {}
        self._out = sys.stdout.fileno()
        self.colour = not os.environ.get("NO_COLOR")  # no-color.org

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*ENDS, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._old[number] = signal.signal(number, _nothing)
        if self._keys >= 0:
            self._before = termios.tcgetattr(self._keys)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError, EndedError):  # the terminal may have gone
            self._give_back()
        signal.set_wakeup_fd(-1)
        for number, old in self._old.items():
            signal.signal(number, old)  # type: ignore[arg-type]
        # The pipe stays open: a thread may be about to call news().

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 where the terminal does not say. Never those of the
        environment (COLUMNS), which stay when the terminal is resized."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:  # the terminal has gone; the next read or write says so
            columns = lines = 0
        return columns or 80, lines or 24

    def news(self) -> None:
        """Let `wait` return NEWS; from any thread."""
        with contextlib.suppress(OSError):  # full: it returns anyway
            os.write(self._write, b"\0")

    def wait(self) -> list[str]:
        """Wait for something and return it: keys (KEYS, or one character), RESIZED, NEWS. Raises
        EndedError, OSError."""
        keys = [self._keys] if self._keys >= 0 else []
        ready, _, _ = select.select([self._read, *keys], [], [])
        found = list(self._signals(os.read(self._read, 4096)) if self._read in ready else ())
        if self._keys in ready:
            try:
                data = os.read(self._keys, KEYS_BYTES)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                raise EndedError(signal.SIGHUP)
            found += parsed(data)
        return found

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines, and nothing else."""
        width, height = self.size()
        rows = [
            f"\x1b[{row};1H{CLEAR}{painted(line, width, colour=self.colour)}"
            for row, line in enumerate(lines[:height], 1)
        ]
        rows += [f"\x1b[{len(rows) + 1};1H{BELOW}"] if len(rows) < height else []
        self._put("".join(rows))

    def _signals(self, data: bytes) -> Iterator[str]:
        for number in data:
            if number in ENDS:
                raise EndedError(number)
            if number == signal.SIGTSTP:
                self._suspend()
            elif number == signal.SIGCONT:  # after SIGSTOP: the shell has taken it
                self._take()
            yield RESIZED if number else NEWS

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back until the shell lets the program go on."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _nothing)
        self._take()

    def _take(self) -> None:
        if self._keys >= 0:
            _change(lambda: tty.setcbreak(self._keys))
        self._put(ENTER)

    def _give_back(self) -> None:
        try:
            self._put(LEAVE)
        finally:
            if (before := self._before) is not None:
                _change(lambda: termios.tcsetattr(self._keys, termios.TCSADRAIN, before))

    def _put(self, text: str) -> None:
        """Write to the terminal, past Python's buffer: what it no longer takes must not be left
        there for the program's end. Raises EndedError where the terminal has gone."""
        data = memoryview(text.encode(sys.stdout.encoding, "replace"))
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                select.select([], [self._out], [])
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise EndedError(signal.SIGHUP) from None


def _change(modes: Callable[[], object]) -> None:
    """Change a terminal's modes. Raises EndedError where it has gone: a hang-up sends SIGCONT as
    well as SIGHUP."""
    while True:
        try:
            modes()
            return
        except termios.error as error:
            if error.args[0] != errno.EINTR:  # SIGTTOU stopped it in the background, until now
                raise EndedError(signal.SIGHUP) from None


def parsed(data: bytes, known: Mapping[bytes, str] = KEYS) -> list[str]:
    """The keys in some bytes of a terminal. What it does not know is left out."""
    found: list[str] = []
    while data:
        length = next((n for n in (4, 3, 1) if data[:n] in known), 0)
        if length == 1 and data[:1] == b"\x1b" and len(data) > 1:  # another key's sequence
            return found
        found += [known[data[:length]]] if length else []
        if not length and data[:1].isascii() and data[:1].decode("ascii").isprintable():
            found.append(data[:1].decode("ascii"))
        data = data[length or 1 :]
    return found


def _nothing(number: int, frame: object) -> None:
    """So that the signal does not end the program; `wait` acts on it."""
