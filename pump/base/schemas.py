"""Formats the JSON that pump prints and writes for other programs. The first key, "schema", names
the format and its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

VERSIONS = {
    "compare": 1,
    "doctor": 1,
    "fit": 1,
    "jobs": 1,
    "report": 1,
    "simulate": 1,
    "top": 1,
    "trace": 1,
}
"""Versions by schema name. A version grows when a key is removed or changes its meaning. The
version of PUMP_SUMMARY is in shim/life/summary_file.c."""


def dump(name: str, found: Mapping[str, Any], indent: int | None = 1) -> str:
    """Returns `found` as JSON of the schema `name`. indent: None for one line."""
    return json.dumps({"schema": f"pump.{name}/{VERSIONS[name]}", **found}, indent=indent)
