"""Trains for some steps with tinygrad: a pytest test for the environment of tests/thirdparty.

In timing mode no kernel computes; a tensor that no kernel writes keeps its bits.
"""

import numpy as np
from tinygrad import Context, Tensor, nn

STEPS, WIDTH, BATCH = 3, 1024, 256


class Layers:
    """Two layers of 4 MiB each."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def __call__(self, rows: Tensor) -> Tensor:
        return self.second(self.first(rows).relu())


def test_layers_are_trained_and_what_no_kernel_writes_stays() -> None:
    sent = np.random.default_rng(0).random((4 * WIDTH, WIDTH), dtype=np.float32)
    kept, rows = Tensor(sent).realize(), Tensor(sent[:BATCH]).realize()
    layers = Layers()
    optimiser = nn.optim.AdamW(nn.state.get_parameters(layers), lr=1e-3)
    with Context(TRAINING=1):
        for _ in range(STEPS):
            optimiser.zero_grad()
            (layers(rows) - rows).square().mean().backward()
            optimiser.step()
    assert np.array_equal(kept.numpy(), sent)
