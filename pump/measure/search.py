"""Finds the largest number that fits, with a bounded number of trials. Pure.

The numbers are least, least + step, and so on. The search doubles the number until one does not
fit, then halves the gap. The result is right if all numbers below a fitting number fit, too.
"""

from __future__ import annotations


class Search:
    """A search from `least`, which fits, to `most`. fits: the largest number known to fit. fails:
    the smallest number known not to fit, None for none."""

    def __init__(self, least: int, most: int, step: int) -> None:
        self.fits = least
        self.fails: int | None = None
        self._least, self._step = least, step
        self._most = least + (most - least) // step * step

    def next(self) -> int | None:
        """Returns the number to try; None when the result is as exact as the steps allow."""
        if self.fails is None:
            number = min(self._stepped(max(2 * self.fits, self.fits + self._step)), self._most)
        else:
            number = self._stepped((self.fits + self.fails) // 2)
            if number == self.fits:  # rounded down to `fits`
                number += self._step
        done = number <= self.fits or (self.fails is not None and number >= self.fails)
        return None if done else number

    def report(self, number: int, fits: bool) -> None:
        """Records whether a number that `next` returned fits."""
        if fits:
            self.fits = number
        else:
            self.fails = number

    def _stepped(self, number: int) -> int:
        return self._least + (number - self._least) // self._step * self._step
