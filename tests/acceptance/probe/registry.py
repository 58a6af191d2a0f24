"""Questions by name, and the notes by which a child tells its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from probe.figures import Json
from probe.gpu import Gpu

RECORD = "@@probe "  # lines of a child's stdout that are ours


class Notes(dict[str, Any]):
    """A question's result; every entry is also written out at once, for the watchdog's sake."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        emit({"note": key, "value": value})


def emit(record: Json) -> None:
    sys.stdout.write(RECORD + json.dumps(record) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Question:
    """One bounded question. `decides`: what in the design hangs on the answer."""

    name: str
    decides: str
    limit_s: float
    run: Callable[[Gpu, Notes], None]
    managed: bool  # needs concurrently accessible managed memory
    not_asked: str = ""


Asker = Callable[[Gpu, Notes], None]


def question(limit_s: float, decides: str, managed: bool = True) -> Callable[[Asker], Question]:
    """Makes a function ask_<name> the question <name>."""

    def made(run: Asker) -> Question:
        return Question(run.__name__.removeprefix("ask_"), decides, limit_s, run, managed)

    return made


def questions_of(*modules: ModuleType) -> Iterator[Question]:
    """The questions of modules, in the order of their definitions."""
    for module in modules:
        yield from (value for value in vars(module).values() if isinstance(value, Question))
