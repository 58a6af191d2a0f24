"""The cases on which mechanisms are measured: programs, sizes of memory, hosts, policies.

DESIGN
  `traces`      Training, replayed three times; nothing is discarded.
  `discards`    The same with dead memory discarded.
  `naive`       The same, paged only by the driver.
  `workloads`   Recordings of inference, LoRA and experts.
  `duplicated`  Programs that mostly read (study/sim_duplicates.py).
  `jobs`        Mixes of jobs on one GPU (study/jobs).

  On a server, three traces and all other programs run with 1 / 1.5, 1/2 and 1/4 of their peak
  memory; on other hosts with 1/2. The other traces differ from these three only in scale and take
  most of the time. They run with 1/2 on a server, for a change with `ten`. A change that is not
  `whole` is measured only on a server, and with discards only if these are its only cases.
  --whole: all cases on all hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from evidence.mechanisms import Change
from suites import sim

HOSTS: Final = ("desktop", "server", "vm")
"""Hosts of lab/pump_lab/hosts.toml."""
SERVER: Final = "server"
RATIOS: Final = (1.5, 2.0, 4.0)
TWICE: Final = 2.0
POLICIES: Final = ("window", "planned")
SMALL: Final = ("BERT_Base_b128", "ResNet152_b256", "VIT_b256")
"""The smallest trace of each family."""
WORKLOADS: Final = ("inference", "lora", "experts")
DUPLICATED: Final = ("decoder", "stack", "made_lora", "read_inference", "read_lora")
MIXES: Final = tuple(str(number) for number in range(1, 17))
"""Seeds of mixes in study/jobs/mixes.toml."""
MIX: Final = "mix_"


class Case(NamedTuple):
    """A program on a machine. `ratio`: its peak memory / the GPU's memory; unused for a mix."""

    group: str
    program: str
    ratio: float
    host: str
    policy: str

    def text(self) -> str:
        """Returns the name of the case in a table."""
        if self.group == "jobs":
            return f"{self.program}, {self.host}"
        more = "+discard" if self.group == "discards" else ""
        return f"{self.program} {self.ratio:g}x, {self.policy}{more}, {self.host}"


def traces() -> list[str]:
    """Returns the names of the ten traces."""
    return sorted(file.name.split("_marginal")[0] for file in (sim.DATA / "ten").glob("*.json.*"))


def of(change: Change, *, whole: bool, quick: bool = False) -> Iterator[Case]:
    """Yields the cases on which a change is measured. `quick`: only one, for tests."""
    found = (case for group in change.cases for case in _of_group(group, change, whole=whole))
    for number, case in enumerate(found):
        if quick and number > 0:
            return
        yield case


def _of_group(group: str, change: Change, *, whole: bool) -> Iterator[Case]:
    hosts = list(HOSTS) if whole or change.whole else [SERVER]
    if group == "jobs":
        for number in MIXES:  # the stored curves are a server's
            yield Case(group, MIX + number, 0.0, SERVER, "planned")
        return
    programs = {"workloads": WORKLOADS, "duplicated": DUPLICATED}.get(group, SMALL)
    if group == "discards" and not whole and not change.only(group):
        hosts = [SERVER] if change.whole else []
    for host, program, ratio, policy in product(hosts, programs, RATIOS, _policies(group, change)):
        if whole or host == SERVER or ratio == TWICE:
            yield Case(group, program, ratio, host, policy)
    if group == "traces" and (whole or change.ten):
        yield from _others(change, whole=whole)


def _others(change: Change, *, whole: bool) -> Iterator[Case]:
    hosts, ratios = (HOSTS, RATIOS) if whole else ([SERVER], (TWICE,))
    others = [name for name in traces() if name not in SMALL]
    for case in product(others, ratios, hosts, _policies("traces", change)):
        yield Case("traces", *case)


def _policies(group: str, change: Change) -> list[str]:
    if group == "naive":
        return ["naive"]
    replaced = change.settings.policies
    return [one for one in POLICIES if not replaced or one in replaced]
