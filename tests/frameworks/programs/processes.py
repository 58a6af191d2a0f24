"""torch.multiprocessing: two spawned processes use the GPU and send tensors through a queue."""

from __future__ import annotations

from multiprocessing.synchronize import Event

import common
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.multiprocessing.queue import SimpleQueue

WIDTH, PROCESSES = 256, 2


def work(number: int, results: SimpleQueue[tuple[int, torch.Tensor]], received: Event) -> None:
    torch.manual_seed(number)
    model = nn.Linear(WIDTH, WIDTH).cuda()
    common.train(model, lambda step: model(torch.randn(8, WIDTH).cuda()).square().mean())
    sent = torch.full((WIDTH,), float(number))
    results.put((number, sent.cuda().cpu()))
    received.wait(timeout=60)  # a tensor in shared memory ends with its process


def main() -> None:
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    received = context.Event()
    children = mp.spawn(work, (results, received), nprocs=PROCESSES, join=False)
    got = dict(results.get() for _ in range(PROCESSES))
    received.set()
    while not children.join(timeout=60):
        pass
    right = all(bool((got[number] == number).all()) for number in range(PROCESSES))
    common.tell(processes=PROCESSES, right=right)


if __name__ == "__main__":
    main()
