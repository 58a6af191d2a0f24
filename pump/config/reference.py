"""Makes the tables of docs/reference/configuration.md and `pump config example` from settings."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from pump.config.files import to_toml
from pump.config.schema import ADMINISTRATORS, CONFIG
from pump.config.settings import Setting, settings

KINDS = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "true or false",
    str | int: "amount",
    list[str]: "list of strings",
    list[str | int]: "list of numbers or strings",
    dict[str, int]: "integers by name",
}


class Entry(NamedTuple):
    """A setting, for users. key: "" for a table whose keys users choose. default, example: TOML, or
    a description."""

    table: str
    key: str
    kind: str
    description: str
    default: str
    example: str


def entries() -> Iterator[Entry]:
    """Yields every setting of every table, in the order of the tables."""
    for name, table in CONFIG.items():
        for key, row in settings(table).items():
            default = "none" if row.default in ("", [], {}) else f"`{to_toml(row.default)}`"
            without = row.without or default
            yield Entry(name, key, KINDS[row.kind], row.description, without, to_toml(row.example))


def tables() -> dict[str, str]:
    """Returns the description of each table, by its name: the first paragraph of its class."""
    return {
        name: table.description
        if isinstance(table, Setting)
        else " ".join((inspect.getdoc(table) or "").partition("\n\n")[0].split())
        for name, table in CONFIG.items()
    }


def example(*, administrators: bool) -> str:
    """Returns a file with every setting commented out, below its description."""
    lines = []
    about = tables()
    for table, description in about.items():
        if (table in ADMINISTRATORS) != administrators:
            continue
        lines += [*_comment(description), f"[{table}]", ""]
        for setting in entries():
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
        rows = [s for s in entries() if s.table == table and s.key]
        if not rows:
            (only,) = (s for s in entries() if s.table == table)
            parts += [f"Example: `{table} = {only.example}`", ""]
            continue
        parts += ["| key | kind | meaning | default | example |", "|---|---|---|---|---|"]
        parts += [
            f"| `{s.key}` | {s.kind} | {s.description} | {s.default} | `{s.example}` |"
            for s in rows
        ]
        parts.append("")
    return "\n".join(parts)
