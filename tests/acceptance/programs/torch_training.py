"""A small deterministic PyTorch training; prints the hash of all parameters and optimiser state.

The environment must set CUBLAS_WORKSPACE_CONFIG, as PyTorch's page on reproducibility requires.
"""

from __future__ import annotations

import argparse
import hashlib
import json

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=20)
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(5)
    width = options.width
    layers: list[nn.Module] = []
    for _ in range(options.layers):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    model = nn.Sequential(*layers).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(options.iterations, options.batch, width)
    first = last = 0.0
    for number in range(options.iterations):
        batch = data[number].cuda()
        loss = nn.functional.mse_loss(model(batch), batch.roll(1, 1))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        last = loss.item()
        first = first or last
    digest = hashlib.sha256()
    for value in model.parameters():
        digest.update(memoryview(value.detach().cpu().numpy()).cast("B"))
    for state in optimiser.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            digest.update(memoryview(state[name].cpu().numpy()).cast("B"))
    print(
        json.dumps(
            {
                "sha256": digest.hexdigest(),
                "right": bool(last < first),
                "first_loss": first,
                "last_loss": last,
                "peak_bytes": torch.cuda.max_memory_allocated(),
            }
        )
    )


if __name__ == "__main__":
    main()
