"""Finds policies by the names of `pump-run --policy`."""

from __future__ import annotations

from pump.policy.base import Policy
from pump.policy.demand import Demand
from pump.policy.scheduled import Planned, Window

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Demand, Planned, Window)}


def by_name(name: str) -> Policy:
    """Returns a new policy. Raises ValueError that lists the known names."""
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown policy {name!r}; known policies: {known}") from None
