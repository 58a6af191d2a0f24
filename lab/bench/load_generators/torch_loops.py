"""Runs a training loop as people write it; used by scripts/bench path --loop. Needs PyTorch.

The loops that train a model of the Hugging Face library need `transformers`. No loop uses pump.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CLASSES, TOKENS, LENGTH, BATCH = 1000, 8192, 256, 8


class Text(Dataset[Any]):
    """Random text: 4,096 rows of tokens, each also its own label."""

    def __init__(self) -> None:
        self._rows = torch.randint(TOKENS, (4096, LENGTH))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def report(begun_s: float) -> None:
    """Prints the loop's seconds and its memory, after all GPU work has ended."""
    torch.cuda.synchronize()
    reserved_mib = torch.cuda.max_memory_reserved() >> 20
    print(f"{time.monotonic() - begun_s:.3f} s, {reserved_mib} MiB reserved")


def amp(
    model: nn.Module, optimiser: torch.optim.Optimizer, steps: int, batch: Callable[[], Any]
) -> None:
    """Trains in mixed precision with a loss scale and clipped gradients."""
    scaler = torch.amp.GradScaler()
    begun_s = time.monotonic()
    for step in range(steps):
        inputs = {key: value.to("cuda", non_blocking=True) for key, value in batch().items()}
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(**inputs).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()
    report(begun_s)


def pictures(count: int) -> Callable[[], dict[str, torch.Tensor]]:
    """Returns a source of the same pinned batch of `count` pictures."""
    found = {
        "pixel_values": torch.randn(count, 3, 224, 224).pin_memory(),
        "labels": torch.randint(CLASSES, (count,)).pin_memory(),
    }
    return lambda: found


def gpt(steps: int) -> None:
    """GPT-2 with a data loader and the fused AdamW."""
    model = language_model().cuda()
    loader = iter(DataLoader(Text(), BATCH, shuffle=True, num_workers=2, pin_memory=True))
    amp(model, torch.optim.AdamW(model.parameters(), fused=True), steps, lambda: next(loader))


def vit(steps: int) -> None:
    """A vision transformer with the foreach AdamW."""
    from transformers import ViTConfig, ViTForImageClassification

    shape = ViTConfig(
        hidden_size=512,
        num_hidden_layers=10,
        num_attention_heads=8,
        intermediate_size=2048,
        num_labels=CLASSES,
    )
    model = ViTForImageClassification(shape).cuda()
    amp(model, torch.optim.AdamW(model.parameters()), steps, pictures(32))


def resnet(steps: int) -> None:
    """ResNet-50 with SGD."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=CLASSES)).cuda().train()
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    amp(model, optimiser, steps, pictures(16))


def trainer(steps: int) -> None:
    """GPT-2 by the Trainer of Hugging Face."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            self.begun_s = time.monotonic()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            report(self.begun_s)

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            max_steps=steps,
            fp16=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=2,
        )
        Trainer(language_model(), settings, train_dataset=Text(), callbacks=[Clock()]).train()


def language_model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=512, n_layer=8, n_head=8)
    )


class Messages(nn.Module):
    """One layer of message passing: each node adds the rows of its neighbours, in eight parts.
    `edges`: int64 [2, edges], sources and targets."""

    def __init__(self, edges: torch.Tensor, width: int) -> None:
        super().__init__()
        self._parts = edges.chunk(8, 1)
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros_like(rows)
        for sources, targets in self._parts:
            sums.index_add_(0, targets, rows.index_select(0, sources))
        return torch.relu(self.norm(self.own(rows) + self.others(sums)))


def gnn(steps: int) -> None:
    """A graph network: many small kernels, and Adam that updates one tensor at a time."""
    nodes, width, kinds = 60_000, 128, 16
    edges = torch.randint(nodes, (2, 8 * nodes), device="cuda")
    rows = torch.randn(nodes, width, device="cuda")
    labels = torch.randint(kinds, (nodes,), device="cuda")
    layers = [Messages(edges, width) for _ in range(4)]
    model = nn.Sequential(*layers, nn.Linear(width, kinds)).cuda()
    optimiser = torch.optim.Adam(model.parameters(), foreach=False)
    begun_s = time.monotonic()
    for step in range(steps):
        loss = functional.cross_entropy(model(rows), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if step % 10 == 0:
            loss.item()
    report(begun_s)


LOOPS = {"gpt": gpt, "vit": vit, "resnet": resnet, "trainer": trainer, "gnn": gnn}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a training loop.")
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--steps", type=int, default=20)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    LOOPS[chosen.loop](chosen.steps)
