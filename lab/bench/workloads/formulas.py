"""What a step must take whose weights do not fit, and what it would take with what people use.

Formulas on one step's bytes and seconds, and on one link. All are computed, none is measured;
those of other systems leave out whatever would slow these down, and are therefore short. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

FLIGHT_BYTES = 128 << 20
"""What pump's executors have under way at most (lab/simulate/sim_movers.c)."""


@dataclass(frozen=True)
class Step:
    """A token, or a step of training.

    weights_bytes: of the whole model. read_bytes: that the step reads of them, each pass
    counted: the same in inference, twice as much forth and back, less with experts.
    others_bytes: what else must be there, such as a cache and activations. largest_bytes: of
    one operation. layer_bytes: of the largest layer. compute_seconds: of all kernels.
    gap_seconds: of the host where the step waits.
    """

    weights_bytes: int
    read_bytes: float
    others_bytes: int
    largest_bytes: int
    layer_bytes: int
    compute_seconds: float
    gap_seconds: float

    def share(self, held_bytes: float) -> float:
        """Of the weights, that stays on the GPU where so many bytes of them do."""
        return min(1.0, max(0.0, held_bytes) / self.weights_bytes)

    def streamed_seconds(self, held_bytes: float, link: float) -> float:
        """For the rest on a link of so many bytes a second, if all is read equally often."""
        return self.read_bytes * (1 - self.share(held_bytes)) / link


def bounds(step: Step, budget_bytes: float, link: float) -> dict[str, float]:
    """Seconds that a step needs under pump, by policy.

    R = budget - others - largest operation - bytes under way; S = what is read of the rest /
    link. planned: max(compute, S). window: max(S, compute of what is streamed) + compute of what
    is held + the gap at the wait.
    """
    held = budget_bytes - step.others_bytes - step.largest_bytes - FLIGHT_BYTES
    least, share = step.streamed_seconds(held, link), step.share(held)
    streamed = max(least, step.compute_seconds * (1 - share))
    return {
        "planned": max(step.compute_seconds, least),
        "window": streamed + step.compute_seconds * share + step.gap_seconds,
    }


def zero_copy(step: Step, memory_bytes: float, link: float) -> float:
    """Seconds where kernels read what does not fit in the host's memory, over the link.

    Pinned memory that is mapped for the GPU (CUDA's guide, "Mapped Memory"), which GreenBoost
    gives llama.cpp and others. Nothing moves: those kernels run at the link's rate, and the
    others as ever. Left out: that a product with many rows reads its weights more than once, and
    that such reads do not reach a copy's rate. (llama.cpp's own GGML_CUDA_ENABLE_UNIFIED_MEMORY
    is memory of cudaMallocManaged, paged by faults: the rows `naive`.)
    """
    held = memory_bytes - step.others_bytes
    share = step.share(held)
    remote = max(step.compute_seconds * (1 - share), step.streamed_seconds(held, link))
    return step.compute_seconds * share + remote + step.gap_seconds


def layer_offload(step: Step, memory_bytes: float, link: float) -> float:
    """Seconds where whole layers lie on the host and come when they run.

    Accelerate's device_map="auto" (its guide "Loading big models into memory", hooks of
    cpu_offload): a hook copies a layer's weights before its forward pass and drops them behind
    it; nothing overlaps. Room for the largest layer is kept free. Left out: that copies from
    pageable memory are slower, and that it does not train.
    """
    held = memory_bytes - step.others_bytes - step.layer_bytes
    held = max(0.0, held) // step.layer_bytes * step.layer_bytes
    return step.compute_seconds + step.streamed_seconds(held, link) + step.gap_seconds


def zero_inference(step: Step, memory_bytes: float, link: float) -> float:
    """Seconds where all weights lie on the host and each layer comes while the one before runs.

    DeepSpeed's ZeRO-Inference (deepspeed.ai/2022/09/09/zero-inference.html): the GPU's memory is
    for activations, a cache, and the layers under way; of training, ZeRO-3 with its parameters
    offloaded. Left out: the first layer's wait, and that experts cannot come before they are
    chosen. memory_bytes does not count, if two layers fit.
    """
    del memory_bytes
    return max(step.compute_seconds, step.streamed_seconds(0, link)) + step.gap_seconds


OTHERS = {
    "zero_copy": zero_copy,
    "layer_offload": layer_offload,
    "zero_inference": zero_inference,
}
"""What people use instead, by the name in rows."""
