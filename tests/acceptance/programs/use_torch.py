"""PyTorch, eager: its caching allocator and elementwise kernels. Counts with its profiler."""

from __future__ import annotations

import os

import common
import torch


def step(arrays: list[torch.Tensor]) -> None:
    for array in arrays:
        array.mul_(common.MULTIPLIER).add_(common.ADDEND)


def profiled(arrays: list[torch.Tensor], times: int) -> dict[str, int]:
    """Runs `times` steps and returns the GPU activities that CUPTI reported, counted by kind."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(times):
            step(arrays)
        torch.cuda.synchronize()
    counts = {"kernels": 0, "copies": 0, "sets": 0}
    for event in seen.events():
        annotation = event.name.startswith(("ProfilerStep", "##"))
        if event.device_type == torch.autograd.DeviceType.CUDA and not annotation:
            name = event.name.lower()
            kind = "copies" if "memcpy" in name else "sets" if "memset" in name else "kernels"
            counts[kind] += 1
    return counts


def main() -> None:
    more = {}
    arrays = [torch.from_numpy(common.start(n)).cuda() for n in range(common.ARRAYS)]
    if os.environ.get("ACCEPTANCE_PROFILE"):
        more["profiler"] = profiled(arrays, common.rounds())
    else:
        for _ in range(common.rounds()):
            step(arrays)
    more["backend"] = torch.cuda.get_allocator_backend()
    common.tell(common.sha256(array.cpu().numpy() for array in arrays), **more)


if __name__ == "__main__":
    main()
