"""Programs in plain cuda-python and NVRTC, run on the virtual driver by the tests.

Usage: driver_programs.py NAME [argument ...]; prints one JSON value. They use no name
of pump: on a real GPU they would run unchanged.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import sys
import threading
import time
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
    """A call did not answer CUDA_SUCCESS; `code` is its answer."""

    def __init__(self, code: Any) -> None:
        super().__init__(str(code))
        self.code = int(code)


def ask(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call. Raises DriverError."""
    if int(answer[0]) != 0:
        raise DriverError(answer[0])
    return answer[1] if len(answer) == 2 else answer[1:]


def code_of(answer: tuple[Any, ...]) -> int:
    return int(answer[0])


def compiled(kind: str, arch: int = 80) -> bytes:
    """PTX or cubin of SOURCE for sm_`arch`."""
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


def vector_add(kind: str) -> Any:
    gpu = Gpu(kind)
    n = 1 << 18
    a, b = np.random.rand(n).astype(np.float32), np.random.rand(n).astype(np.float32)
    c = np.zeros(n, np.float32)
    where = [gpu.array(a), gpu.array(b, managed=True), gpu.array(c, managed=True)]
    gpu.launch("add", (*where, n), ADD)
    gpu.launch("scale", (where[2], 3.0, n), SCALE)
    gpu.sync()
    return bool(np.array_equal(gpu.read(where[2], n), (a + b) * np.float32(3)))


def missing_kernel() -> Any:
    gpu = Gpu()
    values = (gpu.array(np.ones(4, np.float32)), 2.0, 4)
    return code_of(
        cu.cuLaunchKernel(
            gpu.function("scale"), 1, 1, 1, 32, 1, 1, 0, gpu.stream, (values, SCALE), 0
        )
    )


def parameters(kind: str) -> Any:
    """Layouts of parameters as function and kernel handles tell them."""
    gpu = Gpu(kind)
    library = ask(cu.cuLibraryLoadData(compiled(kind), [], [], 0, [], [], 0))
    found: dict[str, Any] = {}
    for name in ("add", "through_struct"):
        kernel = ask(cu.cuLibraryGetKernel(library, name.encode()))
        layouts: list[list[list[int]]] = []
        for asker, handle in (
            (cu.cuFuncGetParamInfo, gpu.function(name)),
            (cu.cuKernelGetParamInfo, kernel),
        ):
            layout: list[list[int]] = []
            while int((answer := asker(handle, len(layout)))[0]) == 0:
                layout.append([int(value) for value in answer[1:]])
            assert int(answer[0]) == 1
            layouts.append(layout)
        assert layouts[0] == layouts[1]
        found[name] = layouts[0]
    attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    function = gpu.function("through_struct")
    found["max_threads"] = ask(cu.cuFuncGetAttribute(attribute, function))
    found["shared_bytes"] = ask(cu.cuFuncGetAttribute(shared, function))
    count = ask(cu.cuLibraryGetKernelCount(library))
    found["kernels"] = sorted(
        ask(cu.cuKernelGetName(kernel)).decode()
        for kernel in ask(cu.cuLibraryEnumerateKernels(count, library))
    )
    found["missing"] = code_of(cu.cuModuleGetFunction(gpu.module, b"none"))
    return found


def globals_of_module(kind: str) -> Any:
    gpu = Gpu(kind)
    address, size = ask(cu.cuModuleGetGlobal(gpu.module, b"counter"))
    value = np.zeros(1, np.int32)
    ask(cu.cuMemcpyDtoH(value.ctypes.data, address, 4))
    flag, _ = ask(cu.cuModuleGetGlobal(gpu.module, b"shared_flag"))
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    _, table = ask(cu.cuModuleGetGlobal(gpu.module, b"table"))
    return {
        "counter": [int(value[0]), int(size)],
        "table_bytes": int(table),
        "managed": int(ask(cu.cuPointerGetAttribute(attribute, flag))),
        "missing": code_of(cu.cuModuleGetGlobal(gpu.module, b"none")),
    }


