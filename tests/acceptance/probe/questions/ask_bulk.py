"""Question: bulk copies (sm_90) of managed memory: reads, writes, reductions, multicast.

Another tool that made device memory managed saw a kernel with such copies fail (nvshare 29).
"""

from __future__ import annotations

import ctypes
from typing import Any

from probe.driver import BLOCK, MIB, TO_HOST, U32, U64, UnsupportedError
from probe.figures import Json, rounded
from probe.gpu import Gpu, Launch, kernel_of, load_module
from probe.kernels import cached_kernels
from probe.moves import sliced
from probe.questions.ask_tma import ARCH_LEAST, BLOCKS, BOX_WORDS, encoded, running_module
from probe.registry import Notes, question
from probe.threads import Worker

FIRST = 0x1000
"""Word 0 of block b is FIRST + b before each run."""
ROUNDS = 4
LONG_ROUNDS = 20_000
"""Rounds while another thread evicts the memory: some 20 ms without faults."""
OUT_SLICE = 8 * MIB

# Each thread block has one thread and copies one tile of 256 bytes, `rounds` times. `sink` gets the
# number of right reads. A cluster of two thread blocks reads one tile by multicast.
SOURCE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) tensor_map { u64 words[16]; };
#define TILE_BYTES 256
#define ARGUMENTS u32 *data, const __grid_constant__ tensor_map map, u32 stride_words, \
                  u32 rounds, u32 *sink
