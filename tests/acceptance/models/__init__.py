"""The models of the speed stage: one interface for PyTorch models and programs of examples/.

MODELS is plain data, importable anywhere; `build` needs the packages of its family (PyTorch, or
cuda.bindings and a driver). A model does not depend on pump.

DESIGN of the sizes
  A GPU is lent for minutes, and managed memory stays below 4 GiB. So a model of about 3 GiB
  represents one that fills a GPU, and its budget represents the GPU's memory. Paging then depends
  on  compute time / transfer time of the bytes that do not fit. For transformers, arithmetic per
  byte of footprint grows with the size. A transformer that fills an H200 has 6e9 parameters and
  23,000 tokens. At 500 TFLOP/s (bf16) it computes for 1.7 s; a third of its 210 GB takes 1.3 s over
  PCIe 5 x16 (55 GB/s). Its ratio is 1.3. The 3 GiB model computes 1.4 TFLOP: 3 ms in bf16, 6 ms
  with TF32. Transferring a third of its bytes takes 20 ms, so any policy would only wait for the
  link. In plain float32 (45 TFLOP/s), PyTorch's default for matrices, it takes 31 ms: a ratio of
  1.6. So models compute with PyTorch's defaults: matrices in float32, convolutions of cuDNN in
  TF32. ResNet-50's ratio does not depend on the batch: 0.59 TFLOP for 24 images takes about 8 ms.
  Its memory-bound operations take about as long again, compared with the same 20 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from acceptance.models import sizes

TORCH, PROGRAM = "torch", "program"


class Model(Protocol):
    """A training in GPU memory. Everything is issued to one stream of one device.

    `facts`: description of the model for JSON, with units in the keys. The fact `cycle` is the
    number of iterations after which its accesses repeat, if that is not 1.
    """

    facts: dict[str, Any]

    def step(self) -> None:
        """Issues one iteration; waits only if the iteration itself needs it."""

    def wait(self) -> None:
        """Waits until everything issued has executed."""

    def state_hash(self) -> str:
        """Waits, and returns the SHA-256 of all trained state. It is reproducible on a CPU, for
        programs of examples/, and whenever the framework's kernels are deterministic."""

    def touches(self) -> Sequence[Any]:
        """Returns the known accesses of one iteration as floor.Touch; empty if unknown.

        Runs an iteration if the model can only find out that way.
        """


@dataclass(frozen=True)
class Spec:
    """A model by name. `footprint_bytes`: most GPU memory that it is expected to use, known before
    anything is allocated. `quick_footprint_bytes`: the same for its smallest size."""

    name: str
    family: str
    footprint_bytes: int
    quick_footprint_bytes: int

    def expected_bytes(self, quick: bool) -> int:
        return self.quick_footprint_bytes if quick else self.footprint_bytes


def _spec(name: str, family: str, footprint: Any) -> Spec:
    return Spec(name, family, footprint(False), footprint(True))


MODELS = {
    spec.name: spec
    for spec in (
        _spec("gpt2", TORCH, lambda quick: sizes.gpt(quick).footprint_bytes),
        _spec("resnet50", TORCH, lambda quick: sizes.resnet(quick).footprint_bytes),
        _spec("embedding", TORCH, lambda quick: sizes.embedding(quick).footprint_bytes),
        _spec("mlp", PROGRAM, lambda quick: sizes.mlp(quick).footprint_bytes),
        _spec("sweep", PROGRAM, lambda quick: sizes.sweep(quick).footprint_bytes),
    )
}


PROGRAMS = tuple(spec.name for spec in MODELS.values() if spec.family == PROGRAM)


def build(name: str, seed: int, quick: bool, device: str = "cuda") -> Model:
    """Returns the model `name` with its weights on the GPU. `device`: of PyTorch models.

    The same arguments give the same weights and data. Raises KeyError for an unknown name,
    ImportError if the family's packages are missing, the framework's own errors otherwise.
    """
    spec = MODELS[name]
    if spec.family == PROGRAM:
        from acceptance.models import programs

        return programs.build(name, seed, quick)
    from acceptance.models import embedding, gpt2, resnet50

    module = {"gpt2": gpt2, "resnet50": resnet50, "embedding": embedding}[name]
    built: Model = module.build(seed, quick, device)
    return built
