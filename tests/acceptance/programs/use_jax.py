"""JAX: a jitted step over XLA's own allocator."""

from __future__ import annotations

import common
import jax
import numpy as np


@jax.jit  # type: ignore[untyped-decorator]
def step(array: jax.Array) -> jax.Array:
    return array * np.int32(common.MULTIPLIER) + np.int32(common.ADDEND)


def main() -> None:
    device = jax.devices("cuda")[0]
    arrays = [jax.device_put(common.start(n), device) for n in range(common.ARRAYS)]
    for _ in range(common.rounds()):
        arrays = [step(array) for array in arrays]
    common.tell(common.sha256(np.ascontiguousarray(array) for array in arrays))


if __name__ == "__main__":
    main()