def kernel_handle_launch() -> Any:
    """A CUkernel in place of a CUfunction, and a struct of pointers by value."""
    gpu = Gpu()
    library = ask(cu.cuLibraryLoadData(compiled("ptx"), [], [], 0, [], [], 0))
    kernel = ask(cu.cuLibraryGetKernel(library, b"through_struct"))
    n = 1000
    data = np.arange(n, dtype=np.float32)
    source, target = gpu.array(data), gpu.array(np.zeros(n, np.float32))

    class Two(ctypes.Structure):
        _fields_ = [("out", POINTER), ("source", POINTER), ("n", ctypes.c_int)]

    two, bias = Two(target, source, n), ctypes.c_byte(5)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(two), ctypes.addressof(bias))
    function = cu.CUfunction(int(kernel))
    ask(
        cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, gpu.stream, ctypes.addressof(pointers), 0)
    )
    gpu.sync()
    return bool(np.array_equal(gpu.read(target, n), data + 5))


def oversubscribed(blocks: str, rounds: str) -> Any:
    """Sweeps over `blocks` arrays of 8 MiB, `rounds` times: seconds, milliseconds of events."""
    gpu = Gpu()
    arrays = [int(ask(cu.cuMemAllocManaged(8 * MIB, 1))) for _ in range(int(blocks))]
    first, last = ask(cu.cuEventCreate(0)), ask(cu.cuEventCreate(0))
    began = time.perf_counter()
    ask(cu.cuEventRecord(first, gpu.stream))
    for _ in range(int(rounds)):
        for address in arrays:
            gpu.launch("scale", (address, 1.0, 1), SCALE)
    ask(cu.cuEventRecord(last, gpu.stream))
    ask(cu.cuEventSynchronize(last))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "event_ms": ask(cu.cuEventElapsedTime(first, last))}


