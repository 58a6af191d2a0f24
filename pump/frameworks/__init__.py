"""Environment variables of frameworks, by which pump sees their tensors. No I/O.

One file for each framework, with these names; `environ` is the environment of the job:

    NAME                           the framework's name
    tensor(environ) -> Advice      makes it allocate in stream order, tensor by tensor
    native(environ) -> Advice      only where its own allocator cannot exceed the GPU

`native` leaves every framework that can exceed the GPU as it is. `tensor` sets every
framework's switch, and names what conflicts with it. `auto` decides for each framework: it sets
the switch where nothing known conflicts with it, else it leaves the framework as it is. pump's
pool serves
stream-ordered allocations of a program in any case (`--keep-device stream-ordered` leaves them
to the driver).
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks import cupy, jax, rmm, torch
from pump.frameworks.advice import Advice

FRAMEWORKS = (torch, jax, cupy, rmm)


def advise(granularity: str, environ: Mapping[str, str]) -> Advice:
    """The advice of all frameworks together. granularity: one of GRANULARITIES (config/job.py).

    With `auto` there are no conflicts: a framework with one is left as it is.
    """
    if granularity == "native":
        return jax.native(environ)
    together = Advice()
    for framework in FRAMEWORKS:
        advice = framework.tensor({**environ, **together.settings})
        if granularity == "auto":
            advice = choose(framework.NAME, advice)
        together = together.plus(advice)
    return together


def choose(name: str, advice: Advice) -> Advice:
    """The choice of `auto` for one framework, by its advice on tensor granularity."""
    if advice.conflicts:
        return Advice(choices=[f"{name}: native, because {advice.conflicts[0]}"])
    if not advice.settings:
        return advice
    switches = " ".join(f"{key}={value}" for key, value in advice.settings.items())
    chosen = f"{name}: tensor ({switches}), because no known conflict exists"
    return advice._replace(choices=[chosen])
