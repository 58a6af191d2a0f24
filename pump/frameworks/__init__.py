"""Sets environment variables of frameworks, so that pump sees their tensors. No I/O.

Each framework has a file with these names. `environ` is the environment of the job:

    NAME:                         The framework's name.
    tensor(environ) -> Advice:    Makes it allocate each tensor in stream order.
    native(environ) -> Advice:    Only if its own allocator cannot exceed the GPU's memory.

`native` does not change frameworks that can exceed the GPU's memory. `tensor` sets every
framework's switch, and reports conflicts. `auto` sets the switch of each framework without a known
conflict, and does not change the other frameworks. In any case, pump's pool serves stream-ordered
allocations of the program (`--keep-device stream-ordered` leaves them to the driver).
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks import cupy, jax, rmm, torch
from pump.frameworks.advice import Advice

FRAMEWORKS = (torch, jax, cupy, rmm)


def advise(granularity: str, environ: Mapping[str, str]) -> Advice:
    """Returns the combined advice of all frameworks. granularity: one of GRANULARITIES
    (config/checks.py).

    With `auto` there are no conflicts, because a framework with a conflict is not changed.
    """
    if granularity == "native":
        return jax.native(environ)
    together = Advice()
    for framework in FRAMEWORKS:
        advice = framework.tensor({**environ, **together.settings})
        if granularity == "auto":
            advice = choose_granularity(framework.NAME, advice)
        together = together.plus(advice)
    return together


def choose_granularity(framework: str, advice: Advice) -> Advice:
    """Returns the choice of `auto` for one framework, from its advice on tensor granularity."""
    if advice.conflicts:
        return Advice(choices=[f"{framework}: native, because {advice.conflicts[0]}"])
    if not advice.settings:
        return advice
    switches = " ".join(f"{key}={value}" for key, value in advice.settings.items())
    chosen = f"{framework}: tensor ({switches}), because no known conflict exists"
    return advice._replace(choices=[chosen])
