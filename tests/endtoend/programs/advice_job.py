"""Sweeps through managed and device memory after giving advice.

Usage: advice_job.py ADVICE:MIB... Gives the advice to both. Prints CUDA's answers to advice,
prefetches, discards and attribute queries on device memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cuda.bindings import driver as cu

MIB = 1 << 20
BYTES = 96 * MIB
PIECE = 8 * MIB
LAST_PREFETCH = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION


def ask(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


def main() -> None:
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(ask(cu.cuDeviceGet(0))))))
    managed = int(ask(cu.cuMemAllocManaged(BYTES, 1)))
    plain = int(ask(cu.cuMemAlloc(BYTES)))
    where = cu.CUmemLocation()
    where.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    answers = []
    for word in sys.argv[1:]:
        number, mib = (int(part) for part in word.split(":"))
        advice = cu.CUmem_advise(number)
        ask(cu.cuMemAdvise(managed, mib * MIB, advice, where))
        answers.append(int(cu.cuMemAdvise(plain, mib * MIB, advice, where)[0]))
    stream = ask(cu.cuStreamCreate(1))
    for memory in (managed, plain):
        batch = [cu.CUdeviceptr(memory)], [PIECE], 1
        hints = (
            cu.cuMemPrefetchAsync(memory, PIECE, where, 0, stream),
            cu.cuMemPrefetchBatchAsync(*batch, [where], [0], 1, 0, stream),
            cu.cuMemDiscardBatchAsync(*batch, 0, stream),
            cu.cuMemRangeGetAttribute(4, LAST_PREFETCH, memory, PIECE),
            cu.cuMemRangeGetAttributes([4], [LAST_PREFETCH], 1, memory, PIECE),
        )
        codes = [int(hint[0]) for hint in hints]
        if memory == managed:
            assert codes == [0] * len(hints), codes
    answers += codes
    for _ in range(4):
        for memory in (managed, plain):
            for offset in range(0, BYTES, PIECE):
                ask(cu.cuMemsetD32Async(memory + offset, 7, PIECE // 4, stream))
    ask(cu.cuStreamSynchronize(stream))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
