"""What a check of `pump doctor` has found out.

A check never raises: what it could not find out is a finding too.
"""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, PROBLEM = "ok", "warning", "problem"


class Finding(NamedTuple):
    """One line: what was looked at, how it is, and what to do about it ("" where all is well)."""

    name: str
    status: str
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    return Finding(name, OK, text)


def warning(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, WARNING, text, remedy)


def problem(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, PROBLEM, text, remedy)
