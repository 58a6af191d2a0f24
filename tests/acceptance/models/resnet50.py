"""ResNet-50 in plain PyTorch, trained with momentum SGD on random images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acceptance.models import sizes
from acceptance.models.torch_model import Trained, prepare

BATCHES = 2


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Returns a convolution with batch norm; only its stride changes the image size."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, narrow: int, stride: int, beside: bool) -> None:
        super().__init__()
        outputs = 4 * narrow
        self.body = nn.Sequential(
            *(_convolution(inputs, narrow, 1), nn.ReLU(inplace=True)),
            *(_convolution(narrow, narrow, 3, stride), nn.ReLU(inplace=True)),
            _convolution(narrow, outputs, 1),
        )
        self.beside = _convolution(inputs, outputs, 1, stride) if beside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.beside(x))


class ResNet50(nn.Module):
    def __init__(self, shape: sizes.ResNet) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            _convolution(3, 64, 7, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        inputs = 64
        for number, (narrow, blocks) in enumerate(shape.stages):
            for block in range(blocks):
                stride = 2 if number and block == 0 else 1
                layers.append(Bottleneck(inputs, narrow, stride, block == 0))
                inputs = 4 * narrow
        self.features = nn.Sequential(*layers)
        self.classes = nn.Linear(inputs, shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classes(self.features(images).mean(dim=(2, 3)))


def build(seed: int, quick: bool, device: str) -> Trained:
    """Returns the network on `device`; see acceptance.models.build."""
    prepare(seed)
    shape = sizes.resnet(quick)
    module = ResNet50(shape).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batches = [
        (
            torch.randn(shape.batch, 3, shape.image, shape.image).to(device),
            torch.randint(shape.classes, (shape.batch,)).to(device),
        )
        for _ in range(BATCHES)
    ]
    facts = {
        "batch": shape.batch,
        "image": shape.image,
        "flop": shape.flop,
        "persistent_bytes": shape.persistent_bytes,
        "precision": "PyTorch's defaults: convolutions in TF32, the rest in float32",
    }
    return Trained(module, optimizer, batches, device, facts)
