"""The common parts of programs in plain cuda-python: kernels, a GPU, answers as exceptions.

The programs use no name of pump: on a real GPU they would run unchanged.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

MIB = 1 << 20
SOURCE = b"""
struct Two { float *out; const float *in; int n; };
__device__ int counter = 7;
__device__ float table[100];
__managed__ int shared_flag;
extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
  if (i == 0) counter += shared_flag;
}
extern "C" __global__ void scale(float *a, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] *= factor + table[0];
}
extern "C" __global__ void __launch_bounds__(256) through_struct(Two two, char bias) {
  __shared__ float part[64];
  part[threadIdx.x % 64] = bias;
  __syncthreads();
  for (int i = 0; i < two.n; i++) two.out[i] = two.in[i] + part[(threadIdx.x + 1) % 64];
}
"""
POINTER = ctypes.c_void_p
ADD = (POINTER, POINTER, POINTER, ctypes.c_int)
SCALE = (POINTER, ctypes.c_float, ctypes.c_int)


class DriverError(Exception):
    """A call did not return CUDA_SUCCESS; `code` is its answer."""

    def __init__(self, code: Any) -> None:
        super().__init__(str(code))
        self.code = int(code)


def ask(answer: tuple[Any, ...]) -> Any:
    """Returns the value of a driver call. Raises DriverError if the call failed."""
    if int(answer[0]) != 0:
        raise DriverError(answer[0])
    return answer[1] if len(answer) == 2 else answer[1:]


def code_of(answer: tuple[Any, ...]) -> int:
    return int(answer[0])


def compiled(kind: str, arch: int = 80) -> bytes:
    """Returns PTX or cubin of SOURCE for sm_`arch`."""
    program = ask(nvrtc.nvrtcCreateProgram(SOURCE, b"programs.cu", 0, [], []))
    flag = b"compute" if kind == "ptx" else b"sm"
    ask(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=%s_%d" % (flag, arch)]))
    if kind == "ptx":
        text = b" " * int(ask(nvrtc.nvrtcGetPTXSize(program)))
        ask(nvrtc.nvrtcGetPTX(program, text))
    else:
        text = b" " * int(ask(nvrtc.nvrtcGetCUBINSize(program)))
        ask(nvrtc.nvrtcGetCUBIN(program, text))
    return text


class Gpu:
    """Device 0 with its primary context current, and the kernels above."""

    def __init__(self, kind: str = "ptx") -> None:
        ask(cu.cuInit(0))
        self.device = ask(cu.cuDeviceGet(0))
        self.context = ask(cu.cuDevicePrimaryCtxRetain(self.device))
        ask(cu.cuCtxSetCurrent(self.context))
        self.module = ask(cu.cuModuleLoadData(compiled(kind)))
        self.stream = ask(cu.cuStreamCreate(1))

    def function(self, name: str) -> Any:
        return ask(cu.cuModuleGetFunction(self.module, name.encode()))

    def launch(self, name: str, values: tuple[Any, ...], types: Any, stream: Any = None) -> None:
        where = self.stream if stream is None else stream
        function = self.function(name)
        arguments = (values, types)
        ask(cu.cuLaunchKernel(function, 4096, 1, 1, 256, 1, 1, 0, where, arguments, 0))

    def array(self, values: np.ndarray[Any, Any], managed: bool = False) -> int:
        size = max(values.nbytes, 1)
        make = cu.cuMemAllocManaged(size, 1) if managed else cu.cuMemAlloc(size)
        address = int(ask(make))
        ask(cu.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))
        return address

    def read(self, address: int, count: int) -> np.ndarray[Any, Any]:
        values = np.empty(count, np.float32)
        ask(cu.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes))
        return values

    def sync(self) -> None:
        ask(cu.cuStreamSynchronize(self.stream))
