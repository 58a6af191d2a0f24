"""Several streams with events between them, pinned memory and overlapping copies."""

from __future__ import annotations

import common
import torch

WIDTH, STREAMS, ROUNDS = 512, 4, 6

torch.manual_seed(9)
matrix = torch.randn(WIDTH, WIDTH).cuda()
sent = [torch.randn(WIDTH, WIDTH).pin_memory() for _ in range(STREAMS)]
received = [torch.empty(WIDTH, WIDTH).pin_memory() for _ in range(STREAMS)]
streams = [torch.cuda.Stream(priority=-(n % 2)) for n in range(STREAMS)]
torch.cuda.synchronize()
ends = []
for _ in range(ROUNDS):
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            there = sent[number].cuda(non_blocking=True)
            received[number].copy_(there, non_blocking=True)
            product = torch.relu(there @ matrix)
            product.record_stream(torch.cuda.current_stream())
            ends.append(torch.cuda.Event())
            ends[-1].record()
    for end in ends:
        torch.cuda.current_stream().wait_event(end)
torch.cuda.synchronize()
same = all(torch.equal(a, b) for a, b in zip(sent, received, strict=True))
common.tell(streams=STREAMS, same=same)
