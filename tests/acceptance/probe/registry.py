"""Questions by name, and the notes by which a child tells its answer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from probe.figures import Json
from probe.gpu import Gpu

RECORD = "@@probe "  # lines of a child's stdout that are ours


class Notes(dict[str, Any]):
    """A question's result; every entry is also written out at once, for the watchdog's sake.

    `limit_s`: seconds from now that the question may take.
    """

    def __init__(self, limit_s: float = float("inf")) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._deadline = time.monotonic() + limit_s

    def left_s(self) -> float:
        """Seconds that are left; not below 0."""
        return max(0.0, self._deadline - time.monotonic())

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        emit({"note": key, "value": value})


def emit(record: Json) -> None:
    sys.stdout.write(RECORD + json.dumps(record) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Question:
    """One bounded question. `decides`: what in the design hangs on the answer.

    `environments`: by label, what the child's environment has in addition. One child each, and
    the result has one under each label; they share `limit_s`.
    """

    name: str
    decides: str
    limit_s: float
    run: Callable[[Gpu, Notes], None]
    managed: bool  # needs concurrently accessible managed memory
    not_asked: str = ""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


Asker = Callable[[Gpu, Notes], None]


def question(
    limit_s: float,
    decides: str,
    managed: bool = True,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> Callable[[Asker], Question]:
    """Makes a function ask_<name> the question <name>."""

    def made(run: Asker) -> Question:
        name = run.__name__.removeprefix("ask_")
        return Question(name, decides, limit_s, run, managed, "", environments or {})

    return made


def questions_of(*modules: ModuleType) -> Iterator[Question]:
    """The questions of modules, in the order of their definitions."""
    for module in modules:
        yield from (value for value in vars(module).values() if isinstance(value, Question))
