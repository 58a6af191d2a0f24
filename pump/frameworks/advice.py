"""The form in which a framework's file answers. No I/O."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """settings: environment variables to set, with their values.
    conflicts: sentences, each naming what stands against it and the remedy.
    notes: sentences for the user that stop nothing.
    choices: how `auto` has chosen, a sentence for each framework that has a switch.
    """

    settings: dict[str, str] = {}  # noqa: RUF012  (never changed)
    conflicts: list[str] = []  # noqa: RUF012  (never changed)
    notes: list[str] = []  # noqa: RUF012  (never changed)
    choices: list[str] = []  # noqa: RUF012  (never changed)

    def plus(self, other: Advice) -> Advice:
        return Advice(
            {**self.settings, **other.settings},
            [*self.conflicts, *other.conflicts],
            [*self.notes, *other.notes],
            [*self.choices, *other.choices],
        )


def is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
