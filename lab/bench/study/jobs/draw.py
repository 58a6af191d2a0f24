"""Draws mixes of jobs as TOML, sixteen from each seed, numbered from FIRST.

Run it in lab/bench:

    ../../.venv/bin/python -m study.jobs.draw SEED FIRST >> study/jobs/mixes.toml

The first 32 mixes there come from elsewhere. This program draws from the same values.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Final

COUNTS: Final = (2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 8, 8)
"""Number of jobs in each mix."""
MANY: Final = 8
"""Mixes with this many jobs use SIZES_OF_MANY."""
SIZES: Final = (0.5, 0.6, 0.75, 0.9, 1.0, 1.2, 1.5, 2.0)
SIZES_OF_MANY: Final = SIZES[:4]
TRACES: Final = 5
PATTERNS: Final = ("constant",) * 4 + ("pausing",) * 2 + ("bursting",) * 2 + ("growing",) * 2
ARRIVES_S: Final = (0,) * 7 + (20, 40, 60, 90)
LEAVES_S: Final = (0,) * 8 + (150, 200, 240)
"""0: the job never leaves."""
PRIORITIES: Final = (0,) * 6 + (-5, -5, 5)


def job(random_: random.Random, count: int) -> str:
    """Returns one job's table."""
    sizes = SIZES_OF_MANY if count == MANY else SIZES
    pattern = random_.choice(PATTERNS)
    words = [
        f"trace = {random_.randrange(TRACES)}",
        f"size = {random_.choice(sizes)}",
        f"compute = {random_.choice((0.25, 0.5, 1))}",
        f'pattern = "{pattern}"',
    ]
    if pattern in ("pausing", "bursting"):
        words.append(f"work_s = {random_.choice((5, 10, 20, 40))}")
        words.append(f"pause_s = {random_.choice((5, 10, 20, 40, 60))}")
    elif pattern == "growing":
        first, second = random_.randint(70, 120), random_.randint(150, 240)
        words.append(f"grows = [[{first}, 1.25], [{second}, {random_.choice((1.5, 2.0))}]]")
    for name, values in (
        ("arrives_s", ARRIVES_S),
        ("leaves_s", LEAVES_S),
        ("priority", PRIORITIES),
    ):
        if value := random_.choice(values):
            words.append(f"{name} = {value}")
    return "{ " + ", ".join(words) + " }"


def mixes(seed: int, first: int) -> Iterator[str]:
    """Yields sixteen mixes."""
    random_ = random.Random(seed)
    for number, count in enumerate(COUNTS, first):
        jobs = "".join(f"  {job(random_, count)},\n" for _ in range(count))
        yield f"\n[[mix]]\nseed = {number}\njobs = [\n{jobs}]\n"


if __name__ == "__main__":
    print(*mixes(int(sys.argv[1]), int(sys.argv[2])), sep="", end="")
