"""Makes docs/reference/python.md, the reference of the Python interface, from its docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import pump.control
import pump.service

MODULES = (pump.control, pump.service)
"""The modules that releases keep stable (docs/releases.md)."""
HEAD = """<!-- made by docs/made/make_docs.py from docstrings -->
# Python

Two modules are the Python interface that releases keep stable (`docs/releases.md`). All other
modules may change. `docs/guides/steering.md` explains how a program controls its own job.
"""


def page() -> str:
    """Returns the whole page."""
    return "\n".join([HEAD, *(_module(module) for module in MODULES)]).rstrip("\n") + "\n"


def _module(module: ModuleType) -> str:
    parts = [f"## `{module.__name__}`\n", _prose(inspect.getdoc(module)), ""]
    parts += [_class(getattr(module, name)) for name in module.__all__]  # type: ignore[attr-defined]
    return "\n".join(parts)


def _class(kind: type) -> str:
    parts = [f"### `{kind.__name__}`\n", _prose(inspect.getdoc(kind)), ""]
    names = _fields(kind)
    if names:
        parts += [f"Fields: {', '.join(f'`{name}`' for name in names)}.", ""]
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            parts += [f"#### `{kind.__name__}.{name}{_call(function)}`\n"]
            parts += [_prose(inspect.getdoc(function)), ""]
    return "\n".join(parts)


def _fields(kind: type) -> list[str]:
    if is_dataclass(kind):
        return [one.name for one in fields(kind)]
    return list(getattr(kind, "__struct_fields__", ()))


def _call(function: Any) -> str:
    """Returns its parameters without self and cls. Some versions of Python quote annotations."""
    signature = inspect.signature(function)
    own = [one for name, one in signature.parameters.items() if name not in {"self", "cls"}]
    return str(signature.replace(parameters=own)).replace("'", "")


def _prose(text: str | None) -> str:
    """Converts a docstring to Markdown: its indented parts become blocks of Python."""
    parts = re.split(r"\n\n(?=    )", text or "")
    found = [parts[0]]
    for part in parts[1:]:
        code, _, rest = part.partition("\n\n")
        found.append(f"```python\n{textwrap.dedent(code)}\n```" + (f"\n\n{rest}" if rest else ""))
    return "\n\n".join(found)
