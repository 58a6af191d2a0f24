"""Common code of the acceptance's small programs: their arithmetic and how they report.

Every program keeps ARRAYS arrays of COUNT 32-bit integers on the GPU. In each of ROUNDS rounds it
computes array = array * MULTIPLIER + ADDEND for each array, with wrap-around. With integers every
framework must give the same bits, and numpy can check the result.
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
    """Returns ROUNDS or the environment's value, because operations are counted by differences."""
    return int(os.environ.get("ACCEPTANCE_ROUNDS", str(ROUNDS)))


def start(number: int) -> Any:
    """Returns the initial values of one array on the host."""
    import numpy as np

    return np.arange(number, COUNT + number, dtype=np.int32)


def expected(times: int) -> str:
    """Computes the hash of the final arrays with numpy."""
    return sha256(_by_numpy(number, times) for number in range(ARRAYS))


def _by_numpy(number: int, times: int) -> Any:
    import numpy as np

    values = start(number)
    for _ in range(times):
        values = values * np.int32(MULTIPLIER) + np.int32(ADDEND)
    return values


def sha256(arrays: Iterable[Any]) -> str:
    """Returns the hash of numpy arrays, in order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(memoryview(array).cast("B"))
    return digest.hexdigest()


def tell(found: str, **more: Any) -> None:
    """Prints the result as the last line."""
    print(json.dumps({"sha256": found, "right": found == expected(rounds()), **more}), flush=True)
