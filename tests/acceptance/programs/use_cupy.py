"""CuPy: elementwise kernels over its default memory pool."""

from __future__ import annotations

import common
import cupy


def main() -> None:
    mix = cupy.ElementwiseKernel(
        "int32 old", "int32 new", f"new = old * {common.MULTIPLIER} + {common.ADDEND}", "mix"
    )
    arrays = [cupy.asarray(common.start(n)) for n in range(common.ARRAYS)]
    for _ in range(common.rounds()):
        for array in arrays:
            mix(array, array)
    common.tell(common.sha256(cupy.asnumpy(array) for array in arrays))


if __name__ == "__main__":
    main()
