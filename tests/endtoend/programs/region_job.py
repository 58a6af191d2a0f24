"""Runs job.py in three parts; the middle part is a region of pump.api.

Waits until a pumpd serves it. Prints pump's report on each part as one JSON object, and the digest.
"""

from __future__ import annotations

import json
import time

import job

from pump import api
from pump.control import Control

TIMEOUT_S = 40.0


def policy() -> str:
    with Control.of_job() as control:
        (client,) = control.state()
    return client.policy


def main() -> None:
    options = job.parse()
    program = job.Program(options)
    deadline = time.monotonic() + TIMEOUT_S
    while not api.served() and time.monotonic() < deadline:
        time.sleep(0.02)
    steps = job.plan(options.buffers, options.steps, options.seed)
    third = len(steps) // 3
    parts = steps[:third], steps[third : 2 * third], steps[2 * third :]
    policies = [policy()]
    for number, part in enumerate(parts):
        with api.region(policy="demand" if number == 1 else None) as region:
            policies.append(policy())
            for target, source, seed in part:
                program.mix(target, source, seed)
            program.synchronise()
    facts = {
        "policies": [*policies, policy()],
        "operations": region.counters["operations"],
        "summary": str(api.summary()),
        "counted": api.counters()["attaches"],
    }
    print(json.dumps(facts), flush=True)
    print(program.digest(), flush=True)


if __name__ == "__main__":
    main()
