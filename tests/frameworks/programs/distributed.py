"""One of the processes of torchrun: data parallel over gloo; all processes share the one GPU."""

from __future__ import annotations

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 256, 32

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(11)
model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH).cuda())


def loss_of(step: int) -> torch.Tensor:
    return model(torch.randn(BATCH, WIDTH).cuda()).square().mean()


common.train(model, loss_of)
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
if rank == 0:
    common.tell(processes=size, total=float(total))
dist.barrier()
dist.destroy_process_group()
