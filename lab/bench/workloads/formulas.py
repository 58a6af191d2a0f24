"""The time of a step whose weights do not fit: its bounds under pump, and with other systems.

The formulas use one step's bytes and seconds, and one link. All results are computed, not measured.
Formulas of other systems leave out effects that would slow these down, so their times are too
short. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

FLIGHT_BYTES = 128 << 20
"""Most bytes in flight in pump's executors (lab/simulate/sim_movers.c)."""


@dataclass(frozen=True)
class Step:
    """A token, or a step of training.

    `weights_bytes`: the whole model's. `read_bytes`: weights that the step reads, counting each
    pass. That is the same in inference, twice as much forward and backward, less with experts.
    `others_bytes`: other memory that must be resident, such as a cache and activations.
    `largest_bytes`: of one operation. `layer_bytes`: of the largest layer. `compute_seconds`: of
    all kernels. `gap_seconds`: host time when the step waits.
    """

    weights_bytes: int
    read_bytes: float
    others_bytes: int
    largest_bytes: int
    layer_bytes: int
    compute_seconds: float
    gap_seconds: float

    def share(self, held_bytes: float) -> float:
        """Returns the share of the weights that stays on the GPU with `held_bytes` for them."""
        return min(1.0, max(0.0, held_bytes) / self.weights_bytes)

    def streamed_seconds(self, held_bytes: float, link: float) -> float:
        """Returns the seconds for the other weights at `link` bytes a second, if read uniformly."""
        return self.read_bytes * (1 - self.share(held_bytes)) / link


def bounds(step: Step, budget_bytes: float, link: float) -> dict[str, float]:
    """Returns the least seconds of a step under pump, by policy.

    R = budget - others - largest operation - bytes in flight. S = bytes read of weights beyond R /
    link. planned: max(compute, S). window: max(S, compute of streamed weights) + compute of held
    weights + the gap at the wait.
    """
    held = budget_bytes - step.others_bytes - step.largest_bytes - FLIGHT_BYTES
    least, share = step.streamed_seconds(held, link), step.share(held)
    streamed = max(least, step.compute_seconds * (1 - share))
    return {
        "planned": max(step.compute_seconds, least),
        "window": streamed + step.compute_seconds * share + step.gap_seconds,
    }


def zero_copy(step: Step, memory_bytes: float, link: float) -> float:
    """Returns the seconds if kernels read weights that do not fit from host memory, over the link.

    This is pinned memory that is mapped for the GPU (CUDA's guide, "Mapped Memory"), which
    GreenBoost gives llama.cpp and others. No bytes move: those kernels run at the link's rate, and
    the others as usual. Left out: a product with many rows reads its weights more than once, and
    such reads do not reach a copy's rate. The option GGML_CUDA_ENABLE_UNIFIED_MEMORY of llama.cpp
    itself means memory of cudaMallocManaged, paged by faults: the rows `naive`.
    """
    held = memory_bytes - step.others_bytes
    share = step.share(held)
    remote = max(step.compute_seconds * (1 - share), step.streamed_seconds(held, link))
    return step.compute_seconds * share + remote + step.gap_seconds


def layer_offload(step: Step, memory_bytes: float, link: float) -> float:
    """Returns the seconds if whole layers are in host memory and are copied when they run.

    This is Accelerate's device_map="auto" (its guide "Loading big models into memory", hooks of
    cpu_offload). A hook copies a layer's weights before its forward pass and drops them after it;
    nothing overlaps. Memory for the largest layer stays free. Left out: copies from pageable memory
    are slower, and this system does not train.
    """
    held = memory_bytes - step.others_bytes - step.layer_bytes
    held = max(0.0, held) // step.layer_bytes * step.layer_bytes
    return step.compute_seconds + step.streamed_seconds(held, link) + step.gap_seconds


def zero_inference(step: Step, memory_bytes: float, link: float) -> float:
    """Returns the seconds if all weights are in host memory and layers are copied one ahead.

    This is DeepSpeed's ZeRO-Inference (deepspeed.ai/2022/09/09/zero-inference.html). The GPU's
    memory holds activations, a cache, and the layers in flight. For training, it is ZeRO-3 with
    offloaded parameters. Left out: the first layer's wait, and that experts cannot be copied before
    they are chosen. `memory_bytes` does not matter if two layers fit.
    """
    del memory_bytes
    return max(step.compute_seconds, step.streamed_seconds(0, link)) + step.gap_seconds


OTHERS = {
    "zero_copy": zero_copy,
    "layer_offload": layer_offload,
    "zero_inference": zero_inference,
}
"""Alternatives to pump, by their names in rows."""
