"""Runs job.py's kernels with a full launch queue while a thread of the program shrinks its budget.

Case `queue`: the program keeps launching. Case `held`: the queued work waits for a value that the
program writes only after a launch has waited. Case `capture`: the program captures during the
change. Prints {"set_s", "launch_s", "executed", "steps"} and the digest. `set_s` is the duration of
the change, `launch_s` the longest launch during the change. `executed`: the queued work had
executed when the budget took effect. `steps`: number of all steps.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from typing import Any

import job

from pump.control import Control

MORE = 20_000
"""Most steps after the queued ones."""
WAITED_S = 1.0
"""A launch that takes this long has waited."""
BUDGET_BYTES = 24 << 20
CASES = "queue", "held", "capture"


def parse() -> Any:
    parser = job.parser()
    parser.add_argument("--case", choices=CASES, required=True)
    return parser.parse_args()


class Change:
    """Sets the budget in its own thread."""

    def __init__(self, driver: Any, event: Any) -> None:
        self._driver, self._event = driver, event
        self.seconds = 0.0
        self.executed = False
        self._thread = threading.Thread(target=self._set)
        self._thread.start()

    def _set(self) -> None:
        with Control.of_job() as control:
            begin = time.monotonic()
            control.set("window", BUDGET_BYTES)
            (code,) = self._driver.cuEventQuery(self._event)
            self.seconds = time.monotonic() - begin
            self.executed = int(code) == 0

    @property
    def lasts(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


def capture(program: job.Program, change: Change) -> None:
    """Captures launches until the budget has changed, then destroys the graph."""
    driver = program.driver
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    job.check(driver.cuStreamBeginCapture(program.stream, mode))
    while change.lasts:
        program.mix(0, 1, 7)
        time.sleep(0.001)
    graph = job.check(driver.cuStreamEndCapture(program.stream))
    job.check(driver.cuGraphDestroy(graph))


def main() -> None:
    options = parse()
    program = job.Program(options)
    driver = program.driver
    print("running", flush=True)
    address = int(job.check(driver.cuMemHostAlloc(4, 0)))
    gate = ctypes.c_uint32.from_address(address)
    gate.value = options.case != "held"
    job.check(driver.cuStreamWaitValue32(program.stream, address, 1, 0))
    steps = job.plan(options.buffers, options.steps + MORE, options.seed)
    for step in steps[: options.steps]:
        program.mix(*step)
    event = job.check(driver.cuEventCreate(0))
    job.check(driver.cuEventRecord(event, program.stream))
    change, longest_s, count = Change(driver, event), 0.0, options.steps
    if options.case == "capture":
        capture(program, change)
    while change.lasts and longest_s < WAITED_S:
        begin = time.monotonic()
        program.mix(*steps[count])
        longest_s = max(longest_s, time.monotonic() - begin)
        count += 1
        if options.case == "held":
            time.sleep(0.005)  # the queue must not be full before the change
    gate.value = 1
    change.join()
    facts = {"set_s": change.seconds, "launch_s": longest_s, "executed": change.executed}
    print(json.dumps({**facts, "steps": count}), flush=True)
    print(program.digest(), flush=True)


if __name__ == "__main__":
    main()
