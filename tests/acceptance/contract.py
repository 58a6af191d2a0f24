"""The interface of an acceptance stage: it gets a Machine and a Context, and yields Items.

A stage is a module `acceptance.stage_<name>` with NAME, LIMIT_S (seconds that its core part may
take), WHAT (one line for users) and `run(context) -> Iterator[Item]`. It yields each item as soon
as possible: yielded items are kept even if the stage fails later. Each stage runs in its own
process. When its time is over, that process and everything that it started are killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

PASS = "pass"
FAIL = "fail"
INFO = "info"
"""A number that is not compared with anything."""
UNAVAILABLE = "unavailable"
"""This machine cannot run the item, for the reason in `reason`: neither pass nor fail."""
STATUSES = (PASS, FAIL, INFO, UNAVAILABLE)
LATE = "no time left in this call, --resume goes on here"
"""The reason of an item that was not started because time ran out; --resume starts it."""

NO_MEMORY = "this machine has too little memory for it"
"""Prefix of the reason if pump or the system refused the item memory: no verdict on pump."""

CARD = "card"
VIRTUAL = "virtual"

MIB, GIB = 1 << 20, 1 << 30
MANAGED_MOST_BYTES = 4 * GIB
"""Hard rule for lent machines: at most a few GiB of managed memory."""
SPARE_SHARE = 0.1
"""Share of the GPU's memory left free: managed memory beyond free memory can hang a machine."""
HOST_SHARE = 0.5
"""Share of the host's available memory that fully evicted managed memory may take."""

Json = Any
"""Any value that the json module can write."""


class RefusedError(Exception):
    """A stage requested more managed memory than the machine allows; the text gives the maximum."""


@dataclass(frozen=True)
class Item:
    """One line of a stage's result.

    `name` is unique within the stage and the same in every call ("gpt2.1_5x.window"). `values` are
    numbers with their units in the keys. The runner sets `seconds`.
    """

    name: str
    status: str
    reason: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.name}: status '{self.status}' is none of {STATUSES}")
        if not self.name or not isinstance(self.name, str):
            raise ValueError("an item needs a name")

    def as_json(self) -> dict[str, Json]:
        return {**asdict(self), "values": dict(self.values), "seconds": round(self.seconds, 3)}


def late(name: str) -> Item:
    """Returns the item for which there was no time."""
    return Item(name, UNAVAILABLE, LATE)


@dataclass(frozen=True)
class Machine:
    """Description of the machine. `kind`: CARD or VIRTUAL. `profile`: the virtual GPU's, else "".

    `runtime`: "bare metal", "vm" or "gvisor". `packages`: versions of installed Python packages, by
    distribution name. `tools`: paths of nvcc, cmake, ninja, make and cc, by name. Unknown bytes are
    0 and unknown texts are empty.
    """

    kind: str
    profile: str = ""
    name: str = ""
    uuid: str = ""
    driver: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    host_available_bytes: int = 0
    runtime: str = ""
    host: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def virtual(self) -> bool:
        return self.kind == VIRTUAL

    @property
    def has_nvcc(self) -> bool:
        return "nvcc" in self.tools

    @property
    def label(self) -> str:
        """Returns the label of every number measured here."""
        if self.virtual:
            return f"virtual GPU {self.profile}, figures are a model's"
        return self.name or "unknown card"


@dataclass(frozen=True)
class Context:
    """Input of a stage. `core`: run only the part that, with all stages, fits into nine minutes.

    `root`: the checkout. `out`: results of this stage (logs, recordings). `work`: scratch folder,
    deleted afterwards. `quick`: smallest sizes, for a functional check. `done`: names of items that
    an earlier call finished; they are skipped. `deadline`: in time.monotonic() of this machine.
    `lacks`: why nothing can run under pump here, "" if it can.
    """

    root: Path
    out: Path
    work: Path
    machine: Machine
    core: bool = True
    quick: bool = False
    done: frozenset[str] = frozenset()
    deadline: float = float("inf")
    lacks: str = ""

    def left_s(self) -> float:
        """Returns the seconds left for this stage, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def most_bytes(self) -> int:
        """Returns how much managed memory may be live at once: the --limit of a single job."""
        machine = self.machine
        return managed_most_bytes(
            machine.total_bytes, machine.free_bytes, machine.host_available_bytes
        )

    def managed(self, length_bytes: int) -> int:
        """Returns `length_bytes` if that much managed memory may be live; call before allocating.

        Raises RefusedError if `length_bytes` exceeds the limit.
        """
        machine, most = self.machine, self.most_bytes()
        if length_bytes > most:
            raise RefusedError(
                f"{length_bytes >> 20} MiB of managed memory asked for, {most >> 20} MiB may be: "
                f"{machine.free_bytes >> 20} MiB are free on the card, "
                f"{machine.host_available_bytes >> 20} MiB on the host"
            )
        return length_bytes


class Stage(Protocol):
    """Members of a stage's module."""

    NAME: str
    LIMIT_S: float
    WHAT: str

    def run(self, context: Context) -> Iterator[Item]:
        """Yields items as they become available."""
        ...


def managed_most_bytes(total_bytes: int, free_bytes: int, host_available_bytes: int) -> int:
    """Returns how many bytes of managed memory may be live at once; 0 if too little is free."""
    spare = int(total_bytes * SPARE_SHARE)
    host = int(host_available_bytes * HOST_SHARE)
    return max(0, min(free_bytes - spare, host, MANAGED_MOST_BYTES))
