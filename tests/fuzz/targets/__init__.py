"""What is fuzzed of pump's Python: a module for each target.

`target(data)` takes any bytes and raises for what must not be; `seeds()` are sound inputs to
begin with. An input's first bytes may choose among decoders; the rest is what one is given.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Any:
    """The target of that name."""
    return importlib.import_module(f"{__name__}.{name}")


def one_line(error: Exception) -> None:
    """Bad input gets one line."""
    assert "\n" not in str(error) and len(str(error)) < 1000
