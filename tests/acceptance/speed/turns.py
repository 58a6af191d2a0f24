"""Runs the loops of two live programs alternately, never at the same time.

Each program starts, imports and builds its model only once. In the order A B B A, both sides of a
pair meet the same machine. While one computes, the other waits for its next line on stdin.
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
"""Time for a program to end by itself after its last loop."""


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Returns the complete lines of a program's file; the last line may be cut off."""
    found = []
    text = file.read_text() if file.exists() else ""
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


class Player:
    """A running speed/program.py --turns with a pipe as its stdin. `lines`: its output file."""

    def __init__(self, program: Program, lines: Path) -> None:
        self._program, self._lines = program, lines
        self._answers = 0

    def ready(self, deadline: float) -> float | None:
        """Waits until the model is warm and returns the estimated seconds of an iteration. Returns
        None if the program ended or was not ready by `deadline` (time.monotonic())."""
        answer = self._answer("ready", deadline)
        return float(answer["seconds_per_iteration"]) if answer else None

    def loop(self, iterations: int, deadline: float) -> float | None:
        """Runs iterations; returns seconds of one, None at the program's end or the `deadline`."""
        stdin = self._program.popen.stdin
        if stdin is None:
            raise ValueError("the program was started without a pipe as its stdin")
        with contextlib.suppress(OSError):
            stdin.write(f"{iterations}\n".encode())
            stdin.flush()
        answer = self._answer("loop", deadline)
        return answer["seconds"] / answer["iterations"] if answer else None

    def end(self) -> Run:
        """Lets the program end, and kills it if it does not."""
        if self._program.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._program.popen.stdin.close()
        return self._program.finish(END_S)

    def _answer(self, kind: str, deadline: float) -> dict[str, Any]:
        """Returns the next line; {} if it is missing or of another kind."""
        while True:
            ended = self._program.popen.poll() is not None
            found = read_lines(self._lines)[self._answers :]
            if found:
                self._answers += 1
                return found[0] if found[0]["kind"] == kind else {}
            if ended or time.monotonic() >= deadline:
                return {}
            time.sleep(POLL_S)
