"""LoRA: trains adapters of a frozen decoder with AdamW and gradient checkpointing.

Each linear layer gets a pair of small float32 matrices (Hu et al., "LoRA", 2021), as in PEFT. For
the backward pass, only the input of each layer is kept.
"""

from __future__ import annotations

import decoder
import loop
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Adapted(nn.Module):
    """A frozen linear layer with an adapter, which adds zero until it is trained."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float32)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float32)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x.float())).to(x.dtype)


def adapt(model: decoder.Decoder, rank: int) -> list[nn.Parameter]:
    """Freezes the model and adds adapters to the linear layers; returns the adapters."""
    model.requires_grad_(False)
    for layer in model.layers:
        for module in (layer.attention, layer.perceptron):
            for name, child in list(module.named_children()):
                setattr(module, name, Adapted(child, rank))
    return [weight for weight in model.parameters() if weight.requires_grad]


def loss_of(model: decoder.Decoder, words: Tensor) -> Tensor:
    """Returns the loss of [batch, length + 1] tokens, each predicted from those before it."""
    x = model.begin(words[:, :-1])
    for layer in model.layers:
        x = checkpoint(layer, x, use_reentrant=False)
    logits = model.head(model.norm(x)).flatten(0, 1)
    return functional.cross_entropy(logits, words[:, 1:].flatten())


def main() -> int:
    parser = loop.parser(__doc__.splitlines()[0], layers=16, width=3072, inner=8192)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--rank", type=int, default=16, help="rank of the adapters")
    parser.set_defaults(batch=2)
    options = parser.parse_args()
    with loop.prepare(options):
        model = decoder.Decoder(options)
        adapters = adapt(model, options.rank)
        lines = torch.randint(options.vocabulary, (4, options.batch, options.length + 1))
    optimiser = torch.optim.AdamW(adapters, lr=1e-3)
    losses = []

    def step(number: int) -> None:
        loss = loss_of(model, lines[number % len(lines)])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())  # waits

    found = loop.timed(step, options, model)
    found |= {"losses": losses, "trained_bytes": sum(weight.nbytes for weight in adapters)}
    return loop.finish(found, options)


if __name__ == "__main__":
    raise SystemExit(main())
