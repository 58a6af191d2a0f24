"""What each framework needs in its environment, so that pump sees its tensors. No I/O.

One file per framework. Each says, of the environment that the user has given the job:

    tensor(environ) -> Advice      to make it allocate stream-ordered, tensor by tensor
    any_granularity(environ) -> Advice    what is needed in any case
    BETTER                         evidence that tensor granularity is faster with it

`native` changes nothing but what is needed in any case. `tensor` sets every framework's
switch, after all that is known to stand against it was named. `auto` sets a switch only
where the check finds nothing against it and BETTER says that it is worth it. In `tensor`
and `auto` whatever a program allocates in stream order by itself is served by pump's pool.
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
        if granularity == "native" or (granularity == "auto" and not framework.BETTER):
            continue
        advice = framework.tensor({**environ, **together.settings})
        if granularity == "tensor" or not advice.conflicts:
            together = together.plus(advice)
    return together
