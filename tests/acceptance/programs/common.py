"""What the small programs of the acceptance share: their arithmetic, and how they tell.

Every program keeps ARRAYS arrays of COUNT 32-bit integers on the GPU and does, ROUNDS times,
array = array * MULTIPLIER + ADDEND to each of them, wrapping around. Integers, so that every
framework must give the same bits, and numpy knows them too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

ARRAYS = 4
COUNT = 8 << 20
ROUNDS = 6
MULTIPLIER, ADDEND = 3, 7
FOOTPRINT_BYTES = ARRAYS * COUNT * 4


def rounds() -> int:
    """ROUNDS, or what the environment says: operations are counted by differences."""
    return int(os.environ.get("ACCEPTANCE_ROUNDS", str(ROUNDS)))


def start(number: int) -> Any:
    """The host's values of one array."""
    import numpy as np

    return np.arange(number, COUNT + number, dtype=np.int32)


def expected(times: int) -> str:
    """Hash of what all arrays hold at the end, by numpy."""
    return sha256(_by_numpy(number, times) for number in range(ARRAYS))


def _by_numpy(number: int, times: int) -> Any:
    import numpy as np

    values = start(number)
    for _ in range(times):
        values = values * np.int32(MULTIPLIER) + np.int32(ADDEND)
    return values


def sha256(arrays: Iterable[Any]) -> str:
    """Hash of numpy arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(memoryview(array).cast("B"))
    return digest.hexdigest()


def tell(found: str, **more: Any) -> None:
    """Prints the result as the last line."""
    print(json.dumps({"sha256": found, "right": found == expected(rounds()), **more}), flush=True)
