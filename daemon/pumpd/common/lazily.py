"""Imports modules at their first use: a job's pumpd must start fast, because clients wait."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def module(name: str) -> ModuleType:
    """Returns the module `name`, whose code runs at the first access to one of its attributes.
    Raises ImportError."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module {name}", name=name)
    spec.loader = LazyLoader(spec.loader)
    found = sys.modules[name] = module_from_spec(spec)
    parent, _, own = name.rpartition(".")
    setattr(import_module(parent), own, found)
    spec.loader.exec_module(found)
    return found
