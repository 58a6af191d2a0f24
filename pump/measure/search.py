"""Searches the largest number that fits, with a bounded number of questions. Pure.

The numbers are least, least + step, and so on. It doubles until a number does not fit, then halves
the gap: so the answer is right where every number below one that fits fits too.
"""

from __future__ import annotations


class Search:
    """least fits already. fits: the largest number known to fit. fails: the smallest known not
    to, None for none. Numbers above `most` are never asked for."""

    def __init__(self, least: int, most: int, step: int) -> None:
        self.fits = least
        self.fails: int | None = None
        self._least, self._step = least, step
        self._most = least + (most - least) // step * step

    def next(self) -> int | None:
        """The number to try; None where the answer is known as well as steps allow."""
        if self.fails is None:
            number = min(self._stepped(max(2 * self.fits, self.fits + self._step)), self._most)
        else:
            number = self._stepped((self.fits + self.fails) // 2)
            if number == self.fits:  # the middle of a gap of one and a half steps
                number += self._step
        done = number <= self.fits or (self.fails is not None and number >= self.fails)
        return None if done else number

    def tell(self, number: int, fits: bool) -> None:
        """The answer for a number that `next` gave."""
        if fits:
            self.fits = number
        else:
            self.fails = number

    def _stepped(self, number: int) -> int:
        return self._least + (number - self._least) // self._step * self._step
