"""The result of a framework's checks. No I/O."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """What one framework, or all of them together, need.

    settings: environment variables to set, with their values.
    conflicts: sentences, each naming a conflict and the remedy.
    notes: sentences for the user that stop nothing.
    choices: how `auto` has chosen, a sentence for each framework that has a switch.
    """

    settings: dict[str, str] = {}  # noqa: RUF012  (never changed)
    conflicts: list[str] = []  # noqa: RUF012  (never changed)
    notes: list[str] = []  # noqa: RUF012  (never changed)
    choices: list[str] = []  # noqa: RUF012  (never changed)

    def plus(self, other: Advice) -> Advice:
        """Both together; where both set a variable, `other` counts."""
        return Advice(
            {**self.settings, **other.settings},
            [*self.conflicts, *other.conflicts],
            [*self.notes, *other.notes],
            [*self.choices, *other.choices],
        )


def is_true(text: str) -> bool:
    """Whether an environment variable of this text switches something on."""
    return text.strip().lower() in ("1", "true", "yes", "on")
