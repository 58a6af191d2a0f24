"""numba-cuda: a kernel compiled from Python, arrays allocated one by one."""

from __future__ import annotations

import common
import numpy as np
from numba import cuda

THREADS = 256
MULTIPLIER, ADDEND = np.int32(common.MULTIPLIER), np.int32(common.ADDEND)


@cuda.jit
def mix(values):  # type: ignore[no-untyped-def]
    at = cuda.grid(1)
    if at < values.size:
        values[at] = np.int32(values[at] * MULTIPLIER + ADDEND)


def main() -> None:
    arrays = [cuda.to_device(common.start(n)) for n in range(common.ARRAYS)]
    for _ in range(common.rounds()):
        for array in arrays:
            mix[-(-common.COUNT // THREADS), THREADS](array)
    common.tell(common.sha256(array.copy_to_host() for array in arrays))


if __name__ == "__main__":
    main()
