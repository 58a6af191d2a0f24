"""pump top on a terminal: drawn, resized, and ended in every way, with a job on the virtual GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pumpds
import pytest
from watched_jobs import BIN, TIMEOUT_S, Jobs

PUT = re.compile(rb"\x1b\[(\d+);1H([^\x1b]*(?:\x1b\[[0-9;]*m[^\x1b]*)*)")
LEFT = b"\x1b[?7h\x1b[?25h\x1b[?1049l"


class Terminal:
    """A terminal that runs pump top; `rows` is the visible text."""

    def __init__(self, environ: dict[str, str], columns: int, rows: int, *words: str) -> None:
        self.ours, self._theirs = pty.openpty()
        self.before = termios.tcgetattr(self._theirs)
        self._size(columns, rows)
        self.top = subprocess.Popen(
            ["setsid", "--ctty", BIN / "pump", "top", *words],  # the terminal can then signal top
            env=environ,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=subprocess.PIPE,
        )
        self.raw = b""
        self.rows: dict[int, str] = {}
        self._from = 0
        """Start of the last row in `raw`, which may be incomplete."""

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.rows.clear()
        self._size(columns, rows)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def read(self) -> None:
        ready, _, _ = select.select([self.ours], [], [], 0.2)
        if ready:
            with contextlib.suppress(OSError):  # top has exited
                self.raw += os.read(self.ours, 1 << 20)
        for found in PUT.finditer(self.raw, self._from):
            plain = re.sub(rb"\x1b\[[0-9;]*m", b"", found[2]).decode(errors="replace")
            self.rows[int(found[1])] = plain.rstrip()
            self._from = found.start()

    @property
    def text(self) -> str:
        return "\n".join(self.rows[row] for row in sorted(self.rows))

    def shows(self, wanted: Callable[[str], object]) -> str:
        """Waits until the text is as wanted; returns the text."""
        until = time.monotonic() + TIMEOUT_S
        while not wanted(self.text):
            assert time.monotonic() < until, self.text
            self.read()
        return self.text

    def ends(self) -> int:
        """Waits for the exit status; `raw` then has all output. Checks that the terminal is
        restored."""
        until = time.monotonic() + TIMEOUT_S
        while self.top.poll() is None:
            assert time.monotonic() < until
            self.read()
        self.read()
        assert self.top.stderr and self.top.stderr.read() == b""
        assert LEFT in self.raw
        assert termios.tcgetattr(self._theirs) == self.before
        return self.top.returncode

    def vanish(self) -> None:
        """Closes the terminal, like its window."""
        os.close(self._theirs)
        os.close(self.ours)
        self.ours = self._theirs = -1

    def close(self) -> None:
        self.top.kill()
        self.top.wait(TIMEOUT_S)
        assert self.top.stderr
        self.top.stderr.close()
        if self.ours >= 0:
            os.close(self.ours)
            os.close(self._theirs)


@pytest.fixture
def terminal(jobs: Jobs) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(columns: int = 80, rows: int = 24, *words: str, **more: str) -> Terminal:
        made.append(Terminal({**jobs.environ, "TERM": "xterm", **more}, columns, rows, *words))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_it_shows_a_job_its_details_and_that_it_has_ended(
    jobs: Jobs, terminal: Callable[..., Terminal]
) -> None:
    job = jobs.start_script("train.py")
    screen = terminal(COLUMNS="44", LINES="11")  # the terminal's own size takes precedence
    shown = screen.shows(lambda text: "train.py" in text and " q  quit" in text)
    assert re.search(rf"^> +{job.pid} train.py .* dormant ", shown, re.M)
    assert re.search(r"^GPU 0  NVIDIA A100-PCIE-40GB \(pump vi…  GPU-70756d70-2d76-", shown, re.M)
    (head,) = [one for one in shown.splitlines() if one.lstrip().startswith("PID")]
    assert {"RESIDENT", "BUDGET", "~HIT", "MOVED", "CAUSE"} < set(head.split())
    assert max(map(len, shown.splitlines())) <= 80 and len(screen.rows) <= 24
    screen.press(b"\r")
    shown = screen.shows(lambda text: "running for" in text)
    assert re.search(rf"^command +{re.escape(sys.executable[:60])}", shown, re.M)
    assert re.search(rf"^process +{job.pid}$", shown, re.M)
    screen.resize(150, 40)
    screen.shows(lambda text: "(pump virtual)" in text and max(screen.rows) == 40)
    jobs.end()
    screen.shows(lambda text: "This process has ended" in text)
    screen.press(b"\x1b")
    screen.shows(lambda text: "You have no jobs running under pump." in text)
    screen.press(b"q")
    assert screen.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(
    terminal: Callable[..., Terminal], number: signal.Signals
) -> None:
    screen = terminal()
    screen.shows(lambda text: "You have no jobs" in text)
    if number == signal.SIGINT:
        screen.press(b"\x03")
    else:
        screen.top.send_signal(number)
    assert screen.ends() == (0 if number == signal.SIGINT else 128 + number)


def test_it_ends_with_its_terminal(terminal: Callable[..., Terminal]) -> None:
    screen = terminal()
    screen.shows(lambda text: "You have no jobs" in text)
    screen.vanish()
    assert screen.top.wait(TIMEOUT_S) == 128 + signal.SIGHUP
    assert screen.top.stderr and screen.top.stderr.read() == b""


def test_it_stops_and_goes_on_at_the_shells_command(terminal: Callable[..., Terminal]) -> None:
    """Sends SIGSTOP: in its own session no shell handles Ctrl-Z, and the kernel drops SIGTSTP."""
    screen = terminal()
    screen.shows(lambda text: "You have no jobs" in text)
    screen.top.send_signal(signal.SIGSTOP)
    os.waitpid(screen.top.pid, os.WUNTRACED)
    screen.rows.clear()
    termios.tcsetattr(screen._theirs, termios.TCSANOW, screen.before)  # as a shell does
    screen.top.send_signal(signal.SIGCONT)
    until = time.monotonic() + TIMEOUT_S
    while termios.tcgetattr(screen._theirs) == screen.before:
        assert time.monotonic() < until
        screen.read()
    screen.shows(lambda text: "You have no jobs" in text)
    screen.press(b"q")
    assert screen.ends() == 0


def test_q_ends_it_at_once_while_a_job_does_not_answer(
    jobs: Jobs, terminal: Callable[..., Terminal]
) -> None:
    job = jobs.start_script("train.py")
    there = pumpds.of_job(job.pid)
    os.kill(there.supervisor, signal.SIGSTOP)
    try:
        screen = terminal()
        screen.shows(lambda text: "looking for jobs" in text)
        screen.press(b"q")
        assert screen.ends() == 0
    finally:
        os.kill(there.supervisor, signal.SIGCONT)


def test_colours_and_characters_are_those_that_the_terminal_has(
    terminal: Callable[..., Terminal],
) -> None:
    coloured = terminal()
    coloured.shows(lambda text: "You have no jobs" in text)
    coloured.press(b"q")
    assert coloured.ends() == 0 and b"\x1b[1;36mpump top" in coloured.raw
    plain = terminal(80, 24, NO_COLOR="1", PYTHONIOENCODING="ascii")
    plain.shows(lambda text: "You have no jobs" in text)
    plain.press(b"q")
    assert plain.ends() == 0 and b"pump top" in plain.raw
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", plain.raw) and plain.raw.isascii()


def test_a_terminal_without_sequences_gets_lines(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(80, 24, TERM="dumb")
    until = time.monotonic() + TIMEOUT_S
    while screen.raw.count(b"pump top") < 2:
        assert time.monotonic() < until
        screen.raw += os.read(screen.ours, 65536)
    assert b"\x1b" not in screen.raw
