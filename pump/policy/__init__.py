"""Policies: pure functions from what is believed to what shall move.

What decides for one client needs numpy, what decides between jobs (arbiter.py, leases.py)
does not and runs in a service without it: so the former is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pump.policy.known import POLICIES as POLICIES
    from pump.policy.known import by_name as by_name


def __getattr__(name: str) -> Any:
    if name in ("POLICIES", "by_name"):
        from pump.policy import known

        return getattr(known, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
