"""Makes the tables of docs/reference/configuration.md and `pump config example` from the schema."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

import msgspec

from pump.config.files import to_toml
from pump.config.schema import ADMINISTRATORS, ConfigFile

KINDS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "str | int": "amount",
    "list[str]": "list of strings",
    "list[str | int]": "list of numbers or strings",
    "dict[str, int]": "integers by name",
}


class Setting(NamedTuple):
    """One key of a table, for users. default, example: TOML, or a description."""

    table: str
    key: str
    kind: str
    description: str
    default: str
    example: str


def settings() -> Iterator[Setting]:
    """Yields every setting of every table, in the schema's order."""
    for name, hint in get_type_hints(ConfigFile, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            yield _setting(name, "", hint, {})
            continue
        defaults = hint()
        for key, annotated in get_type_hints(hint, include_extras=True).items():
            yield _setting(name, key, annotated, getattr(defaults, key))


def _setting(table: str, key: str, hint: Any, default: object) -> Setting:
    meta: msgspec.Meta = hint.__metadata__[0]
    assert meta.description and meta.examples and meta.extra
    words = meta.extra["without"]
    kind = hint.__origin__
    name = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    return Setting(
        table,
        key,
        KINDS[name],
        meta.description,
        words or ("none" if default in ("", [], {}) else f"`{to_toml(default)}`"),
        to_toml(meta.examples[0]),
    )


def tables() -> dict[str, str]:
    """Returns the description of each table, by its name."""
    hints = get_type_hints(ConfigFile, include_extras=True)
    return {
        name: hint.__metadata__[0].description
        if hasattr(hint, "__metadata__")
        else " ".join((inspect.getdoc(hint) or "").split())
        for name, hint in hints.items()
    }


def example(*, administrators: bool) -> str:
    """Returns a file with every setting commented out, below its description."""
    lines = []
    about = tables()
    for table, description in about.items():
        if (table in ADMINISTRATORS) != administrators:
            continue
        lines += [*_comment(description), f"[{table}]", ""]
        for setting in settings():
            if setting.table != table or not setting.key:
                continue
            default = setting.default.strip("`")
            lines += _comment(f"{setting.description} Default: {default}.")
            lines += [f"# {setting.key} = {setting.example}", ""]
        if table == "shares":
            lines += ["# alice = 4", '# "@students" = 1', ""]
    return "\n".join(lines)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 90)]


def markdown() -> str:
    """Returns the tables of docs/reference/configuration.md."""
    parts = []
    for table, description in tables().items():
        where = " Only in /etc/pump/config.toml." if table in ADMINISTRATORS else ""
        parts += [f"### [{table}]", "", description + where, ""]
        rows = [s for s in settings() if s.table == table and s.key]
        if not rows:
            (only,) = (s for s in settings() if s.table == table)
            parts += [f"Example: `{table} = {only.example}`", ""]
            continue
        parts += ["| key | kind | meaning | default | example |", "|---|---|---|---|---|"]
        parts += [
            f"| `{s.key}` | {s.kind} | {s.description} | {s.default} | `{s.example}` |"
            for s in rows
        ]
        parts.append("")
    return "\n".join(parts)
