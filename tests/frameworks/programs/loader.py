"""A DataLoader with worker processes and pinned batches, forked or spawned."""

from __future__ import annotations

import sys

import common
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, CLASSES, BATCH, ROWS = 256, 10, 32, 256


class Rows(Dataset[tuple[torch.Tensor, int]]):
    """Rows that the worker computes from their number."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.full((WIDTH,), float(number)), number % CLASSES


def main() -> None:
    method = sys.argv[1]
    torch.manual_seed(10)
    model = nn.Linear(WIDTH, CLASSES).cuda()  # CUDA is in use before the workers start
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = Rows()
    loader = DataLoader(
        rows, BATCH, shuffle=True, num_workers=2, pin_memory=True, multiprocessing_context=method
    )
    seen = 0.0
    for values, classes in loader:
        there = values.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(there), classes.cuda(non_blocking=True))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        seen += float(there.cpu()[:, 0].sum())
    common.tell(method=method, seen=seen, right=seen == sum(range(ROWS)))


if __name__ == "__main__":
    main()
