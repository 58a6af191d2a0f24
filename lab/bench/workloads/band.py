"""The machines over which a simulated value is given as a band.

The time of faults depends on the host. So does the slow-down of one link direction by the other.
GPUs have been measured throughout both ranges (docs/published.md). A value is for a server, with
the least and the most of all these machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pump_lab.profiles import Profile

CARD = "a100-pcie4"
LINK_ENDS = (("0.49", "0.94"), ("0.92", "0.85"))
"""duplex_in and duplex_out: the extremes of published results (lab/pump_lab/hosts.toml)."""


def machines() -> dict[str, Profile]:
    """Returns the profiles of the band by name; the first one gives the main value."""
    from pump_lab import profiles

    server = profiles.load(f"{CARD}@server")
    found = {"server": server}
    for host in profiles.hosts():
        found.setdefault(host, profiles.load(f"{CARD}@{host}"))
    for inward, outward in LINK_ENDS:
        found[f"server, link {inward}/{outward}"] = server.changed(
            {"link.duplex_in": inward, "link.duplex_out": outward}
        )
    return found


def over(measure: Callable[[Profile], Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Returns each number that `measure` makes of a machine as value, least and most."""
    measured = [measure(profile) for profile in machines().values()]
    return {
        name: {
            "value": value,
            "least": min(one[name] for one in measured),
            "most": max(one[name] for one in measured),
        }
        for name, value in measured[0].items()
    }
