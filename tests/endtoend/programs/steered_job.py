"""Runs job.py and changes its own policy and budget between parts.

Prints pumpd's state after each part, one JSON object per line, and then the digest.
"""

from __future__ import annotations

import json
import time

import job

from pump.control import ClientState, Control, DeviceState

MIB = 1 << 20
TIMEOUT_S = 20.0
PHASES = (("demand", 40 * MIB), ("window", 64 * MIB), (None, 0), ("window", 24 * MIB))
"""Policy and budget; 0: the whole GPU, which is the same as no budget."""


def settle(control: Control) -> tuple[ClientState, DeviceState]:
    """Returns the state when memory above the budget has been evicted, or after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        (client,) = control.state()
        (device,) = client.devices
        there = device.resident_bytes + device.arriving_bytes + device.leaving_bytes
        if there <= device.budget_bytes or time.monotonic() > deadline:
            return client, device
        time.sleep(0.01)


def main() -> None:
    options = job.parse()
    program = job.Program(options)
    print("running", flush=True)
    steps = job.plan(options.buffers, options.steps, options.seed)
    share = -(-len(steps) // len(PHASES))
    with Control.of_job() as control:
        for number, (policy, budget_bytes) in enumerate(PHASES):
            (before,) = control.state()
            total_bytes = before.devices[0].total_bytes
            begin = time.monotonic()
            (client,) = control.set(policy, budget_bytes or total_bytes)
            took_s = time.monotonic() - begin
            free_bytes = int(program.driver.cuMemGetInfo()[1])
            for target, source, seed in steps[number * share : (number + 1) * share]:
                program.mix(target, source, seed)
            program.synchronise()
            after, device = settle(control)
            facts = {
                "policy": client.policy,
                "budget_bytes": client.devices[0].budget_bytes,
                "emulated": client.devices[0].emulated,
                "active": client.devices[0].active,
                "overshoot_at_set_bytes": client.devices[0].overshoot_bytes,
                "free_bytes": free_bytes,
                "resident_bytes": device.resident_bytes,
                "used": device.blocks_used - before.devices[0].blocks_used,
                "took_s": took_s,
                "misses": {k: v for k, v in after.worker.items() if k.startswith("miss_")},
            }
            print(json.dumps(facts), flush=True)
    print(program.digest(), flush=True)


if __name__ == "__main__":
    main()
