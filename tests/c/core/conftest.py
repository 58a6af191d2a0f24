"""For the fuzz tests of this folder: the first sanitizer report ends the program."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _every_report_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
