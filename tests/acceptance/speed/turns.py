"""Two programs that are alive at the same time and run their loops in turn, never at once.

Each has paid for its start, its imports and its model once. Run in the order A B B A, both sides
of a pair meet the same machine; while one computes, the other waits for its next line on stdin.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from acceptance.running import Program, Run

POLL_S = 0.02
END_S = 15.0
"""For a program to end by itself after its last turn."""


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a program's file; a last one may have been cut."""
    found = []
    text = file.read_text() if file.exists() else ""
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


class Player:
    """A program of speed/program.py --turns, started with a pipe as its stdin. `lines`: the file
    that it writes to."""

    def __init__(self, program: Program, lines: Path) -> None:
        self._program, self._lines = program, lines
        self._answers = 0

    def ready(self, deadline: float) -> float | None:
        """Waits until its model has been warmed up: about the seconds of an iteration; None if it
        ended, or was not ready by `deadline`, a time of time.monotonic()."""
        answer = self._answer("ready", deadline)
        return float(answer["seconds_per_iteration"]) if answer else None

    def loop(self, iterations: int, deadline: float) -> float | None:
        """Seconds of an iteration, over so many; None if it ended, or did not by `deadline`."""
        stdin = self._program.popen.stdin
        if stdin is None:
            raise ValueError("the program was started without a pipe as its stdin")
        with contextlib.suppress(OSError):
            stdin.write(f"{iterations}\n".encode())
            stdin.flush()
        answer = self._answer("loop", deadline)
        return answer["seconds"] / answer["iterations"] if answer else None

    def end(self) -> Run:
        """Lets it end, and kills it if it does not."""
        if self._program.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._program.popen.stdin.close()
        return self._program.finish(END_S)

    def _answer(self, kind: str, deadline: float) -> dict[str, Any]:
        """Its next line, {} without one of that kind."""
        while True:
            ended = self._program.popen.poll() is not None
            found = read_lines(self._lines)[self._answers :]
            if found:
                self._answers += 1
                return found[0] if found[0]["kind"] == kind else {}
            if ended or time.monotonic() >= deadline:
                return {}
            time.sleep(POLL_S)
