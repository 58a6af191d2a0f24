"""Models without a framework: the programs of examples/, run step by step in this process.

They need only cuda.bindings and NVRTC, so they also run on the virtual GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import floor

from acceptance.models import sizes

ACCESS: Mapping[str, str] = {
    "dense_forward": "wrrr",
    "dense_backward_weights": "wrr",
    "dense_backward_bias": "wr",
    "dense_backward_input": "wrrr",
    "softmax_loss": "wwrr",
    "adam": "uruu",
    "sweep": "u",
}
"""Access of each kernel's pointers in examples/kernels.cu: r read, u updated, w overwritten whole.
Pointers are the first parameters. Other kernels and further arguments are uncertain (the gather
reads what its index selects)."""

VIRTUAL_SETTINGS: Mapping[str, Mapping[str, str]] = {"sweep": {"kernel.sweep.gbps": "60"}}
"""Settings of the virtual GPU: a sweep takes as long as the link needs for 0.4 of the buffer."""


class _Program:
    """Common part of both programs: the GPU, waiting, and known touches."""

    def __init__(self, gpu: Any, touches: Sequence[floor.Touch], facts: dict[str, Any]) -> None:
        self._gpu = gpu
        self._touches = touches
        self._done = 0
        self.facts = {**facts, "gpu": gpu.name}

    def wait(self) -> None:
        self._gpu.synchronise()

    def touches(self) -> Sequence[floor.Touch]:
        return self._touches


class Perceptron(_Program):
    """Runs examples/train_mlp.py."""

    def __init__(self, gpu: Any, quick: bool) -> None:
        import train_mlp

        model = perceptron_model(quick)
        facts = {"batch": model.batch, "width": model.width, "layers": model.layers}
        super().__init__(gpu, known_touches("mlp", quick), facts)
        self._trainer = train_mlp.Trainer(model, gpu)

    def step(self) -> None:
        self._trainer.issue(self._done)
        self._done += 1

    def state_hash(self) -> str:
        return str(self._trainer.weights_sha256())


class Sweep(_Program):
    """Runs examples/cyclic_sweep.py."""

    def __init__(self, gpu: Any, quick: bool, seed: int) -> None:
        shape = sizes.sweep(quick)
        facts = {"buffers": shape.buffers, "buffer_bytes": shape.buffer_bytes}
        super().__init__(gpu, known_touches("sweep", quick), facts)
        self._shape = shape
        self._buffers = [gpu.allocate(shape.buffer_bytes) for _ in range(shape.buffers)]
        count = ctypes.c_int(shape.buffer_bytes // 4)
        self._launches = []
        for number, buffer in enumerate(self._buffers, seed):
            values = [ctypes.c_void_p(buffer), count]
            gpu.launch(
                "init_uniform", [*values, ctypes.c_uint(number), ctypes.c_float(1)], count.value
            )()
            rounds = ctypes.c_int(shape.rounds)
            self._launches.append(gpu.launch("sweep", [*values, rounds], count.value))

    def step(self) -> None:
        for launch in self._launches:
            launch()

    def state_hash(self) -> str:
        found = hashlib.sha256()
        host = (ctypes.c_char * self._shape.buffer_bytes)()
        for buffer in self._buffers:
            self._gpu.download(ctypes.addressof(host), buffer, self._shape.buffer_bytes)
            found.update(memoryview(host))
        return found.hexdigest()


def known_touches(name: str, quick: bool) -> Sequence[floor.Touch]:
    """Returns the touches of an iteration of the program, determined without a GPU."""
    if name == "mlp":
        model = perceptron_model(quick)
        return floor.touches(model.iteration(), floor.block_numbers(model.tensors()))
    shape = sizes.sweep(quick)
    blocks = shape.buffer_bytes // floor.BLOCK_BYTES
    places = (range(n * blocks, (n + 1) * blocks) for n in range(shape.buffers))
    return [floor.Touch((), tuple(place), ()) for place in places]


def perceptron_model(quick: bool) -> Any:
    """Returns the model of examples/mlp.py at this size."""
    from mlp import Model

    shape = sizes.mlp(quick)
    return Model(shape.width, shape.layers, shape.batch, 0.2 / shape.width)


def build(name: str, seed: int, quick: bool) -> Perceptron | Sweep:
    """See acceptance.models.build. Raises gpu.GpuError if the driver refuses."""
    from gpu import Gpu
    from workload import KERNELS

    gpu = Gpu(KERNELS, managed=False)
    return Perceptron(gpu, quick) if name == "mlp" else Sweep(gpu, quick, seed)
