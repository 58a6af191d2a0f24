"""Placement by learned lifetimes, against exhaustive search, and lifetimes from recordings."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from harness import Tools
from study.papers import placement
from study.papers.placement import Item

LINES = """\
A 7f00 4096
B 7f00 1024
I 0
B 7f10 2048
B 7f20 512
B 7f10 -2048
I 1
B 7f20 -512
B 7f30 1000
B 7f40 512
B 7f30 -1000
I 2
""".splitlines()


def test_lifetimes_are_those_of_the_last_whole_iteration() -> None:
    found = placement.traffic(LINES)
    assert found.reserved_bytes == 4096
    assert found.peak_bytes() == 1024 + 2048 + 512
    # Weights live throughout. The tensor that lives across the border is freed and allocated again,
    # and is one item.
    items = sorted(placement.last_iteration(found), key=lambda one: (one.length_bytes, one.lives))
    begin, end = found.marks[-2:]
    assert items == [
        Item(512, ((begin, begin), (begin + 2, end))),
        Item(1024, ((begin, end),)),
        Item(1024, ((begin + 1, begin + 3),)),
    ]


def test_traffic_without_blocks_is_that_of_the_driver() -> None:
    found = placement.traffic(["I 0", "A 7f00 512", "F 7f00", "A 7f00 512", "A 7f00 700", "I 1"])
    assert found.requests == [(0, 512), (0, 0), (2, 512), (2, 0), (4, 700)]
    assert found.reserved_bytes == 0


def test_an_allocation_lies_in_the_smallest_gap_that_suffices() -> None:
    taken = [(4, 2), (9, 1), (10, 2), (20, 1)]
    assert placement.best_offset(taken, 3) == 6
    assert placement.best_offset(taken, 4) == 0
    assert placement.best_offset(taken, 8) == 12
    assert placement.best_offset(taken, 9) == 21
    assert placement.best_offset([(0, 8), (2, 2), (9, 1)], 1) == 8


def made_up(seed: int) -> list[Item]:
    random = np.random.default_rng(seed)
    items = []
    for _ in range(int(random.integers(3, 7))):
        first, end = sorted(random.choice(8, 2, replace=False).tolist())
        items.append(Item(int(random.integers(1, 6)), ((first, end),)))
    return items


def least_height(items: list[Item]) -> int:
    """Returns the exact optimum: the best of all orders, with each item as low as it can go."""
    return min(low(order) for order in permutations(items))


def low(order: tuple[Item, ...]) -> int:
    offsets: list[int] = []
    for item in order:
        end = 0
        taken = sorted(
            (offset, other.length_bytes)
            for offset, other in zip(offsets, order, strict=False)
            if other.meets(item)
        )
        for offset, length in taken:
            if offset - end >= item.length_bytes:
                break
            end = max(end, offset + length)
        offsets.append(end)
    return placement.height(order, offsets)


def test_placement_is_valid_and_close_to_the_exact_optimum() -> None:
    heights, optima = [], []
    for seed in range(30):
        items = made_up(seed)
        offsets = placement.placed(items)
        for i, one in enumerate(items):
            for j, other in enumerate(items[:i]):
                apart = (
                    offsets[i] + one.length_bytes <= offsets[j]
                    or offsets[j] + other.length_bytes <= offsets[i]
                )
                assert apart or not one.meets(other)
        heights.append(placement.height(items, offsets))
        optima.append(least_height(items))
        assert placement.load(items) <= optima[-1] <= heights[-1]
    assert sum(heights) <= 1.03 * sum(optima)
    assert sum(height == best for height, best in zip(heights, optima, strict=True)) >= 24


@pytest.mark.parametrize("name", ["mlp", "res18"])
def test_recorded_training_fits_into_little_more_than_it_requests(name: str) -> None:
    found = placement.recorded(placement.TRAFFIC / f"{name}.txt.xz")
    items = placement.last_iteration(found)
    assert placement.height(items, placement.placed(items)) <= 1.02 * placement.load(items)
    assert placement.load(items) <= 1.001 * found.peak_bytes()
    assert found.peak_bytes() < placement.best_fit(found) < found.reserved_bytes
    pool = placement.pool_bytes(found, Tools())
    assert found.peak_bytes() < pool.placed < found.reserved_bytes
    assert found.reserved_bytes < pool.most < 1.05 * found.reserved_bytes