def memory_limit() -> Any:
    gpu = Gpu()
    free, total = ask(cu.cuMemGetInfo())
    held = ask(cu.cuMemAlloc(total // 2))
    again = code_of(cu.cuMemAlloc(total // 2 + 2 * MIB))
    managed = code_of(cu.cuMemAllocManaged(2 * total, 1))
    ask(cu.cuMemFree(held))
    after = code_of(cu.cuMemAlloc(total // 2 + 2 * MIB))
    del gpu
    return {"free": free, "total": total, "codes": [again, managed, after]}


def few_addresses(gib: str) -> Any:
    resource.setrlimit(resource.RLIMIT_AS, (int(gib) << 30, int(gib) << 30))
    started = code_of(cu.cuInit(0))
    return vector_add("ptx") if started == 0 else started


def stream_order() -> Any:
    """Events between two streams order a chain of copies and memsets."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    event = ask(cu.cuEventCreate(2))
    a, b = int(ask(cu.cuMemAlloc(4 * MIB))), int(ask(cu.cuMemAllocManaged(4 * MIB, 1)))
    wrong = 0
    for value in range(50):
        ask(cu.cuMemsetD32Async(a, value, MIB, gpu.stream))
        ask(cu.cuEventRecord(event, gpu.stream))
        ask(cu.cuStreamWaitEvent(other, event, 0))
        ask(cu.cuMemcpyDtoDAsync(b, a, 4 * MIB, other))
        ask(cu.cuEventRecord(event, other))
        ask(cu.cuStreamWaitEvent(gpu.stream, event, 0))
        if value % 10 == 9:
            ask(cu.cuStreamSynchronize(other))
            seen = np.zeros(MIB, np.uint32)
            ask(cu.cuMemcpyDtoH(seen.ctypes.data, b, seen.nbytes))
            wrong += int(np.count_nonzero(seen != value))
    return wrong


def pageable_source() -> Any:
    """The program overwrites its buffer as soon as the asynchronous copy has returned."""
    gpu = Gpu()
    wrong = 0
    for size in (4096, 8 * MIB):
        target = int(ask(cu.cuMemAlloc(size)))
        buffer = np.full(size, 1, np.uint8)
        ask(cu.cuMemcpyHtoDAsync(target, buffer.ctypes.data, size, gpu.stream))
        buffer[:] = 2
        gpu.sync()
        seen = np.zeros(size, np.uint8)
        ask(cu.cuMemcpyDtoH(seen.ctypes.data, target, size))
        wrong += int(np.count_nonzero(seen != 1))
    return wrong


def copy_and_back(kib: str) -> Any:
    """Wall seconds of a copy from pinned memory and back, and whether its last byte came."""
    Gpu()
    length = int(kib) << 10
    there = ask(cu.cuMemHostAlloc(length, 0))
    back = ask(cu.cuMemHostAlloc(length, 0))
    for address in (there, back):
        ctypes.memset(address, 1 if address == there else 0, length)
    device = ask(cu.cuMemAlloc(length))
    began = time.monotonic()
    ask(cu.cuMemcpyHtoD(device, there, length))
    ask(cu.cuMemcpyDtoH(back, device, length))
    spent = time.monotonic() - began
    return {"seconds": spent, "arrived": ctypes.string_at(back + length - 1, 1) == b"\x01"}


def copies_2d_3d() -> Any:
    gpu = Gpu()
    source = np.arange(64 * 100, dtype=np.uint8).reshape(64, 100)
    address, pitch = ask(cu.cuMemAllocPitch(100, 64, 4))
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost = source.ctypes.data
    copy.srcPitch = 100
    copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = address
    copy.dstPitch = pitch
    copy.WidthInBytes, copy.Height = 100, 64
    ask(cu.cuMemcpy2D(copy))
    back = np.zeros((64, 100), np.uint8)
    deep = cu.CUDA_MEMCPY3D()
    deep.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    deep.srcDevice, deep.srcPitch, deep.srcHeight = address, pitch, 16
    deep.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    deep.dstHost, deep.dstPitch, deep.dstHeight = back.ctypes.data, 100, 16
    deep.WidthInBytes, deep.Height, deep.Depth = 100, 16, 4
    ask(cu.cuMemcpy3DAsync(deep, gpu.stream))
    gpu.sync()
    return bool(pitch % 512 == 0 and np.array_equal(back, source))


def host_function() -> Any:
    """Host functions run between the work before and behind them, on another thread."""
    gpu = Gpu()
    seen: list[Any] = []
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    device = int(ask(cu.cuMemAlloc(4)))

    def look(_: Any) -> None:
        seen.append((word.value, threading.get_native_id()))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
    function = cu.CUhostFn(ctypes.cast(callback, ctypes.c_void_p).value)
    for value in (3, 4):
        ask(cu.cuMemsetD32Async(device, value, 1, gpu.stream))
        ask(cu.cuMemcpyDtoHAsync(pinned, device, 4, gpu.stream))
        ask(cu.cuLaunchHostFunc(gpu.stream, function, 0))
    gpu.sync()
    return {
        "values": [value for value, _ in seen],
        "elsewhere": all(thread != threading.get_native_id() for _, thread in seen),
    }


def effect_without_a_call() -> Any:
    """A pinned word changes although the driver is not called."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    ask(cu.cuStreamWriteValue32(gpu.stream, pinned, 17, 0))
    end = time.monotonic() + 5
    while word.value != 17 and time.monotonic() < end:
        time.sleep(0.001)
    return word.value


def effect_beside_a_long_wait() -> Any:
    """A word changes in one stream while another runs one long kernel; milliseconds."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    pinned = int(ask(cu.cuMemHostAlloc(8, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    data = int(ask(cu.cuMemAlloc(4096)))
    gpu.launch("scale", (data, 1.0, 1), SCALE)
    ask(cu.cuStreamWriteValue32(gpu.stream, pinned + 4, 1, 0))
    time.sleep(0.01)
    began = time.monotonic()
    ask(cu.cuStreamWriteValue32(other, pinned, 17, 0))
    while word.value != 17 and time.monotonic() < began + 5:
        time.sleep(0.0001)
    taken = 1e3 * (time.monotonic() - began)
    return {"ms": taken, "busy": code_of(cu.cuStreamQuery(gpu.stream))}


def wait_value() -> Any:
    """A stream waits for a word; managed words are refused."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(8, 0)))
    word = ctypes.c_uint32.from_address(pinned)
    ask(cu.cuStreamWaitValue32(gpu.stream, pinned, 5, 0))
    before = code_of(cu.cuStreamQuery(gpu.stream))
    time.sleep(0.01)
    still = code_of(cu.cuStreamQuery(gpu.stream))
    word.value = 6
    gpu.sync()
    managed = int(ask(cu.cuMemAllocManaged(4096, 1)))
    refused = code_of(cu.cuStreamWriteValue32(gpu.stream, managed, 1, 0))
    return {"before": [before, still], "refused": refused}


def work_queues() -> Any:
    """Which of 33 streams wait where the first waits for another's kernel; of a priority, too."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAlloc(256 * MIB)))
    streams = [ask(cu.cuStreamCreate(1)) for _ in range(33)]
    least, greatest = (int(bound) for bound in ask(cu.cuCtxGetStreamPriorityRange()))
    others = [ask(cu.cuStreamCreateWithPriority(1, greatest)) for _ in range(33)]
    events = [ask(cu.cuEventCreate(0)) for _ in streams + others]
    ran = ask(cu.cuEventCreate(0))
    gpu.launch("scale", (data, 1.0, 1), SCALE)
    ask(cu.cuEventRecord(ran, gpu.stream))
    ask(cu.cuStreamWaitEvent(streams[0], ran, 0))
    for event, stream in zip(events, streams + others, strict=True):
        ask(cu.cuEventRecord(event, stream))
    stuck = [i for i, event in enumerate(events) if code_of(cu.cuEventQuery(event)) != 0]
    return {"stuck": stuck, "levels": least - greatest + 1}


def read_mostly(advice: str) -> Any:
    """Where managed memory was last prefetched to, under READ_MOSTLY and after it."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAllocManaged(8 * MIB, 1)))
    ask(cu.cuMemsetD32Async(data, 7, 2 * MIB, gpu.stream))
    gpu.sync()
    device, host = cu.CUmemLocation(), cu.CUmemLocation()
    device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    for number in advice.split():
        ask(cu.cuMemAdvise(data, 8 * MIB, cu.CUmem_advise(int(number)), device))
    ask(cu.cuMemPrefetchAsync(data, 8 * MIB, host, 0, gpu.stream))
    gpu.sync()
    last = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    return int(ask(cu.cuMemRangeGetAttribute(4, last, data, 8 * MIB)))


def capture() -> Any:
    gpu = Gpu()
    n = 4096
    data = gpu.array(np.ones(n, np.float32))
    other = int(ask(cu.cuMemAlloc(4 * n)))
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ask(cu.cuStreamBeginCapture(gpu.stream, mode))
    status = int(ask(cu.cuStreamIsCapturing(gpu.stream)))
    gpu.launch("scale", (data, 2.0, n), SCALE)
    ask(cu.cuMemsetD32Async(other, 0x40000000, n, gpu.stream))
    gpu.launch("add", (data, other, data, n), ADD)
    graph = ask(cu.cuStreamEndCapture(gpu.stream))
    untouched = float(gpu.read(data, 1)[0])
    graph_exec = ask(cu.cuGraphInstantiate(graph, 0))
    ask(cu.cuGraphDestroy(graph))
    for _ in range(3):
        ask(cu.cuGraphLaunch(graph_exec, gpu.stream))
    gpu.sync()
    ask(cu.cuGraphExecDestroy(graph_exec))
    return {"status": status, "untouched": untouched, "value": float(gpu.read(data, n)[-1])}


def capture_rules() -> Any:
    gpu = Gpu()
    modes = cu.CUstreamCaptureMode
    data = gpu.array(np.ones(16, np.float32))

    def attempt(mode: Any, call: Any, relaxed: bool = False) -> list[int]:
        ask(cu.cuStreamBeginCapture(gpu.stream, mode))
        gpu.launch("scale", (data, 2.0, 16), SCALE)
        if relaxed:
            old = modes.CU_STREAM_CAPTURE_MODE_RELAXED
            ask(cu.cuThreadExchangeStreamCaptureMode(old))
        code = code_of(call())
        if relaxed:
            ask(cu.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
        return [code, code_of(cu.cuStreamEndCapture(gpu.stream))]

    def elsewhere() -> tuple[Any, ...]:
        answers: list[tuple[Any, ...]] = []

        def allocate() -> None:
            ask(cu.cuCtxSetCurrent(gpu.context))
            answers.append(cu.cuMemAlloc(4096))

        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        return answers[0]

    every, local = modes.CU_STREAM_CAPTURE_MODE_GLOBAL, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ask(cu.cuStreamBeginCapture(gpu.stream, every))
    legacy = [
        code_of(cu.cuStreamSynchronize(gpu.stream)),
        code_of(cu.cuStreamEndCapture(gpu.stream)),
    ]
    return {
        "alloc": attempt(every, lambda: cu.cuMemAlloc(4096)),
        "managed": attempt(every, lambda: cu.cuMemAllocManaged(4096, 1)),
        "relaxed": attempt(every, lambda: cu.cuMemAlloc(4096), relaxed=True),
        "other_thread_global": attempt(every, elsewhere),
        "other_thread_local": attempt(local, elsewhere),
        "synchronize": legacy,
    }


def forked_capture() -> Any:
    """A second stream joins by event; without the join the capture fails."""
    gpu = Gpu()
    other = ask(cu.cuStreamCreate(1))
    fork, join = ask(cu.cuEventCreate(2)), ask(cu.cuEventCreate(2))
    n = 64
    data = gpu.array(np.ones(n, np.float32))
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    codes = []
    for joined in (True, False):
        ask(cu.cuStreamBeginCapture(gpu.stream, mode))
        ask(cu.cuEventRecord(fork, gpu.stream))
        ask(cu.cuStreamWaitEvent(other, fork, 0))
        gpu.launch("scale", (data, 5.0, n), SCALE, other)
        if joined:
            ask(cu.cuEventRecord(join, other))
            ask(cu.cuStreamWaitEvent(gpu.stream, join, 0))
        answer = cu.cuStreamEndCapture(gpu.stream)
        codes.append(code_of(answer))
    return codes


def prefetch(to_host: str) -> Any:
    """Prefetches as v2 and batch; the program's own view of the last location."""
    gpu = Gpu()
    size = 16 * MIB
    data = int(ask(cu.cuMemAllocManaged(size, 1)))
    ask(cu.cuMemsetD8Async(data, 7, size, gpu.stream))
    gpu.sync()
    location = cu.CUmemLocation()
    host = to_host == "host"
    kinds = cu.CUmemLocationType
    location.type = kinds.CU_MEM_LOCATION_TYPE_HOST if host else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    ask(cu.cuMemPrefetchAsync(data, size, location, 0, gpu.stream))
    gpu.sync()
    attribute = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    last = ask(cu.cuMemRangeGetAttribute(4, attribute, data, size))
    batch = code_of(
        cu.cuMemPrefetchBatchAsync(
            [cu.CUdeviceptr(data)], [size], 1, [location], [0], 1, 0, gpu.stream
        )
    )
    gpu.sync()
    ask(cu.cuMemFree(data))
    freed = code_of(cu.cuMemPrefetchAsync(data, size, location, 0, gpu.stream))
    return {"last": int(last), "batch": batch, "freed": freed}


def discarded() -> Any:
    """Reads managed memory after a discard and enough pressure to evict it."""
    gpu = Gpu()
    size = 16 * MIB
    ones = np.ones(size // 4, np.float32)
    kept, dead = gpu.array(ones, managed=True), gpu.array(ones, managed=True)
    ask(cu.cuMemDiscardBatchAsync([cu.CUdeviceptr(dead)], [size], 1, 0, gpu.stream))
    gpu.sync()
    pressure = [int(ask(cu.cuMemAllocManaged(16 * MIB, 1))) for _ in range(8)]
    for address in pressure:
        ask(cu.cuMemsetD8Async(address, 1, 16 * MIB, gpu.stream))
    gpu.sync()
    seen = [float(gpu.read(address, size // 4)[100]) for address in (kept, dead)]
    return {"kept": seen[0], "dead_is_ones": seen[1] == 1.0}


def handles() -> Any:
    """Stale and foreign handles answer errors."""
    gpu = Gpu()
    stream = ask(cu.cuStreamCreate(0))
    ask(cu.cuStreamDestroy(stream))
    event = ask(cu.cuEventCreate(0))
    ask(cu.cuEventDestroy(event))
    module = ask(cu.cuModuleLoadData(compiled("ptx")))
    function = ask(cu.cuModuleGetFunction(module, b"scale"))
    ask(cu.cuModuleUnload(module))
    del gpu
    return [
        code_of(cu.cuStreamSynchronize(stream)),
        code_of(cu.cuEventQuery(event)),
        code_of(cu.cuModuleGetFunction(module, b"scale")),
        code_of(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)),
    ]


def bad_images() -> Any:
    gpu = Gpu()
    cubin = compiled("cubin")
    newer = compiled("cubin", 90)
    del gpu
    return [
        code_of(cu.cuModuleLoadData(image))
        for image in (
            b"\x01\x02\x03\x04" + b"\0" * 100,
            b"hello, this is no PTX\0",
            b".version 8.0\n.target sm_80\n.entry broken(.param .u64\0",
            cubin[:40] + b"\xff" * 24 + cubin[64:],
            newer,
        )
    ] + [code_of(cu.cuModuleLoad(b"/nonexistent/file.cubin"))]


def fat_entry(kind: int, arch: int, payload: bytes, packed: str) -> bytes:
    """One entry of a fat binary; `packed` names a compression library or is empty."""
    flags, body = 0, payload
    if packed:
        library = ctypes.CDLL(packed)
        room = ctypes.create_string_buffer(2 * len(payload) + 1024)
        if "lz4" in packed:
            flags = 0x2000
            size = library.LZ4_compress_default(payload, room, len(payload), len(room))
        else:
            flags = 0x8000
            library.ZSTD_compress.restype = ctypes.c_size_t
            size = library.ZSTD_compress(
                room, ctypes.c_size_t(len(room)), payload, ctypes.c_size_t(len(payload)), 3
            )
        body = room.raw[:size]
    padded = body + b"\0" * (-len(body) % 8)
    header = struct.pack(
        "<HHIQIIHHIIIQQQ",
        *(kind, 0x101, 64, len(padded), len(body) if packed else 0, 0, 0, 0, arch, 0, 0),
        *(flags, 0, len(payload) if packed else 0),
    )
    return header + padded


def fat_binary(packed: str) -> Any:
    """The number of kernels of fat binaries; the best entry for the device wins."""
    Gpu()
    ptx, cubin, newer = compiled("ptx"), compiled("cubin"), compiled("cubin", 90)

    def counted(*entries: bytes) -> int:
        body = b"".join(entries)
        image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
        buffer = ctypes.create_string_buffer(image)
        wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(buffer), 0)
        counts = []
        for form in (image, wrapper):
            answer = cu.cuModuleLoadFatBinary(form)
            if code_of(answer) != 0:
                return -code_of(answer)
            counts.append(ask(cu.cuModuleGetFunctionCount(answer[1])))
        assert counts[0] == counts[1]
        return int(counts[0])

    foreign = fat_entry(2, 90, newer, packed)
    broken = bytearray(fat_entry(2, 80, cubin, packed))
    broken[80:120] = b"\xff" * 40
    return {
        "ptx": counted(foreign, fat_entry(1, 80, ptx, packed)),
        "cubin": counted(fat_entry(1, 80, b"nonsense", packed), fat_entry(2, 80, cubin, packed)),
        "foreign": counted(foreign),
        "broken": counted(bytes(broken)),
        "short": counted(fat_entry(2, 80, cubin, packed)[:100]),
    }


def many_threads() -> Any:
    """Eight threads with their own streams; every sum is right."""
    gpu = Gpu()
    wrong: list[int] = []

    def work(number: int) -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        stream = ask(cu.cuStreamCreate(1))
        n = 4096
        data = gpu.array(np.full(n, number, np.float32), managed=number % 2 == 0)
        for _ in range(50):
            gpu.launch("add", (data, data, data, n), ADD, stream)
            gpu.launch("scale", (data, 0.5, n), SCALE, stream)
            block = ask(cu.cuMemAllocAsync(65536, stream))
            ask(cu.cuMemFreeAsync(block, stream))
        ask(cu.cuStreamSynchronize(stream))
        wrong.append(int(np.count_nonzero(gpu.read(data, n) != number)))
        ask(cu.cuMemFree(data))
        ask(cu.cuStreamDestroy(stream))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [len(wrong), sum(wrong)]


def felt_in(context: str) -> Any:
    """How many launches return while a prefetch to the host is in its call, in the `same`
    context or in `another`."""
    gpu = Gpu()
    size = 32 * MIB
    data = int(ask(cu.cuMemAllocManaged(size, 1)))
    ask(cu.cuMemsetD8Async(data, 7, size, gpu.stream))
    gpu.sync()
    word = gpu.array(np.ones(1, np.float32))
    location = cu.CUmemLocation()
    location.type, location.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST, 0
    begins, beside = threading.Event(), 0

    def leave() -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        if context == "another":
            ask(cu.cuCtxCreate(None, 0, ask(cu.cuDeviceGet(0))))
        stream = ask(cu.cuStreamCreate(1))
        begins.set()
        ask(cu.cuMemPrefetchAsync(data, size, location, 0, stream))

    thread = threading.Thread(target=leave)
    thread.start()
    begins.wait()
    while thread.is_alive():
        gpu.launch("scale", (word, 1.0, 1), SCALE)
        beside += thread.is_alive()
        time.sleep(0.01)
    return beside


def default_streams() -> Any:
    """More threads one after another than streams exist, each with its default stream."""
    gpu = Gpu()
    data = int(ask(cu.cuMemAlloc(4096)))
    wrong: list[int] = []

    def work(number: int) -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        ask(cu.cuMemsetD32Async(data, number, 1024, 2))
        ask(cu.cuStreamSynchronize(2))
        seen = np.zeros(1024, np.uint32)
        ask(cu.cuMemcpyDtoH(seen.ctypes.data, data, 4096))
        wrong.append(int(np.count_nonzero(seen != number)))

    for number in range(1200):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
    return [len(wrong), sum(wrong)]


def fork_after_init() -> Any:
    Gpu()
    child = os.fork()
    if child == 0:
        codes = [code_of(cu.cuInit(0)), code_of(cu.cuDeviceGetCount()), code_of(cu.cuMemAlloc(4))]
        os._exit(0 if codes == [3, 3, 3] else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_before_init() -> Any:
    """Both load the driver; the child initialises it, then the parent."""
    code_of(cu.cuDriverGetVersion())
    child = os.fork()
    if child == 0:
        Gpu()
        os._exit(0 if vector_add("ptx") else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, vector_add("ptx")]


def exit_while_busy() -> Any:
    """Ends with a stream that waits for ever and work behind it."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    ask(cu.cuStreamWaitValue32(gpu.stream, pinned, 1, 0))
    data = gpu.array(np.ones(4, np.float32))
    for _ in range(500):
        gpu.launch("scale", (data, 1.0, 1), SCALE)
    return "ended"


def contexts() -> Any:
    ask(cu.cuInit(0))
    none = int(ask(cu.cuCtxGetCurrent()))
    without = code_of(cu.cuMemAlloc(4096))
    device = ask(cu.cuDeviceGet(0))
    inactive = ask(cu.cuDevicePrimaryCtxGetState(device))[1]
    context = ask(cu.cuCtxCreate(None, 0, device))
    ask(cu.cuCtxPushCurrent(context))
    popped = ask(cu.cuCtxPopCurrent())
    same = int(popped) == int(context)
    version = ask(cu.cuCtxGetApiVersion(context))
    ask(cu.cuCtxDestroy(context))
    destroyed = code_of(cu.cuCtxSetCurrent(context))
    return {
        "none": none,
        "without": without,
        "inactive": int(inactive),
        "same": same,
        "version": int(version) > 0,
        "destroyed": destroyed,
    }


def handles_for_others() -> Any:
    """IPC handles exist for memory of cuMemAlloc alone, and not for the process that made them."""
    gpu = Gpu()
    plain, managed = gpu.array(np.ones(4, np.float32)), gpu.array(np.ones(4, np.float32), True)
    handle = ask(cu.cuIpcGetMemHandle(plain))
    return {
        "managed": code_of(cu.cuIpcGetMemHandle(managed)),
        "nothing": code_of(cu.cuIpcGetMemHandle(4096)),
        "same process": code_of(cu.cuIpcOpenMemHandle(handle, 1)),
        "no handle": code_of(cu.cuIpcOpenMemHandle(cu.CUipcMemHandle(), 1)),
    }


def events_for_others() -> Any:
    """A handle exists for events made for it, and not for the process that made it."""
    Gpu()
    event = ask(cu.cuEventCreate(6))
    handle = ask(cu.cuIpcGetEventHandle(event))
    return {
        "timed": code_of(cu.cuEventCreate(4)),
        "not made for it": code_of(cu.cuIpcGetEventHandle(ask(cu.cuEventCreate(2)))),
        "same process": code_of(cu.cuIpcOpenEventHandle(handle)),
        "no handle": code_of(cu.cuIpcOpenEventHandle(cu.CUipcEventHandle())),
        "query": code_of(cu.cuEventQuery(event)),
        "wait": code_of(cu.cuStreamWaitEvent(0, event, 0)),
    }


def init_only() -> Any:
    return code_of(cu.cuInit(0))


def version_only() -> Any:
    return ask(cu.cuDriverGetVersion())


def allocate(times: str) -> Any:
    Gpu()
    return [code_of(cu.cuMemAlloc(4096)) for _ in range(int(times))]


PROGRAMS = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == "__main__"
}


if __name__ == "__main__":
    json.dump(PROGRAMS[sys.argv[1]](*sys.argv[2:]), sys.stdout)
