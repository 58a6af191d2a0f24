"""The models of the speed stage: one interface over PyTorch models and programs of examples/.

MODELS is plain data, importable anywhere; `build` needs what its family needs (PyTorch,
or cuda.bindings and a driver). What a model is made of does not depend on pump.

DESIGN of the sizes
  A card is lent for minutes and managed memory stays below 4 GiB, so a model of about
  3 GiB stands in for one that fills a card, and its budget for the card. What decides
  paging is then  compute time / time of the bytes that do not fit.  Arithmetic per byte of
  footprint falls with a transformer's size: one that fills an H200 (6e9 parameters, 23,000
  tokens, bf16 at 500 TFLOP/s) computes 1.7 s where a third of its 210 GB needs 1.3 s of
  PCIe 5 x16 (55 GB/s), a ratio of 1.3. The 3 GiB one computes 1.4 TFLOP: 3 ms in bf16 and
  6 ms with TF32, against 20 ms for its third: there any policy only waits for the link.
  In plain float32 (45 TFLOP/s), which is PyTorch's default for matrices, it is 31 ms and
  1.6. So models compute as PyTorch does by default: matrices in float32, convolutions of
  cuDNN in TF32. ResNet-50's ratio does not depend on the batch: 0.59 TFLOP for 24 images,
  about 8 ms and as much again for what is bound by memory, against the same 20 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from acceptance.models import sizes

TORCH, PROGRAM = "torch", "program"


class Model(Protocol):
    """A training in GPU memory. Everything is issued to one stream of one device.

    facts: what it is made of, units in the key names; JSON. `cycle`: iterations after which
    its accesses repeat, where that is not 1.
    """

    facts: dict[str, Any]

    def step(self) -> None:
        """Issues one iteration; waits for nothing that the iteration itself does not need."""

    def wait(self) -> None:
        """Returns when everything issued has executed."""

    def state_hash(self) -> str:
        """SHA-256 of all that is trained; waits. The same again where the framework's kernels
        are deterministic: on a CPU, and of programs everywhere."""

    def touches(self) -> Sequence[Any]:
        """What one iteration is known to touch, as floor.Touch; empty: unknown.

        Runs an iteration where that is how to find out.
        """


@dataclass(frozen=True)
class Spec:
    """A model by name. footprint_bytes: most GPU memory that it is expected to take, known
    before anything is allocated; `quick`: of its smallest size."""

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
    """The model `name`, its weights made and copied. `device`: of PyTorch models.

    The same arguments give the same weights and data. Raises KeyError for an unknown name,
    ImportError where the family's packages are missing, the framework's own errors otherwise.
    """
    spec = MODELS[name]
    if spec.family == PROGRAM:
        from acceptance.models import programs

        return programs.build(name, seed, quick)
    from acceptance.models import embedding, gpt2, resnet50

    module = {"gpt2": gpt2, "resnet50": resnet50, "embedding": embedding}[name]
    built: Model = module.build(seed, quick, device)
    return built
