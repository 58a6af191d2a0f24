"""Programs under planned, for a pump_core that holds each plan against one made block by block.

Not a test: run by test_sim_plan_runs.py in a process of its own. What differs ends it.
"""

from __future__ import annotations

from dataclasses import replace

from sim_programs import DATA
from test_sim_hold import made_up

from pump import profiles
from pump.policy.planned import Planned
from pump.sim import tensors
from pump.sim.simulation import Daemon, Machine, run

STOPPED = Daemon(stop_every_ms=50, stop_ms=20)


def main() -> None:
    file = DATA / "vit_b256_marginal.json.xz"
    trace = tensors.parse(file.read_bytes(), file.name)
    for mapping, discard, ratio in (("caching", True, 2), ("unique", False, 1.5)):
        program = tensors.program(trace, mapping, 2, discard=discard)
        gpu = Machine(profiles.load("a100-pcie4"), int(program.peak_bytes / ratio))
        run(program, gpu, Planned())
    for seed in range(96):
        program, gpu = made_up(seed)
        run(program, replace(gpu, daemon=STOPPED if seed % 2 else Daemon()), Planned())


main()
