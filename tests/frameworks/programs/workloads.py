"""Checks the models of examples/pytorch on the CPU in float32: the cache and the mixture of experts
give the results of plain computations, and training lowers the loss."""

from __future__ import annotations

import argparse
import json
import sys

import torch

sys.path.insert(0, sys.argv[1])

import decoder
import experts
import loop
import lora

OPTIONS = argparse.Namespace(
    layers=2,
    width=64,
    heads=4,
    inner=96,
    vocabulary=50,
    batch=3,
    prompt=7,
    growth=4,
    dtype="float32",
    device="cpu",
)


def generated() -> dict[str, bool]:
    """Tokens generated one by one equal the tokens of whole sequences, which need no cache."""
    model = decoder.Decoder(OPTIONS)
    words = decoder.generation(model, OPTIONS)
    prompt, begun = words.words, words.cache_bytes
    made = torch.tensor([words.step() for _ in range(6)]).T
    whole = torch.cat((prompt, made), 1)
    again = []
    for end in range(OPTIONS.prompt, OPTIONS.prompt + 6):
        fresh = [decoder.Cache(1) for _ in model.layers]
        again.append(model(whole[:, :end], fresh).argmax(-1))
    # 7 prompt tokens and 5 generated ones are read: the cache has grown three times by 4.
    grown = words.cache_bytes == 2 * 2 * 3 * 64 * 12 * 4 and begun == 0
    return {"cache": torch.equal(torch.stack(again, 1), made), "growth": grown}


def trained() -> dict[str, bool]:
    """Checks that the loss of one batch falls and that only the adapters change."""
    model = decoder.Decoder(OPTIONS)
    frozen = [weight.clone() for weight in model.parameters()]
    originals = list(model.parameters())
    adapters = lora.adapt(model, 4)
    optimiser = torch.optim.AdamW(adapters, lr=1e-2)
    line = torch.randint(OPTIONS.vocabulary, (3, 12))
    losses = []
    for _ in range(12):
        loss = lora.loss_of(model, line)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    same = all(map(torch.equal, frozen, originals))
    return {"adapters": losses[-1] < 0.9 * losses[0], "frozen": same}


def mixed() -> bool:
    """Compares the mixture with the weighted two best experts of each token, one by one."""
    mixture = experts.Mixture(64, 96, 8, 2, None)
    x = torch.randn(2, 5, 64)
    shares = mixture.router(x).softmax(-1)
    every = torch.stack([expert(x) for expert in mixture.experts], -1)
    kept = shares >= shares.topk(2).values[..., -1:]
    return torch.allclose((every * (shares * kept)[..., None, :]).sum(-1), mixture(x), atol=1e-6)


loop.prepare(OPTIONS)
with torch.inference_mode():
    found = generated() | {"experts": mixed()}
print(json.dumps(found | trained()))
