"""A GPT-2-like decoder in plain PyTorch, trained with AdamW on random tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from acceptance.models import sizes
from acceptance.models.torch_model import Trained, prepare

BATCHES = 4


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        shape = (batch, sequence, self._heads, width // self._heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.inputs(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, sequence, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.perceptron(self.norm_perceptron(x))


class Decoder(nn.Module):
    def __init__(self, shape: sizes.Gpt) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.Sequential(*(Block(shape.width, shape.heads) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.positions(places))
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return logits.flatten(0, 1)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def build(seed: int, quick: bool, device: str) -> Trained:
    """Returns the decoder on `device`; see acceptance.models.build."""
    return train(seed, sizes.gpt(quick), device)


def train(seed: int, shape: sizes.Gpt, device: str) -> Trained:
    """Returns a decoder of that shape with its weights on the device."""
    prepare(seed)
    module = Decoder(shape).to(device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4)
    lines = torch.randint(shape.vocabulary, (BATCHES, shape.batch, shape.sequence + 1)).to(device)
    batches = [(line[:, :-1], line[:, 1:].flatten()) for line in lines]
    facts = {
        "batch": shape.batch,
        "sequence": shape.sequence,
        "layers": shape.layers,
        "width": shape.width,
        "flop": shape.flop,
        "persistent_bytes": shape.persistent_bytes,
        "precision": "float32",
    }
    return Trained(module, optimizer, batches, device, facts)
