"""Matrix products of PyTorch with cuBLAS, compared with the CPU's: real values.

Only cuBLAS runs on the GPU here. PyTorch's own kernels have no host functions that would compute
their results in compute mode.
"""

from __future__ import annotations

import common
import torch

SIDE, MATRICES, BATCH = 512, 24, 3

torch.manual_seed(12)


def right(got: torch.Tensor, expected: torch.Tensor) -> bool:
    places = {torch.float64: 1e-10, torch.bfloat16: 2e-2, torch.float16: 2e-3}
    allowed = places.get(got.dtype, 1e-4)
    difference = (got.cpu().to(expected.dtype) - expected).abs().max()
    return bool(difference <= allowed * expected.abs().max())


def of_type(kind: torch.dtype) -> dict[str, bool]:
    a, b, bias = (torch.randn(n).to(kind) for n in ((96, 160), (160, 64), (64,)))
    exact = torch.float64
    there = [value.cuda() for value in (a, b, bias)]
    product = a.to(exact) @ b.to(exact)
    stack = a.expand(BATCH, -1, -1).contiguous()
    return {
        f"{kind} mm": right(there[0] @ there[1], product),
        f"{kind} turned": right(there[1].t() @ there[0].t(), product.t()),
        f"{kind} bias": right(torch.addmm(there[2], there[0], there[1]), product + bias.to(exact)),
        f"{kind} batch": right(
            torch.bmm(stack.cuda(), b.expand(BATCH, -1, -1).contiguous().cuda()),
            product.expand(BATCH, -1, -1),
        ),
    }


def chain() -> bool:
    """Multiplies more matrices one after another than fit on a small GPU."""
    factors = [torch.eye(SIDE).roll(n + 1, 0) for n in range(MATRICES)]
    there = [factor.cuda() for factor in factors]
    value, expected = there[0], factors[0]
    for n in range(1, MATRICES):
        value, expected = there[n] @ value, factors[n] @ expected
    return bool(torch.equal(value.cpu(), expected))


results: dict[str, bool] = {"chain": chain()}
for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    results |= of_type(kind)
common.tell(right=all(results.values()), wrong=[k for k, ok in results.items() if not ok])
