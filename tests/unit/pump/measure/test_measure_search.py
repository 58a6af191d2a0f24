"""The search of pump fit, against every possible answer."""

from __future__ import annotations

import pytest

from pump.measure.search import Search


def searched(least: int, most: int, step: int, last: int) -> tuple[Search, list[int]]:
    """Runs a search in which all numbers up to `last` fit; returns it and the tried numbers."""
    search, asked = Search(least, most, step), []
    while (number := search.next()) is not None:
        asked.append(number)
        search.report(number, number <= last)
    return search, asked


@pytest.mark.parametrize(("least", "most", "step"), [(1, 40, 1), (8, 90, 8), (5, 50, 7), (3, 4, 1)])
def test_it_finds_the_largest_number_that_fits_whichever_it_is(
    least: int, most: int, step: int
) -> None:
    numbers = range(least, most + 1, step)
    for last in numbers:
        search, asked = searched(least, most, step, last)
        assert search.fits == last
        assert search.fails == (last + step if last + step <= most else None)
        assert len(set(asked)) == len(asked)
        assert set(asked) <= set(numbers) - {least}


def test_it_asks_few_questions_of_many_numbers() -> None:
    for last in (1, 1000, 65_535, 1 << 20):
        _, asked = searched(1, 1 << 20, 1, last)
        assert len(asked) <= 2 * 20
