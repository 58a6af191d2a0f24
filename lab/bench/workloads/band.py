"""The machines over which a simulated figure is given as a band.

How long faults take depends on the host, how much one direction of the link slows the other, too;
cards have been seen all over both ranges (docs/published.md). A figure is that of a server, with
the least and the most that any of these machines gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pump_lab.profiles import Profile

CARD = "a100-pcie4"
LINK_ENDS = (("0.49", "0.94"), ("0.92", "0.85"))
"""duplex_in and duplex_out: the ends of what has been published (lab/pump_lab/hosts.toml)."""


def machines() -> dict[str, Profile]:
    """Returns the profiles of the band by name; the first is the one whose figures are given."""
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
    """Returns each figure that `measure` makes of a machine as value, least and most."""
    measured = [measure(profile) for profile in machines().values()]
    return {
        name: {
            "value": value,
            "least": min(one[name] for one in measured),
            "most": max(one[name] for one in measured),
        }
        for name, value in measured[0].items()
    }
