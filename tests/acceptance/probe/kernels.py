"""The kernels that questions launch, and their compilation by NVRTC."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from probe.driver import CudaError, UnsupportedError, must

KERNELS = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct pair { u32 *data; u64 words; };
static __device__ u64 clock_ns(void) {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
#define FIRST (blockIdx.x * (u64)blockDim.x + threadIdx.x)
#define STEP (gridDim.x * (u64)blockDim.x)

extern "C" __global__ void probe_empty(void) {}
extern "C" __global__ void probe_spin(u64 time_ns) {
  u64 start = clock_ns();
  while (clock_ns() - start < time_ns) {}
}
extern "C" __global__ void probe_fill(u32 *data, u64 words, u32 value) {
  for (u64 i = FIRST; i < words; i += STEP) data[i] = value;
}
extern "C" __global__ void probe_sum(const uint4 *data, u64 quads, u32 *sink) {
  u32 acc = 0;
  for (u64 i = FIRST; i < quads; i += STEP) { uint4 v = data[i]; acc += v.x ^ v.y ^ v.z ^ v.w; }
  if (acc == 0x9e3779b9u) *sink = acc;
}
extern "C" __global__ void probe_copy(uint4 *to, const uint4 *from, u64 quads) {
  for (u64 i = FIRST; i < quads; i += STEP) to[i] = from[i];
}
/* Thread i adds 1 to one word of slot order[i] (or i): one page a thread, all at once. */
extern "C" __global__ void probe_touch(u32 *data, u64 stride_words, const u32 *order, u64 count) {
  u64 i = FIRST;
  if (i < count) data[(order ? order[i] : i) * stride_words] += 1;
}
/* One thread, one word after the other, each load waiting for the one before. */
extern "C" __global__ void probe_chain(u32 *data, u64 stride_words, u64 count, u32 *sink) {
  u64 shift = 0;
  for (u64 i = 0; i < count; i++)
    shift += ((volatile u32 *)data)[i * stride_words + shift] == 0xfffffff7u;
  if (shift) *sink = (u32)shift;
}
extern "C" __global__ void probe_struct(u32 tag, struct pair p, unsigned short scale, double last) {
  if (p.words == 77 && FIRST == 0) p.data[0] = tag + scale + (u32)last;
}
"""


Images = tuple[bytes, bytes]  # cubin and PTX of one source


def cached_kernels(cache: Path | None, arch: int, source: str = KERNELS) -> Images:
    """Runs compile_kernels once for all children that share the folder `cache`."""
    if cache is None:
        return compile_kernels(arch, source)
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    file = cache / f"{digest}-sm_{arch}"
    if not file.exists():
        fresh = cache / f".{file.name}.{os.getpid()}"
        cubin, ptx = compile_kernels(arch, source)
        fresh.write_bytes(len(cubin).to_bytes(8, "little") + cubin + ptx)
        fresh.replace(file)
    found = file.read_bytes()
    end = 8 + int.from_bytes(found[:8], "little")
    return found[8:end], found[end:]


def compile_kernels(arch: int, source: str = KERNELS) -> Images:
    """Compiles `source` for sm_<arch> with NVRTC. Raises UnsupportedError with the reason."""
    try:
        from cuda.bindings import nvrtc

        program = must(
            nvrtc.nvrtcCreateProgram(source.encode(), b"gpu_probe.cu", 0, [], []), "nvrtcCreate"
        )
        options = [f"--gpu-architecture=sm_{arch}".encode()]
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]) != 0:
            log = b" " * must(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
            nvrtc.nvrtcGetProgramLog(program, log)
            raise UnsupportedError(f"NVRTC refuses the kernels: {log.decode(errors='replace')}")
        images = []
        for kind in ("CUBIN", "PTX"):
            image = b" " * must(getattr(nvrtc, f"nvrtcGet{kind}Size")(program), kind)
            must(getattr(nvrtc, f"nvrtcGet{kind}")(program, image), kind)
            images.append(image)
        return images[0], images[1]
    except (ImportError, RuntimeError, OSError, CudaError) as error:
        raise UnsupportedError(f"no kernels, NVRTC is missing or fails: {error}") from error
