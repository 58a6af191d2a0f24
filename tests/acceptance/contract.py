"""What a stage of the acceptance gets and gives: Machine and Context in, Items out.

A stage is a module `acceptance.stage_<name>` with NAME, LIMIT_S (seconds that its core part may
take), WHAT (one line for people) and `run(context) -> Iterator[Item]`. It yields an item as
soon as it has one: what was yielded is kept whatever becomes of the stage afterwards. It runs
in a process of its own, which is killed with all that it started when its time is over.
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
"""A figure with nothing to hold it against."""
UNAVAILABLE = "unavailable"
"""This machine cannot run it, `reason` says why: neither pass nor fail."""
STATUSES = (PASS, FAIL, INFO, UNAVAILABLE)
LATE = "no time left in this call, --resume goes on here"
"""The reason of an item that was not begun for want of time: --resume begins it."""

NO_MEMORY = "this machine has too little memory for it"
"""Begins the reason of an item that pump or the system refused memory to: no verdict on pump."""

CARD = "card"
VIRTUAL = "virtual"

MIB, GIB = 1 << 20, 1 << 30
MANAGED_MOST_BYTES = 4 * GIB
"""Hard rule of machines that are lent: a few GiB of managed memory at most."""
SPARE_SHARE = 0.1
"""Of the card's memory stays free: managed memory beyond what is free can hang a machine."""
HOST_SHARE = 0.5
"""Of the host's available memory that managed memory may take when all of it is evicted."""

Json = Any
"""What the json module can write."""


class RefusedError(Exception):
    """More managed memory was asked for than the machine may give; says how much is."""


@dataclass(frozen=True)
class Item:
    """One line of a stage's result.

    `name` is unique within the stage and the same from call to call ("gpt2.1_5x.window").
    `values` are figures with their units in the keys. `seconds` is set by the runner.
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
    """The item that there was no time for."""
    return Item(name, UNAVAILABLE, LATE)


@dataclass(frozen=True)
class Machine:
    """What is there. `kind`: CARD or VIRTUAL; `profile`: of the virtual GPU, else "".

    `runtime`: "bare metal", "vm" or "gvisor". `packages`: Python packages by the name they are
    installed under, with version. `tools`: nvcc, cmake, ninja, cc by name, with their path.
    Bytes are 0 and texts empty where nothing is known.
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
        """What every figure is labelled with."""
        if self.virtual:
            return f"virtual GPU {self.profile}, figures are a model's"
        return self.name or "unknown card"


@dataclass(frozen=True)
class Context:
    """What a stage is given. `core`: only the part that fits into nine minutes with all others.

    `root`: the checkout. `out`: results of this stage (logs, recordings). `work`: scratch, gone
    afterwards. `quick`: smallest sizes, to see that it works. `done`: names of items that an
    earlier call finished, to be left out. `deadline`: of time.monotonic() of this machine.
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
        """Seconds of this stage's time that are left; not below 0."""
        return max(0.0, self.deadline - time.monotonic())

    def most_bytes(self) -> int:
        """Managed memory that may be live at once: the --limit of what runs alone."""
        machine = self.machine
        return managed_most_bytes(
            machine.total_bytes, machine.free_bytes, machine.host_available_bytes
        )

    def managed(self, length_bytes: int) -> int:
        """`length_bytes`, if so much managed memory may be asked for. Before allocating.

        Raises RefusedError.
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
    """What a module of a stage has."""

    NAME: str
    LIMIT_S: float
    WHAT: str

    def run(self, context: Context) -> Iterator[Item]:
        """Yield items as they come."""
        ...


def managed_most_bytes(total_bytes: int, free_bytes: int, host_available_bytes: int) -> int:
    """Bytes of managed memory that may be live at once; 0 where too little is free."""
    spare = int(total_bytes * SPARE_SHARE)
    host = int(host_available_bytes * HOST_SHARE)
    return max(0, min(free_bytes - spare, host, MANAGED_MOST_BYTES))
