"""Policies: what the schedule of a client may know, and how jobs share GPUs. No I/O.

A client's policies need numpy. arbiter.py and leases.py, by which jobs share, do not, and the
service has none: so the former are imported at their first use.
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
