"""The fuzzed parts of pump's Python: a module for each target.

`target(data)` takes any bytes and raises an error for wrong behavior; `seeds()` returns sound first
inputs. The first bytes of an input may select a decoder, which gets the rest.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Any:
    """Returns the target of that name."""
    return importlib.import_module(f"{__name__}.{name}")


def one_line(error: Exception) -> None:
    """Checks that the error of a bad input has one line."""
    assert "\n" not in str(error) and len(str(error)) < 1000
