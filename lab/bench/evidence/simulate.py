"""Simulates cases in a separate process, with the libraries that PUMP_LIB_DIR names.

Reads a JSON list of {key, case, settings} from standard input. Prints a JSON line for each case
when it is simulated: key, seconds of the steady part, bytes each way, faulted pages. For a mix of
jobs, the seconds are 1 / the mean progress.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from evidence.cases import MIX, SERVER, Case  # noqa: E402
from study import sim_duplicates  # noqa: E402
from study.jobs import curves, mixes, ways  # noqa: E402
from study.papers.several import link_of  # noqa: E402
from suites import sim  # noqa: E402
from workloads import simulated  # noqa: E402
from workloads.formulas import Step  # noqa: E402

from pump.model import bounds  # noqa: E402
from pump.policy import turns  # noqa: E402
from pump_lab import profiles  # noqa: E402
from pump_lab.profiles import Profile  # noqa: E402
from pump_lab.sim import deaths, recording, tensors  # noqa: E402
from pump_lab.sim import program as form  # noqa: E402
from pump_lab.sim.named_policies import by_name  # noqa: E402
from pump_lab.sim.named_policies import simulate as run  # noqa: E402
from pump_lab.sim.program import Program  # noqa: E402
from pump_lab.sim.simulation import Locks, Machine, Queues  # noqa: E402

ITERATIONS = 3


def main() -> None:
    for one in json.load(sys.stdin):
        result = simulated_case(Case(*one["case"]), one["settings"])
        print(json.dumps({"key": one["key"], **result}), flush=True)


def simulated_case(case: Case, settings: Mapping[str, Any]) -> dict[str, float]:
    """Simulates one case."""
    if case.group == "jobs":
        return {"seconds": 1 / progress(case, settings["sharing"])}
    discard = case.group in ("discards", "naive") and settings["discard"]
    with patched(deaths, SHARE_FREE=settings["share_free"]), patched(bounds, **settings["bounds"]):
        program = of_name(case.program, discard, settings["share_free"])
        plain = of_name(case.program, False, None)
        machine = machine_of(case, plain.peak_bytes, settings)
        policy = settings["policies"].get(case.policy, case.policy) + "+discard" * discard
        steady = run(by_name(policy), program, machine).steady
    return {
        "seconds": steady.seconds,
        "to_gpu": steady.h2d_bytes,
        "to_host": steady.d2h_bytes,
        "faults": steady.counters["fault_pages"],
    }


@contextmanager
def patched(module: Any, **values: Any) -> Iterator[None]:
    """Sets names of a module during the block; None leaves a name unchanged."""
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, before[name] if value is None else value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@cache
def profile_of(host: str) -> Profile:
    """Returns the profile of the suites on that host."""
    return profiles.load(f"{sim.PROFILE}@{host}")


def machine_of(case: Case, peak_bytes: int, settings: Mapping[str, Any]) -> Machine:
    """Returns the machine of a case."""
    own = dict(settings["machine"])
    memory_bytes = int(peak_bytes / case.ratio)
    blocks = memory_bytes // bounds.BLOCK_BYTES
    taken_bytes = int(blocks * own.pop("taken_percent", 0) / 100) * bounds.BLOCK_BYTES
    queues = Queues(**own.pop("queues", {}))
    locks = Locks(**own.pop("locks", {}))
    profile = profile_of(case.host).changed(settings["profile"])
    machine = Machine(profile, memory_bytes, queues=queues, locks=locks)
    return replace(machine, taken_bytes=taken_bytes, **own)


# ---- programs ------------------------------------------------------------------------


@cache
def of_name(name: str, discard: bool, share_free: int | None) -> Program:
    """Returns a program. `share_free`: the present SHARE_FREE, a key of the cache."""
    if name in simulated.PROGRAMS:
        return recorded(name)
    if name.startswith("read_"):
        return only_read(recorded(name.removeprefix("read_")))
    if name in ("decoder", "stack", "made_lora"):
        gbps = float(profile_of("server").values["kernels.default_gbps"])
        made = getattr(sim_duplicates, name.removeprefix("made_"))(gbps)
        return made.program  # type: ignore[no-any-return]
    return tensors.program(trace_of(name), "caching", ITERATIONS, discard=discard)


@cache
def trace_of(name: str) -> tensors.TensorTrace:
    """Returns one of the ten traces."""
    (file,) = (sim.DATA / "ten").glob(f"{name}_marginal.json.*")
    return tensors.parse(file.read_bytes(), file.name)


@cache
def recorded(name: str) -> Program:
    """Returns a recording with modelled times (workloads/simulated.py). All its memory counts as
    its peak."""
    facts = json.loads((simulated.DATA / f"{name}.json").read_text())
    whole = recording.program((simulated.DATA / f"{name}.trace").read_bytes(), name)
    seconds = Step(**facts["step"]).compute_seconds * facts["steps"]
    program = simulated.retimed(whole, facts["operations"], seconds)
    return replace(program, peak_bytes=facts["footprint_bytes"])


def only_read(program: Program) -> Program:
    """Turns all writes into reads, because a recording does not distinguish them."""
    uses = program.uses.copy()
    uses["access"][uses["access"] == form.WRITE] = form.READ
    return replace(program, uses=uses)


# ---- several jobs --------------------------------------------------------------------


@cache
def mixes_of() -> dict[str, mixes.Mix]:
    """Returns the mixes, with the stored curves."""
    link = link_of(profile_of(SERVER))
    return {f"{MIX}{one.seed}": one for one in mixes.load(curves.kept(), link)}


def progress(case: Case, sharing: Mapping[str, Any]) -> float:
    """Returns the mean progress of a mix's jobs: work / work on an otherwise idle GPU.

    Keys of `sharing`: `way`, a class of study/jobs/ways.py; `crowded`, CROWDED of
    pump/policy/turns.py; `yields`, whether lower-priority jobs wait for their memory before they
    get the engine.
    """
    mix = mixes_of()[case.program]
    options = dict(sharing)
    way, crowded = options.pop("way"), options.pop("crowded", None)
    yields = None if options.pop("yields", True) else lambda _priorities: frozenset()
    with patched(turns, CROWDED=crowded), patched(ways, below_another=yields):
        return mix.mean(mix.progress(getattr(ways, way)(**options)))


if __name__ == "__main__":
    main()
