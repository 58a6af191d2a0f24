"""Programs about modules, kernels and their parameters, run by driver_programs.py."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import ADD, MIB, POINTER, SCALE, Gpu, ask, code_of, compiled


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
    """Returns the parameter layouts that function and kernel handles report."""
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
    """Launches a CUkernel as a CUfunction, with a struct of pointers by value."""
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


def handles() -> Any:
    """Returns the errors of stale and foreign handles."""
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
    """Returns one entry of a fat binary; `packed` names a compression library or is empty."""
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
    """Returns the numbers of kernels of fat binaries; the best entry for the device wins."""
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


def first_launch(context: str) -> Any:
    """Launches a function for the first time while the GPU is busy for half a second.

    Returns whether that launch waited for the GPU, and how many queries of an event in the `same`
    context or in `another` were answered meanwhile.
    """
    gpu = Gpu()
    data = int(ask(cu.cuMemAlloc(64 * MIB)))
    word = gpu.array(np.ones(1, np.float32))
    gpu.launch("add", (word, word, word, 1), ADD)
    gpu.launch("add", (data, data, data, 1), ADD)
    took_s = [0.0]

    def load() -> None:
        ask(cu.cuCtxSetCurrent(gpu.context))
        begin = time.monotonic()
        gpu.launch("scale", (word, 1.0, 1), SCALE)
        took_s[0] = time.monotonic() - begin

    if context == "another":
        ask(cu.cuCtxCreate(None, 0, gpu.device))
    event = ask(cu.cuEventCreate(2))
    thread, answers = threading.Thread(target=load), 0
    thread.start()
    time.sleep(0.1)
    while thread.is_alive():
        ask(cu.cuEventQuery(event))
        answers += thread.is_alive()
        time.sleep(0.01)
    return [took_s[0] > 0.25, answers]


def felt_in(context: str) -> Any:
    """Returns how many launches return during the call of a prefetch to the host, in the `same`
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
