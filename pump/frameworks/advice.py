"""Advice: what pump-run has to set and report for a framework. This module does no I/O."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """The needs of one framework, or of all frameworks together.

    `settings`: environment variables to set, with their values.
    `conflicts`: sentences; each names a conflict and the remedy.
    `notes`: sentences for the user that do not stop the job.
    `choices`: the choices of `auto`, a sentence for each framework that has a switch.
    """

    settings: dict[str, str] = {}  # noqa: RUF012  (never changed)
    conflicts: list[str] = []  # noqa: RUF012  (never changed)
    notes: list[str] = []  # noqa: RUF012  (never changed)
    choices: list[str] = []  # noqa: RUF012  (never changed)

    def plus(self, other: Advice) -> Advice:
        """Returns both combined. If both set a variable, the value of `other` counts."""
        return Advice(
            {**self.settings, **other.settings},
            [*self.conflicts, *other.conflicts],
            [*self.notes, *other.notes],
            [*self.choices, *other.choices],
        )


def is_true(text: str) -> bool:
    """Returns whether an environment variable with this text switches something on."""
    return text.strip().lower() in ("1", "true", "yes", "on")
