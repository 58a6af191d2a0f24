"""Trains an MLP with momentum in JAX; all memory is in the one arena of XLA's allocator."""

from __future__ import annotations

import json

from jax._src import hardware_utils

# JAX looks for /dev/nvidia0 before it queries the driver; the virtual GPU has no such file.
hardware_utils.has_visible_nvidia_gpu = lambda: True

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

WIDTH, LAYERS, BATCH, STEPS = 1024, 8, 512, 4
Arrays = list[jax.Array]


def loss(weights: Arrays, values: jax.Array, wanted: jax.Array) -> jax.Array:
    for weight in weights[:-1]:
        values = jnp.tanh(values @ weight)
    return jnp.mean((values @ weights[-1] - wanted) ** 2)


@jax.jit
def step(
    weights: Arrays, moments: Arrays, values: jax.Array, wanted: jax.Array
) -> tuple[Arrays, Arrays]:
    slopes = jax.grad(loss)(weights, values, wanted)
    moments = [0.9 * moment + slope for moment, slope in zip(moments, slopes, strict=True)]
    weights = [weight - 1e-3 * m for weight, m in zip(weights, moments, strict=True)]
    return weights, moments


weights = [jnp.full((WIDTH, WIDTH), 1.0 / (i + 1)) for i in range(LAYERS)]
moments = [jnp.zeros_like(weight) for weight in weights]
values = wanted = jnp.ones((BATCH, WIDTH))
for _ in range(STEPS):
    weights, moments = step(weights, moments, values, wanted)
jax.block_until_ready((weights, moments))

sent = np.random.default_rng(1).random(1 << 20, np.float32)
print(
    json.dumps(
        {
            "device": jax.devices()[0].platform,
            "round_trip": bool(np.array_equal(np.asarray(jnp.asarray(sent)), sent)),
        }
    )
)
