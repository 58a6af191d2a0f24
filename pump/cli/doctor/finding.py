"""The result of a check of `pump doctor`.

A check never raises an exception: a failed examination is a finding, too.
"""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, PROBLEM = "ok", "warning", "problem"
REINSTALL = "pip install --force-reinstall pump-cuda"


class Finding(NamedTuple):
    """One line. name: of the checked thing. status: OK, WARNING or PROBLEM. remedy: "" for OK."""

    name: str
    status: str
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    """Returns a finding that needs no action."""
    return Finding(name, OK, text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """Returns a finding that may cost speed or memory, but does not stop jobs."""
    return Finding(name, WARNING, text, remedy)


def problem(name: str, text: str, remedy: str) -> Finding:
    """Returns a finding that keeps pump from working as promised."""
    return Finding(name, PROBLEM, text, remedy)
