"""A decoder in plain PyTorch that generates tokens one by one; shared by the programs here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

POSITIONS = 1024


class Cache:
    """The keys and values of a layer. When they outgrow their memory, they move to memory with
    space for up to `growth` more tokens."""

    def __init__(self, growth: int) -> None:
        self.growth = growth
        self.length = 0
        self.both = torch.empty(0)

    def add(self, both: Tensor) -> Tensor:
        """Adds the keys and values of new tokens; returns [2, batch, heads, all tokens, size]."""
        end = self.length + both.shape[3]
        if self.length == 0 or end > self.both.shape[3]:
            room = -(-end // self.growth) * self.growth
            wider = both.new_empty((*both.shape[:3], room, both.shape[4]))
            if self.length:
                wider[:, :, :, : self.length] = self.both[:, :, :, : self.length]
            self.both = wider
        self.both[:, :, :, self.length : end] = both
        self.length = end
        return self.both[:, :, :, :end]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        key, value = parts[1:] if cache is None else cache.add(parts[1:])
        mixed = functional.scaled_dot_product_attention(parts[0], key, value, is_causal=length > 1)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class Perceptron(nn.Module):
    """A gated perceptron, as in Llama."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, perceptron: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.perceptron = perceptron

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        x = x + self.attention(self.norms[0](x), cache)
        return x + self.perceptron(self.norms[1](x))


class Decoder(nn.Module):
    """A decoder-only model. `perceptron`: makes the perceptron of a layer."""

    def __init__(
        self, options: argparse.Namespace, perceptron: Callable[[], nn.Module] | None = None
    ) -> None:
        super().__init__()
        make = perceptron or (lambda: Perceptron(options.width, options.inner))
        self.words = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Parameter(torch.zeros(POSITIONS, options.width))
        self.layers = nn.ModuleList(
            Layer(options.width, options.heads, make()) for _ in range(options.layers)
        )
        self.norm = nn.RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def begin(self, words: Tensor, place: int = 0) -> Tensor:
        """Embeds [batch, length] tokens; the first is at position `place`."""
        return self.words(words) + self.positions[place : place + words.shape[1]]

    def forward(self, words: Tensor, caches: list[Cache]) -> Tensor:
        """Returns the logits of the next token, [batch, vocabulary], given the caches."""
        x = self.begin(words, caches[0].length)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return self.head(self.norm(x[:, -1]))


@dataclass
class Generation:
    """Generates tokens one by one: first the prompt, then one token a step."""

    model: Decoder
    caches: list[Cache]
    words: Tensor

    def step(self, _number: int = 0) -> list[int]:
        """Returns the next token of each sequence, after waiting for it, as a server would."""
        self.words = self.model(self.words, self.caches).argmax(-1, keepdim=True)
        return self.words.flatten().tolist()

    @property
    def cache_bytes(self) -> int:
        return sum(cache.both.nbytes for cache in self.caches)


def generation(model: Decoder, options: argparse.Namespace) -> Generation:
    """Starts a generation with random tokens as the prompt."""
    prompt = torch.randint(options.vocabulary, (options.batch, options.prompt))
    return Generation(model, [Cache(options.growth) for _ in model.layers], prompt)
