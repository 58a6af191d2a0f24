"""Question: reading managed memory in place, on the host, by the size of the rows that are read."""

from __future__ import annotations

import ctypes

from probe.driver import KIB, MIB, TO_HOST, U32, U64, call
from probe.figures import Json, gbps, rounded, undisturbed
from probe.gpu import Gpu, Launch, kernel_of, load_module
from probe.kernels import cached_kernels
from probe.questions.ask_duplicates import arguments
from probe.registry import Notes, question

LENGTH, STRIDE = 256 * MIB, 4 * KIB
ROW_BYTES = (128, 512, 2 * KIB, 4 * KIB)
ROWS = LENGTH // STRIDE
SET_ACCESSED_BY, UNSET_ACCESSED_BY = 5, 6
"""cuda.h: CU_MEM_ADVISE_*."""
PASSES = 5

# Each warp reads one row after the other, in an order that visits all rows once.
SOURCE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
extern "C" __global__ void probe_rows(const u32 *data, u64 stride_words, u32 row_words, u32 rows,
                                      u32 *sink) {
  u32 acc = 0, warps = gridDim.x * blockDim.x / 32;
  for (u32 r = (blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps)
    for (u32 w = threadIdx.x % 32; w < row_words; w += 32)
      acc += data[(u64)(r * 2654435761u % rows) * stride_words + w];
  if (acc == 0x9e3779b9u) *sink = acc;
}
"""


@question(30, "what sparse reads in place gain over migration; whether the memory then stays put")
def ask_remote(gpu: Gpu, out: Notes) -> None:
    gpu.warm_up()
    address, sink = gpu.written(LENGTH), gpu.plain(4 * KIB)
    function = kernel_of(load_module(cached_kernels(gpu.cache, gpu.arch, SOURCE)), "probe_rows")

    def reading(row_bytes: int) -> Launch:
        values = (U64(address), U64(STRIDE // 4), U32(row_bytes // 4), U32(ROWS), U64(sink))
        holder = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        return Launch((function, gpu.wide, 1, 1, 256, 1, 1, 0), holder, values)

    for row_bytes in ROW_BYTES:
        launch = reading(row_bytes)
        row: Json = {}
        gpu.move(address, LENGTH, TO_HOST)
        row["migrated_us"] = rounded(gpu.kernel_ns(launch) / 1e3)
        row["resident_us"] = rounded(gpu.kernel_ns(launch) / 1e3)
        gpu.move(address, LENGTH, TO_HOST)
        call(*arguments(gpu, address, LENGTH, SET_ACCESSED_BY))
        spent = [gpu.kernel_ns(launch) for _ in range(PASSES)]
        call(*arguments(gpu, address, LENGTH, UNSET_ACCESSED_BY))
        row["in_place_us"] = [rounded(one / 1e3) for one in spent]
        row["gbps"] = gbps(ROWS * row_bytes, undisturbed(spent))
        out[f"rows_of_{row_bytes}"] = row
