"""Generates tokens with a mixture of experts: each token uses two of sixteen experts.

A router selects the experts of a token, and the program waits for the router in each layer,
because it must know which experts to launch. Weights are random, so experts are drawn at
random, the same in each run. --router learned uses the router's selection.
"""

from __future__ import annotations

import random

import decoder
import loop
import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """Replaces a perceptron. Each token passes through `top` experts, drawn by `chance` if that
    is given and else selected by the router."""

    def __init__(
        self, width: int, inner: int, experts: int, top: int, chance: random.Random | None
    ) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(decoder.Perceptron(width, inner) for _ in range(experts))
        self.top = top
        self.chance = chance

    def forward(self, x: Tensor) -> Tensor:
        words = x.flatten(0, 1)
        shares, best = self.router(words).softmax(-1).topk(self.top)
        chosen = best.tolist()  # waits
        if self.chance is not None:
            every = range(len(self.experts))
            chosen = [self.chance.sample(every, self.top) for _ in chosen]
        total = torch.zeros_like(words)
        for number in sorted({one for each in chosen for one in each}):
            places = [
                (row, each.index(number)) for row, each in enumerate(chosen) if number in each
            ]
            rows, ranks = torch.tensor(places, device=x.device).T
            result = self.experts[number](words[rows]) * shares[rows, ranks, None]
            total.index_add_(0, rows, result)
        return total.view_as(x)


def main() -> int:
    parser = loop.parser(__doc__.splitlines()[0], layers=6, width=2048, inner=3072, heads=16)
    parser.add_argument("--experts", type=int, default=16, help="experts of a layer")
    parser.add_argument("--top", type=int, default=2, help="experts that a token uses")
    parser.add_argument("--router", choices=("drawn", "learned"), default="drawn")
    parser.add_argument("--prompt", type=int, default=60, help="tokens of the prompt")
    parser.add_argument("--growth", type=int, default=8, help="tokens that the cache grows by")
    parser.set_defaults(batch=1)
    options = parser.parse_args()
    chance = random.Random(loop.SEED) if options.router == "drawn" else None
    mixed = options.width, options.inner, options.experts, options.top, chance
    with torch.inference_mode(), loop.prepare(options):
        model = decoder.Decoder(options, lambda: Mixture(*mixed))
        words = decoder.generation(model, options)
        words.step()
        found = loop.timed(words.step, options, model)
    return loop.finish(found | {"cache_bytes": words.cache_bytes}, options)


if __name__ == "__main__":
    raise SystemExit(main())
