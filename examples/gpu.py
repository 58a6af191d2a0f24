"""A thin layer over cuda.bindings for the training example: driver API and NVRTC.

It has one context, the default stream and separate allocations, and raises errors as exceptions.
It does not use pump: the examples are ordinary programs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cuda.bindings import driver, nvrtc

THREADS_PER_BLOCK = 128
MAX_BLOCKS = 65535


class GpuError(RuntimeError):
    """A driver or NVRTC call failed; the message names the call and the reason."""


def check(call: str, answer: Any) -> Any:
    """Returns the values of a cuda.bindings answer: None, one value or a tuple. Raises GpuError."""
    status, *values = answer
    if int(status) != 0:
        raise GpuError(f"{call} failed: {status.name}")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def load(library: str, remedy: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Makes the first call of a library, which loads it. Raises GpuError if that fails."""
    try:
        return check(call.__name__, call(*arguments))
    except GpuError:
        raise
    except RuntimeError:
        raise GpuError(f"{library} cannot be loaded; {remedy}") from None


def compile_kernels(source: Path, capability: tuple[int, int]) -> tuple[bytes, bytes]:
    """Compiles `source` for a compute capability; returns (cubin, PTX). Raises GpuError with
    NVRTC's log."""
    first = source.read_bytes(), source.name.encode(), 0, [], []
    remedy = "run: pip install nvidia-cuda-nvrtc scikit-learn"
    program = load("NVRTC", remedy, nvrtc.nvrtcCreateProgram, *first)
    option = f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode()
    answer = nvrtc.nvrtcCompileProgram(program, 1, [option])
    if int(answer[0]) != 0:
        size = check("nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize(program))
        log = b" " * size
        check("nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog(program, log))
        raise GpuError(f"NVRTC cannot compile {source}: {answer[0].name}\n{log.decode()}")
    cubin: bytes = b" " * check("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize(program))
    check("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN(program, cubin))
    ptx: bytes = b" " * check("nvrtcGetPTXSize", nvrtc.nvrtcGetPTXSize(program))
    check("nvrtcGetPTX", nvrtc.nvrtcGetPTX(program, ptx))
    check("nvrtcDestroyProgram", nvrtc.nvrtcDestroyProgram(program))
    return cubin, ptx


def load_module(cubin: bytes, ptx: bytes) -> Any:
    """Loads the module. Tries the cubin first, because a driver older than the compiler refuses
    its PTX. Raises GpuError."""
    status, module = driver.cuModuleLoadData(cubin)
    if int(status) == 0:
        return module
    return check("cuModuleLoadData", driver.cuModuleLoadData(ptx))


class Launch:
    """A kernel with its arguments packed once; `values[i].value` may change between launches.

    The driver copies the arguments at each launch.
    """

    def __init__(self, function: Any, values: Sequence[Any], items: int) -> None:
        self.values = list(values)
        self._function = function
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._blocks = min(MAX_BLOCKS, -(-items // THREADS_PER_BLOCK))

    def __call__(self) -> None:
        pointers = ctypes.addressof(self._pointers)
        answer = driver.cuLaunchKernel(
            self._function, self._blocks, 1, 1, THREADS_PER_BLOCK, 1, 1, 0, 0, pointers, 0
        )
        check("cuLaunchKernel", answer)


class Gpu:
    """The driver's first GPU, with one module of kernels.

    With `managed`, allocations are Unified Memory.
    """

    def __init__(self, kernels: Path, managed: bool) -> None:
        self._managed = managed
        self._addresses: list[int] = []
        self._functions: dict[str, Any] = {}
        load("the NVIDIA driver", "install it, or use a virtual GPU", driver.cuInit, 0)
        self._device = check("cuDeviceGet", driver.cuDeviceGet(0))
        name = check("cuDeviceGetName", driver.cuDeviceGetName(256, self._device))
        self.name = name.split(b"\0")[0].decode()
        context = check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(self._device))
        check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
        self._module = load_module(*compile_kernels(kernels, self._capability()))

    def _capability(self) -> tuple[int, int]:
        attribute = driver.CUdevice_attribute
        major, minor = (
            check("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(which, self._device))
            for which in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        return major, minor

    def allocate(self, length_bytes: int) -> int:
        """Allocates memory; returns its address."""
        if self._managed:
            flag = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
            answer = driver.cuMemAllocManaged(length_bytes, flag)
            address = check(f"cuMemAllocManaged of {length_bytes} bytes", answer)
        else:
            answer = driver.cuMemAlloc(length_bytes)
            address = check(f"cuMemAlloc of {length_bytes} bytes", answer)
        self._addresses.append(int(address))
        return int(address)

    def access_in_place(self, address: int, length_bytes: int) -> None:
        """Advises Unified Memory: the GPU accesses on the host what is there."""
        advice = driver.CUmem_advise.CU_MEM_ADVISE_SET_ACCESSED_BY
        location = driver.CUmemLocation()
        location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        check("cuMemAdvise", driver.cuMemAdvise(address, length_bytes, advice, location))

    def launch(self, kernel: str, values: Sequence[Any], items: int) -> Launch:
        """Returns a launch of `kernel` with one thread for each item, ready to be called."""
        if kernel not in self._functions:
            answer = driver.cuModuleGetFunction(self._module, kernel.encode())
            self._functions[kernel] = check(f"cuModuleGetFunction of {kernel}", answer)
        return Launch(self._functions[kernel], values, items)

    def upload(self, address: int, host_address: int, length_bytes: int) -> None:
        """Copies to the GPU. The source may be reused afterwards."""
        check("cuMemcpyHtoD", driver.cuMemcpyHtoD(address, host_address, length_bytes))

    def download(self, host_address: int, address: int, length_bytes: int) -> None:
        """Copies from the GPU, after every operation issued earlier."""
        check("cuMemcpyDtoH", driver.cuMemcpyDtoH(host_address, address, length_bytes))

    def synchronise(self) -> None:
        """Waits until all issued operations have run."""
        check("cuCtxSynchronize", driver.cuCtxSynchronize())

    def close(self) -> None:
        """Frees everything."""
        for address in self._addresses:
            check("cuMemFree", driver.cuMemFree(address))
        self._addresses.clear()
        check("cuModuleUnload", driver.cuModuleUnload(self._module))
        check("cuDevicePrimaryCtxRelease", driver.cuDevicePrimaryCtxRelease(self._device))
