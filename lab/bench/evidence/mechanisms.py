"""The mechanisms of mechanisms.toml, what each of their changes does, and their lines of code.

A change is applied on top of the base. It replaces text of C sources in a copy (variants.py), or
sets values of the simulator in the simulating process (simulate.py). Pump itself has no switch for
any mechanism.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness import ROOT

FILE: Final = Path(__file__).with_name("mechanisms.toml")
GAIN, INVARIANT, NOT_MODELLED = "gain", "invariant", "not modelled"
CLASSES: Final = (GAIN, INVARIANT, NOT_MODELLED)
OF_CHANGE: Final = {"name", "cases", "base", "whole", "ten"}
"""Keys of a change that are not settings."""
CASES: Final = ("traces", "workloads")
"""Groups of cases for a mechanism that names none (cases.py)."""


class TableError(ValueError):
    """The table does not match the code; the text names the place and the fault."""


@dataclass(frozen=True)
class Edit:
    """Text that occurs once in a source file, and its replacement."""

    file: str
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Returns the text of the file with the replacement. Raises TableError."""
        if text.count(self.before) != 1:
            found = text.count(self.before)
            raise TableError(f"{self.file} has {found} times instead of once: {self.before!r}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Settings:
    """Differences from pump's defaults.

    `edits`: replacements in C sources. `profile`: keys of the device profile. `machine`: fields of
    pump_lab's Machine, and `taken_percent`, the share of the memory that others use. `bounds`:
    constants of pump/model/bounds.py. `share_free`: SHARE_FREE of pump_lab/sim/deaths.py.
    `discard`: false copies dead memory. `policies`: the replacement of each policy; others are left
    out. `sharing`: options of several jobs (simulate.py).
    """

    edits: tuple[Edit, ...] = ()
    profile: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    share_free: int | None = None
    discard: bool = True
    policies: Mapping[str, str] = field(default_factory=dict)
    sharing: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns the settings for the process that simulates."""
        return {
            "profile": dict(self.profile),
            "machine": dict(self.machine),
            "bounds": dict(self.bounds),
            "share_free": self.share_free,
            "discard": self.discard,
            "policies": dict(self.policies),
            "sharing": dict(self.sharing),
        }


@dataclass(frozen=True)
class Change:
    """A mechanism switched off, or with another constant. `whole`: measured on all hosts instead of
    only a server. `ten`: measured with all ten traces."""

    name: str
    cases: tuple[str, ...]
    base: Settings
    settings: Settings
    whole: bool
    ten: bool

    def only(self, group: str) -> bool:
        """Returns whether `group` is its only group of cases."""
        return self.cases == (group,)


@dataclass(frozen=True)
class Mechanism:
    """A row of the table. `proof`: tests (INVARIANT) or questions of the probe (NOT_MODELLED)."""

    name: str
    decisions: tuple[str, ...]
    what: str
    kind: str
    proof: tuple[str, ...]
    code: tuple[str, ...]
    changes: tuple[Change, ...]

    def lines(self) -> int:
        """Returns the number of lines of code of the mechanism. Raises TableError."""
        return sum(count(place) for place in self.code)


def table() -> tuple[list[Mechanism], dict[str, str]]:
    """Returns the mechanisms, and why other decisions have none. Raises TableError."""
    raw = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return [_mechanism(one) for one in raw["mechanism"]], raw["without"]


def _mechanism(raw: dict[str, Any]) -> Mechanism:
    name, base = raw["name"], raw.get("base", {})
    cases = tuple(raw.get("cases", CASES))
    if raw["class"] not in CLASSES:
        raise TableError(f"{name}: the class is one of {', '.join(CLASSES)}")
    changes = []
    for number, one in enumerate(raw.get("change", ())):
        under = {**base, **one.get("base", {})}
        own = {key: value for key, value in one.items() if key not in OF_CHANGE}
        changes.append(
            Change(
                one["name"],
                tuple(one.get("cases", cases)),
                _settings(under),
                _settings({**under, **own}),
                one.get("whole", number == 0),
                one.get("ten", False),
            )
        )
    return Mechanism(
        name,
        tuple(raw["decisions"]),
        raw["what"],
        raw["class"],
        tuple(raw.get("proof", ())),
        tuple(raw["code"]),
        tuple(changes),
    )


def _settings(raw: dict[str, Any]) -> Settings:
    edits = tuple(Edit(**one) for one in raw.get("edits", ()))
    return Settings(**{**raw, "edits": edits})


# ---- lines of code -------------------------------------------------------------------


def count(place: str) -> int:
    """Returns the number of lines of code of a place: FILE, a pattern of files, or FILE:NAME for a
    function, class or macro in it. Blank lines and comments do not count. Raises TableError."""
    pattern, _, name = place.partition(":")
    files = sorted(ROOT.glob(pattern))
    if not files:
        raise TableError(f"there is no {pattern}")
    return sum(_count(file, name) for file in files)


def _count(file: Path, name: str) -> int:
    text = file.read_text(encoding="utf-8")
    lines = list(_of_python(text) if file.suffix == ".py" else _of_c(text))
    if name:
        first, last = (_span_python if file.suffix == ".py" else _span_c)(text, name)
        lines = [line for line in lines if first <= line <= last]
    if not lines:
        raise TableError(f"{file.name} has no {name}")
    return len(lines)


def _of_c(text: str) -> Iterator[int]:
    code = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(code.splitlines(), 1):
        if line.partition("//")[0].strip():
            yield number


def _span_c(text: str, name: str) -> tuple[int, int]:
    """Returns the first and last line of a function or macro; (1, 0) if there is none."""
    lines = text.splitlines()
    heads = re.compile(rf"(?!\s|typedef|/)[^;=]*\b{name}\(|#define {name}\b")
    for first, line in enumerate(lines, 1):
        if not heads.match(line):
            continue
        if line.startswith("#"):
            return first, first
        for last in range(first, len(lines) + 1):
            if lines[last - 1].endswith(";") and lines[last - 1][0] != " ":
                break  # a declaration
            if lines[last - 1] == "}":
                return first, last
    return 1, 0


def _of_python(text: str) -> Iterator[int]:
    docs = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        if number not in docs and line.partition("#")[0].strip():
            yield number


def _span_python(text: str, name: str) -> tuple[int, int]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node.lineno, node.end_lineno or 0
    return 1, 0