static __device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
static __device__ void fence(void) { asm volatile("fence.proxy.async;" ::: "memory"); }
static __device__ void begin(u32 gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(gate) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence();
}
static __device__ void expect(u32 gate) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(gate), "r"(TILE_BYTES) : "memory");
}
static __device__ void await(u32 gate, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(gate), "r"(parity) : "memory");
}
static __device__ void written(void) {
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
static __device__ void set(u32 *tile, u32 value) {
  for (int i = 0; i < 64; i++) tile[i] = value;
  fence();
}
extern "C" __global__ void bulk_read(ARGUMENTS) {
  __shared__ alignas(128) u32 tile[64];
  __shared__ alignas(8) u64 barrier;
  u32 gate = shared_address(&barrier), right = 0;
  begin(gate);
  for (u32 round = 0; round < rounds; round++) {
    expect(gate);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(tile)), "l"(data + (u64)blockIdx.x * stride_words),
                 "r"(TILE_BYTES), "r"(gate) : "memory");
    await(gate, round & 1);
    right += tile[0] == 0x1000 + blockIdx.x;
    fence();
  }
  sink[blockIdx.x] = right;
}
extern "C" __global__ void bulk_write(ARGUMENTS) {
  __shared__ alignas(128) u32 tile[64];
  for (u32 round = 0; round < rounds; round++) {
    set(tile, round + 1);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(data + (u64)blockIdx.x * stride_words), "r"(shared_address(tile)),
                 "r"(TILE_BYTES) : "memory");
    written();
  }
}
extern "C" __global__ void bulk_add(ARGUMENTS) {
  __shared__ alignas(128) u32 tile[64];
  set(tile, 1);
  for (u32 round = 0; round < rounds; round++) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                 ::"l"(data + (u64)blockIdx.x * stride_words), "r"(shared_address(tile)),
                 "r"(TILE_BYTES) : "memory");
    written();
  }
}
extern "C" __global__ void tensor_write(ARGUMENTS) {
  __shared__ alignas(128) u32 tile[64];
  int first = (int)(blockIdx.x * stride_words);
  for (u32 round = 0; round < rounds; round++) {
    set(tile, round + 1);
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];"
                 ::"l"(&map), "r"(first), "r"(shared_address(tile)) : "memory");
    written();
  }
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) tensor_multicast(ARGUMENTS) {
  __shared__ alignas(128) u32 tile[64];
  __shared__ alignas(8) u64 barrier;
  u32 gate = shared_address(&barrier), right = 0, block = blockIdx.x / 2;
  begin(gate);
  for (u32 round = 0; round < rounds; round++) {
    expect(gate);
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    if (blockIdx.x % 2 == 0)
      asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile"
                   ".mbarrier::complete_tx::bytes.multicast::cluster"
                   " [%0], [%1, {%2}], [%3], %4;"
                   ::"r"(shared_address(tile)), "l"(&map), "r"((int)(block * stride_words)),
                   "r"(gate), "h"((unsigned short)3) : "memory");
    await(gate, round & 1);
    right += tile[0] == 0x1000 + block;
    fence();
  }
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  sink[blockIdx.x] = right;
}
"""
KERNELS = ("bulk_read", "bulk_write", "bulk_add", "tensor_write", "tensor_multicast")


class Copies:
    """The kernels' memory and arguments."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.length = gpu, BLOCKS * BLOCK
        self.address, self.sink = gpu.managed(self.length), gpu.pinned(2 * BLOCKS * 4)
        self.held, self.descriptor = encoded(self.address, self.length)
        self.module = load_module(cached_kernels(gpu.cache, gpu.arch, SOURCE))

    def word(self, block: int) -> Any:
        return ctypes.c_uint32.from_address(self.address + block * BLOCK)

    def launch(self, name: str, rounds: int) -> Launch:
        values = (U64(self.address), self.descriptor, U32(BLOCK // 4), U32(rounds), U64(self.sink))
        holder = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        grid = 2 * BLOCKS if name == "tensor_multicast" else BLOCKS
        return Launch((kernel_of(self.module, name), grid, 1, 1, 1, 1, 1, 0), holder, values)

    def prepare(self, to: int) -> None:
        for block in range(BLOCKS):
            (ctypes.c_uint32 * BOX_WORDS).from_address(self.address + block * BLOCK)[:] = [
                FIRST + block
            ] * BOX_WORDS
        ctypes.memset(self.sink, 0, 2 * BLOCKS * 4)
        self.gpu.move(self.address, self.length, to)

    def right(self, name: str, rounds: int) -> bool:
        """Compares what the kernel read, or what it left in memory."""
        counts = list((ctypes.c_uint32 * (2 * BLOCKS)).from_address(self.sink))
        if name in ("bulk_read", "tensor_multicast"):
            readers = 2 * BLOCKS if name == "tensor_multicast" else BLOCKS
            return counts[:readers] == [rounds] * readers
        left = [self.word(block).value for block in range(BLOCKS)]
        if name == "bulk_add":
            return left == [FIRST + block + rounds for block in range(BLOCKS)]
        return left == [rounds] * BLOCKS

    def run(self, name: str, rounds: int, to: int) -> Json:
        self.prepare(to)
        spent = self.gpu.kernel_ns(self.launch(name, rounds))
        return {"us": rounded(spent / 1e3), "bits_right": self.right(name, rounds)}

    def run_beside_evictions(self, name: str) -> Json:
        """Runs for long while another thread evicts the memory again and again."""
        self.prepare(0)
        stream, stop, passes = self.gpu.new_stream(), [False], [0]

        def evict() -> None:
            while not stop[0]:
                sliced(
                    self.gpu,
                    self.address,
                    self.length,
                    slice_length=OUT_SLICE,
                    to=TO_HOST,
                    stream=stream,
                )
                passes[0] += 1

        worker = Worker(self.gpu, evict)
        try:
            spent = self.gpu.kernel_ns(self.launch(name, LONG_ROUNDS))
        finally:
            stop[0] = True
            worker.finish()
        right = self.right(name, LONG_ROUNDS)
        return {"us": rounded(spent / 1e3), "bits_right": right, "evictions": passes[0]}


@question(30, "whether bulk copies of managed memory fault, write and add like other accesses")
def ask_bulk(gpu: Gpu, out: Notes) -> None:
    if gpu.arch < ARCH_LEAST:
        raise UnsupportedError(f"needs compute capability 9.0, this is {gpu.arch / 10}")
    copies = Copies(gpu)
    running_module(gpu, copies.sink)
    for name in KERNELS:
        for start, to in (("on_host", TO_HOST), ("resident", 0)):
            out[f"{name}_{start}"] = copies.run(name, ROUNDS, to)
    for name in KERNELS:
        out[f"{name}_leaving"] = copies.run_beside_evictions(name)
