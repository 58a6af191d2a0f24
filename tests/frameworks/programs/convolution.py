"""Convolutions of several kinds, without any settings for the virtual GPU."""

from __future__ import annotations

import common
import torch
from torch import nn

CLASSES, BATCH, SIDE = 10, 8, 32

torch.manual_seed(4)
model = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 32, 3, groups=32), nn.GroupNorm(4, 32), nn.Conv2d(32, 64, 3, stride=2)),
    *(nn.ConvTranspose2d(64, 64, 2, stride=2), nn.Upsample(scale_factor=2), nn.SiLU()),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    nn.Linear(64, CLASSES),
).cuda()


def loss_of(step: int) -> torch.Tensor:
    images = torch.randn(BATCH, 3, SIDE, SIDE).cuda()
    return nn.functional.cross_entropy(model(images), torch.full((BATCH,), step).cuda())


common.train(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
common.tell()
