"""Triton: a compiled kernel, launched through Triton's own path to the driver."""

from __future__ import annotations

import common
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def mix(values, count, MULTIPLIER: tl.constexpr, ADDEND: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = offsets < count
    old = tl.load(values + offsets, mask=inside)
    tl.store(values + offsets, old * MULTIPLIER + ADDEND, mask=inside)


def main() -> None:
    arrays = [torch.from_numpy(common.start(n)).cuda() for n in range(common.ARRAYS)]
    grid = (triton.cdiv(common.COUNT, BLOCK),)
    for _ in range(common.rounds()):
        for array in arrays:
            mix[grid](array, common.COUNT, common.MULTIPLIER, common.ADDEND, BLOCK)
    common.tell(common.sha256(array.cpu().numpy() for array in arrays))


if __name__ == "__main__":
    main()
