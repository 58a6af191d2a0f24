"""Policies: what the schedule of a client may know, and how jobs share GPUs. No I/O.

The service uses arbiter.py, leases.py and turns.py to share GPUs, and has no numpy. So the policies
of clients, which need numpy, are imported at their first use.
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
