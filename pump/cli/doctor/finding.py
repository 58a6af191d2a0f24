"""The result of a check of `pump doctor`.

A check never raises: what it could not examine is a finding, too.
"""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, PROBLEM = "ok", "warning", "problem"
REINSTALL = "pip install --force-reinstall pump-cuda"


class Finding(NamedTuple):
    """One line. name: what was checked. status: OK, WARNING or PROBLEM. remedy: "" for OK."""

    name: str
    status: str
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    """A finding that asks for nothing."""
    return Finding(name, OK, text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """A finding that may cost speed or memory; jobs run."""
    return Finding(name, WARNING, text, remedy)


def problem(name: str, text: str, remedy: str) -> Finding:
    """A finding with which jobs do not get what pump promises."""
    return Finding(name, PROBLEM, text, remedy)
