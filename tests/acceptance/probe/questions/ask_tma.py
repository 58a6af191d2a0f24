"""Question: kernels that access managed memory through a tensor map (TMA, since sm_90)."""

from __future__ import annotations

import ctypes
from typing import Any

from probe.driver import BLOCK, TO_HOST, U32, U64, UnsupportedError, call
from probe.figures import Json, rounded
from probe.gpu import Gpu, Launch, kernel_of, load_module
from probe.kernels import cached_kernels
from probe.registry import Notes, question

ARCH_LEAST = 90
BOX_WORDS, BLOCKS = 64, 16
MAP_WORDS, MAP_ALIGNMENT = 16, 64  # CUtensorMap: 128 bytes
DATA_UINT32 = 2
CONTROL = 0x600DF00D

# One thread reads the first words of each 2 MiB block through the map.
SOURCE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) tensor_map { u64 words[16]; };
extern "C" __global__ void tma_control(u32 *sink, u32 value) { sink[blockIdx.x] = value; }
extern "C" __global__ void tma_read(const __grid_constant__ tensor_map map, u32 stride_words,
                                    u32 *sink) {
  __shared__ alignas(128) u32 tile[64];
  __shared__ alignas(8) u64 barrier;
  u32 gate = (u32)__cvta_generic_to_shared(&barrier);
  u32 to = (u32)__cvta_generic_to_shared(tile), done = 0;
  int first = (int)(blockIdx.x * stride_words);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(gate) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(gate), "r"((u32)sizeof tile) : "memory");
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2}], [%3];"
               ::"r"(to), "l"(&map), "r"(first), "r"(gate) : "memory");
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(gate) : "memory");
  sink[blockIdx.x] = tile[0] ^ tile[63];
}
"""


@question(30, "operands that a kernel reaches through a tensor map alone: faults, bits, layout")
def ask_tma(gpu: Gpu, out: Notes) -> None:
    if gpu.arch < ARCH_LEAST:
        raise UnsupportedError(f"needs compute capability 9.0, this is {gpu.arch / 10}")
    length = BLOCKS * BLOCK
    address, sink = gpu.managed(length), gpu.pinned(BLOCKS * 4)
    held, descriptor = encoded(address, length)
    out["descriptor"] = layout(bytes(descriptor), address)
    # Compare two addresses to find the bits that change with the address.
    other, moved = encoded(address + BLOCK, length - BLOCK)
    out["words_that_move_with_the_address"] = [
        index for index in range(MAP_WORDS) if descriptor[index] != moved[index]
    ]
    del other
    module = running_module(gpu, sink)
    read = launch_of(module, "tma_read", descriptor, U32(BLOCK // 4), U64(sink))
    for block in range(BLOCKS):
        tile = (ctypes.c_uint32 * BOX_WORDS).from_address(address + block * BLOCK)
        tile[0], tile[BOX_WORDS - 1] = 0x1000 + block, 0
    expected = [0x1000 + block for block in range(BLOCKS)]
    for name, to in (("on_host", TO_HOST), ("resident", 0)):
        rows = []
        for _ in range(5):
            gpu.move(address, length, to)
            ctypes.memset(sink, 0, BLOCKS * 4)
            spent = gpu.kernel_ns(read)
            rows.append((spent, words(sink) == expected))
        out[name] = {
            "us": rounded(min(spent for spent, _ in rows) / 1e3),
            "bits_right": all(right for _, right in rows),
        }
    again_ns = gpu.kernel_ns(read)
    out["resident_again_us"] = rounded(again_ns / 1e3)
    del held


def running_module(gpu: Gpu, sink: int) -> Any:
    """Returns the module of SOURCE. `sink`: pinned words, one for each block. Raises
    UnsupportedError if its kernels do not run, as on a virtual GPU."""
    module = load_module(cached_kernels(gpu.cache, gpu.arch, SOURCE))
    gpu.launch(launch_of(module, "tma_control", U64(sink), U32(CONTROL)))
    gpu.sync()
    if words(sink) != [CONTROL] * BLOCKS:
        raise UnsupportedError("kernels do not run here: the control wrote nothing")
    return module


def launch_of(module: Any, name: str, *values: Any) -> Launch:
    """Prepares one thread in each of BLOCKS thread blocks."""
    holder = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    return Launch((kernel_of(module, name), BLOCKS, 1, 1, 1, 1, 1, 0), holder, values)


def encoded(address: int, length: int) -> tuple[Any, Any]:
    """Returns the memory to keep alive, and the CUtensorMap of `length` bytes as one row."""
    backing = (ctypes.c_ubyte * (MAP_WORDS * 8 + MAP_ALIGNMENT))()
    start = -(-ctypes.addressof(backing) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    found = (U64 * MAP_WORDS).from_address(start)
    size, strides = (U64 * 1)(length // 4), (U64 * 1)(4)
    box, steps = (U32 * 1)(BOX_WORDS), (U32 * 1)(1)
    call(
        "cuTensorMapEncodeTiled",
        start,
        DATA_UINT32,
        1,
        address,
        size,
        strides,
        box,
        steps,
        *(0, 0, 0, 0),  # interleave, swizzle, promotion, fill: none
    )
    return backing, found


def layout(descriptor: bytes, address: int) -> Json:
    """Finds the address in the descriptor, as a byte offset."""
    at = descriptor.find(address.to_bytes(8, "little"))
    return {"hex": descriptor.hex(), "address": f"{address:#x}", "address_at_byte": at}


def words(address: int) -> list[int]:
    return list((ctypes.c_uint32 * BLOCKS).from_address(address))
