"""Questions by name, and the notes with which a child reports its answer."""

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

RECORD = "@@probe "  # prefix of our lines in a child's stdout


class Notes(dict[str, Any]):
    """A question's result. Every entry is also written at once, so that it survives a kill.

    `limit_s`: seconds from now that the question may take.
    """

    def __init__(self, limit_s: float = float("inf")) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._deadline = time.monotonic() + limit_s

    def left_s(self) -> float:
        """Returns the seconds left, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        emit({"note": key, "value": value})


def emit(record: Json) -> None:
    sys.stdout.write(RECORD + json.dumps(record) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Question:
    """A bounded question. `decides`: the design decision that depends on the answer.

    `environments`: variables added to the child's environment, by label. Each label gets its own
    child and its own result; all of them share `limit_s`.
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
    """Turns a function ask_<name> into the question <name>."""

    def made(run: Asker) -> Question:
        name = run.__name__.removeprefix("ask_")
        return Question(name, decides, limit_s, run, managed, "", environments or {})

    return made


def questions_of(*modules: ModuleType) -> Iterator[Question]:
    """Yields the questions of modules, in the order of their definitions."""
    for module in modules:
        yield from (value for value in vars(module).values() if isinstance(value, Question))
