"""What each framework needs in its environment, so that pump sees its tensors. No I/O.

One file per framework. Each says, of the environment that the user has given the job:

    NAME                           what people call it
    tensor(environ) -> Advice      to make it allocate stream-ordered, tensor by tensor
    any_granularity(environ) -> Advice    what is needed in any case

`native` changes nothing but what is needed in any case. `tensor` sets every framework's
switch, after all that is known to stand against it was named. `auto` decides for each
framework by itself: its switch is set where the check finds nothing against it, else the
framework is left as it is. Whatever a program allocates in stream order by itself is served
by pump's pool in any case (`--keep-device stream-ordered` leaves it with the driver).
"""

from __future__ import annotations

from collections.abc import Mapping

from pump.frameworks import cupy, jax, rmm, torch
from pump.frameworks.advice import Advice

FRAMEWORKS = (torch, jax, cupy, rmm)


def advise(granularity: str, environ: Mapping[str, str]) -> Advice:
    """What to set, what stands against it and what to say, of all frameworks together.

    With `auto` nothing stands against it: such a framework is left as it is.
    """
    together = Advice()
    for framework in FRAMEWORKS:
        together = together.plus(framework.any_granularity(environ))
        if granularity == "native":
            continue
        advice = framework.tensor({**environ, **together.settings})
        if granularity == "auto":
            advice = choose(framework.NAME, advice)
        together = together.plus(advice)
    return together


def choose(name: str, advice: Advice) -> Advice:
    """What `auto` makes of the check of tensor granularity for one framework."""
    if advice.conflicts:
        return Advice(choices=[f"{name}: native, because {advice.conflicts[0]}"])
    if not advice.settings:
        return advice
    switches = " ".join(f"{key}={value}" for key, value in advice.settings.items())
    chosen = f"{name}: tensor ({switches}), because nothing known stands against it"
    return advice._replace(choices=[chosen])
