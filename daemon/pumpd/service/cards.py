"""Queries NVML for the machine's GPUs: their UUIDs, their total memory, and their used memory.

DESIGN
  A separate process (`python -m pumpd.service.cards`) calls NVML, and answers each line with one
  line. NVML takes memory, and a call may take seconds, or never return if the driver is broken.
  The service's only thread must not wait for that. The service sends a query at its start, and
  every ASK_S while there are jobs. The process is killed with the service, and also KEEP_S after
  the last job, so that an idle GPU can enter a low-power state. A process that does not answer
  within ANSWER_S is killed too, and restarted after AGAIN_S. Until then the last values stay valid.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from pump.base import nvml, paths

ASK_S = 3.0
ANSWER_S = 10.0
AGAIN_S = 60.0
KEEP_S = 60.0
ANSWER_BYTES = 1 << 16
READER = paths.isolated("pumpd.service.cards")
CONTROL_NODES = ("/dev/nvidiactl", "/dev/dxg")

log = logging.getLogger("pumpd")


class Cards:
    """The machine's GPUs by NVML; none without NVML. UUIDs have 32 hexadecimal digits.

    `total_bytes`: memory of each GPU. The constructor queries it, which may take ANSWER_S.
    """

    def __init__(self) -> None:
        self.total_bytes: dict[str, int] = {}
        self.due: float | None = None
        """The latest time for the next call of on_time (time.monotonic); None: no call is
        needed."""
        self._notify: Callable[[Mapping[str, int]], None] = lambda _used: None
        self._selector: selectors.BaseSelector | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._asked: float | None = None
        self._ask_due = 0.0
        self._last_wanted = time.monotonic()
        if any(os.path.exists(node) for node in CONTROL_NODES):  # noqa: PTH110
            self._learn_totals()

    def watch(
        self, selector: selectors.BaseSelector, notify: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Starts to call `notify` with the used bytes of each GPU, from the selector's loop. The
        selector's data are callables that take the events."""
        self._selector, self._notify = selector, notify
        if self._process is not None:
            self._listen()

    def on_time(self, now: float, beat_s: float, wanted: bool) -> None:
        """Sends a query when it is time. `wanted`: whether there are jobs. `beat_s`: the interval
        of their reports, which must be more frequent than samples."""
        if not self.total_bytes:
            return
        if wanted:
            self._last_wanted = now
        if self._asked is not None:
            if now >= self._asked + ANSWER_S:
                log.warning(
                    "NVML did not answer within %.0f s: pump keeps its last values and "
                    "retries in %.0f s",
                    ANSWER_S,
                    AGAIN_S,
                )
                self._give_up(now)
        elif self._process is not None and now >= self._last_wanted + KEEP_S:
            self._kill_process()
        elif wanted and now >= self._ask_due:
            self._ask_due = now + max(ASK_S, 1.5 * beat_s)
            self._send_query(now)
        if self._asked is not None:
            self.due = self._asked + ANSWER_S
        elif wanted:
            self.due = self._ask_due
        else:
            self.due = None if self._process is None else self._last_wanted + KEEP_S

    def close(self) -> None:
        """Ends the process, even if it is stopped."""
        self._kill_process()

    # ---- the process ----

    def _learn_totals(self) -> None:
        try:
            self._start_process()
            assert self._process is not None
            self._send_query(self._last_wanted)
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout or 0, selectors.EVENT_READ)
                while b"\n" not in self._received:
                    if not selector.select(ANSWER_S):
                        raise OSError(f"no answer within {ANSWER_S:.0f} s")
                    self._read()
            self.total_bytes = {uuid: total for uuid, (total, _) in self._take_answer().items()}
        except (OSError, ValueError) as error:
            log.warning(
                "NVML does not answer, so the service uses the jobs' own reports of GPUs: %s", error
            )
            self._give_up(self._last_wanted)

    def _start_process(self) -> None:
        self._process = subprocess.Popen(
            READER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        self._received = b""
        self._listen()

    def _listen(self) -> None:
        if self._selector is not None and self._process is not None:
            assert self._process.stdout is not None
            self._selector.register(self._process.stdout, selectors.EVENT_READ, self._receive)

    def _send_query(self, now: float) -> None:
        try:
            if self._process is None:
                self._start_process()
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(b"\n")
            self._asked = now
        except OSError as error:
            log.warning(
                "cannot start the process that queries NVML, so its last values stay in use: %s",
                error,
            )
            self._give_up(now)

    def _receive(self, _events: int) -> None:
        try:
            self._read()
            if b"\n" in self._received:
                self._notify({uuid: used for uuid, (_, used) in self._take_answer().items()})
        except (OSError, ValueError) as error:
            log.warning("NVML stopped answering, so its last values stay in use: %s", error)
            self._give_up(time.monotonic())

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        data = self._process.stdout.read(ANSWER_BYTES)
        if data is None:
            return
        self._received += data
        if not data or len(self._received) > ANSWER_BYTES:
            raise OSError(f"its process ended, or sent more than {ANSWER_BYTES} bytes")

    def _take_answer(self) -> dict[str, tuple[int, int]]:
        line, _, self._received = self._received.partition(b"\n")
        self._asked = None
        found = json.loads(line)
        return {str(uuid): (int(total), int(used)) for uuid, (total, used) in found.items()}

    def _give_up(self, now: float) -> None:
        self._ask_due = now + AGAIN_S
        self._kill_process()

    def _kill_process(self) -> None:
        process, self._process, self._asked = self._process, None, None
        if process is not None:
            assert process.stdout is not None and process.stdin is not None
            if self._selector is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(process.stdout)
            process.kill()  # without a wait: inside a broken driver it does not end
            process.stdin.close()
            process.stdout.close()


def main() -> None:
    """Answers each line of standard input with NVML's values, as a JSON object in one line: UUID
    to total and used bytes."""
    handles = nvml.handles()
    for _ in sys.stdin:
        print(json.dumps({uuid: nvml.memory(one) for uuid, one in handles.items()}), flush=True)
