"""Programs about requests of libraries other than work: objects that graphs keep, attributes of
streams, pools. Run by driver_programs.py."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import MIB, Gpu, ask, code_of

DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Kept:
    """Makes a user object, and notes the call of its destructor."""

    def __init__(self, references: int) -> None:
        self.ended = threading.Event()
        self.destroy = DESTROY(lambda _: self.ended.set())
        entry = cu.CUhostFn(ctypes.cast(self.destroy, ctypes.c_void_p).value)
        self.object = ask(cu.cuUserObjectCreate(0, entry, references, 1))

    def has_ended(self) -> bool:
        """Waits for all earlier host functions; returns whether the destructor was called."""
        passed = threading.Event()
        function = DESTROY(lambda _: passed.set())
        entry = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
        ask(cu.cuLaunchHostFunc(cu.CUstream(0), entry, 0))
        assert passed.wait(60)
        return self.ended.is_set()


def user_objects() -> Any:
    """Returns whether each object has ended, after each step that releases references."""
    gpu = Gpu()
    del gpu
    move, share = 1, 0
    graph = ask(cu.cuGraphCreate(0))
    kept = Kept(2)
    ask(cu.cuGraphRetainUserObject(graph, kept.object, 1, move))
    clone = ask(cu.cuGraphClone(graph))
    executable = ask(cu.cuGraphInstantiate(graph, 0))
    steps = []
    ask(cu.cuUserObjectRelease(kept.object, 1))
    steps.append(kept.has_ended())
    ask(cu.cuGraphDestroy(graph))
    steps.append(kept.has_ended())
    ask(cu.cuGraphDestroy(clone))
    steps.append(kept.has_ended())
    ask(cu.cuGraphExecDestroy(executable))
    assert kept.ended.wait(60)

    graph = ask(cu.cuGraphCreate(0))
    held = Kept(1)
    ask(cu.cuUserObjectRetain(held.object, 2))
    ask(cu.cuGraphRetainUserObject(graph, held.object, 2, share))
    refused = [
        code_of(cu.cuGraphReleaseUserObject(graph, held.object, 3)),
        code_of(cu.cuUserObjectRelease(held.object, 6)),
        code_of(cu.cuUserObjectRelease(held.object, 0)),
        code_of(cu.cuUserObjectCreate(0, cu.CUhostFn(1), 1, 0)),
    ]
    ask(cu.cuUserObjectRelease(held.object, 3))
    steps.append(held.has_ended())
    ask(cu.cuGraphReleaseUserObject(graph, held.object, 2))
    assert held.ended.wait(60)
    refused.append(code_of(cu.cuUserObjectRetain(held.object, 1)))
    return {"steps": steps, "refused": refused}


def stream_attributes() -> Any:
    gpu = Gpu()
    policy = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    priority = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    window = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    cooperative = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    other = ask(cu.cuStreamCreate(1))
    before = int(ask(cu.cuStreamGetAttribute(gpu.stream, policy)).syncPolicy)
    value = cu.CUstreamAttrValue()
    value.syncPolicy = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_YIELD
    ask(cu.cuStreamSetAttribute(gpu.stream, policy, value))
    value = cu.CUstreamAttrValue()
    value.priority = -2
    ask(cu.cuStreamSetAttribute(gpu.stream, priority, value))
    value = cu.CUstreamAttrValue()
    value.accessPolicyWindow.num_bytes = MIB
    value.accessPolicyWindow.hitRatio = 0.5
    ask(cu.cuStreamSetAttribute(gpu.stream, window, value))
    value.accessPolicyWindow.hitRatio = 1.5
    refused = [
        code_of(cu.cuStreamSetAttribute(gpu.stream, window, value)),
        code_of(cu.cuStreamGetAttribute(gpu.stream, cooperative)),
    ]
    ask(cu.cuStreamCopyAttributes(other, gpu.stream))
    after = [
        int(ask(cu.cuStreamGetAttribute(other, policy)).syncPolicy),
        int(ask(cu.cuStreamGetAttribute(other, priority)).priority),
        int(ask(cu.cuStreamGetPriority(other))),
        int(ask(cu.cuStreamGetAttribute(other, window)).accessPolicyWindow.num_bytes),
    ]
    return {"before": before, "after": after, "refused": refused}


def default_pools() -> Any:
    """Returns the answers about the card's pools by both names; other locations have none."""
    Gpu()
    device = cu.CUmemLocation()
    device.type, device.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    host = cu.CUmemLocation()
    host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    pinned = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    usual = ask(cu.cuMemGetDefaultMemPool(device, pinned))
    same = [int(usual) == int(ask(cu.cuDeviceGetDefaultMemPool(0)))]
    properties = cu.CUmemPoolProps()
    properties.allocType, properties.location = pinned, device
    own = ask(cu.cuMemPoolCreate(properties))
    ask(cu.cuMemSetMemPool(device, pinned, own))
    same.append(int(ask(cu.cuMemGetMemPool(device, pinned))) == int(own))
    same.append(int(ask(cu.cuDeviceGetMemPool(0))) == int(own))
    same.append(int(ask(cu.cuMemGetDefaultMemPool(device, pinned))) == int(usual))
    return {"same": same, "host": code_of(cu.cuMemGetDefaultMemPool(host, pinned))}


def bounded_pool() -> Any:
    """Returns the answers of a pool of at most 8 MiB, before and after memory has come back."""
    gpu = Gpu()
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.maxSize = 8 * MIB
    pool = ask(cu.cuMemPoolCreate(properties))
    held = ask(cu.cuMemAllocFromPoolAsync(6 * MIB, pool, gpu.stream))
    codes = [
        code_of(cu.cuMemAllocFromPoolAsync(16 * MIB, pool, gpu.stream)),
        code_of(cu.cuMemAllocFromPoolAsync(3 * MIB, pool, gpu.stream)),
        code_of(cu.cuMemFreeAsync(held, gpu.stream)),
        code_of(cu.cuMemAllocFromPoolAsync(8 * MIB, pool, gpu.stream)),
    ]
    return codes


def empty_allocations() -> Any:
    """Allocates no bytes from a pool, in a capture too, and frees them."""
    gpu = Gpu()
    found = [cu.cuMemAllocAsync(0, gpu.stream)]
    found.append(cu.cuMemAllocFromPoolAsync(0, ask(cu.cuDeviceGetDefaultMemPool(0)), gpu.stream))
    ask(cu.cuStreamBeginCapture(gpu.stream, cu.CUstreamCaptureMode(0)))
    found.append(cu.cuMemAllocAsync(0, gpu.stream))
    ask(cu.cuStreamEndCapture(gpu.stream))
    freed = code_of(cu.cuMemFreeAsync(0, gpu.stream))
    return [[int(code), int(address)] for code, address in found], freed


def processors_that_access() -> Any:
    """Returns ACCESSED_BY with space for three devices: for host and GPU, then without the GPU."""
    Gpu()
    data = ask(cu.cuMemAllocManaged(MIB, 1))
    seen = []
    for advice, kind in ((5, 2), (5, 1), (6, 1)):  # set for host and GPU; unset for the GPU
        location = cu.CUmemLocation()
        location.type = cu.CUmemLocationType(kind)
        ask(cu.cuMemAdvise(data, MIB, cu.CUmem_advise(advice), location))
        accessed_by = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
        seen.append(ask(cu.cuMemRangeGetAttribute(12, accessed_by, data, MIB)))
    return seen


def unregistered() -> Any:
    """Unregisters host memory, which is possible only at its start, and once."""
    Gpu()
    memory = np.zeros(MIB, np.uint8)
    start = memory.ctypes.data
    ask(cu.cuMemHostRegister(start, MIB, 0))
    return [code_of(cu.cuMemHostUnregister(at)) for at in (start + 64, start, start)]


def names_of_nothing() -> Any:
    Gpu()
    return [code_of(cu.cuFuncGetName(0)), code_of(cu.cuKernelGetName(0))]


def double_frees() -> Any:
    """Frees memory again, before the stream has reached the first free and afterwards."""
    gpu = Gpu()
    codes = []
    for second in (cu.cuMemFree, lambda address: cu.cuMemFreeAsync(address, gpu.stream)):
        gate = threading.Event()
        function = DESTROY(lambda _, gate=gate: gate.wait(60))
        entry = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
        address = ask(cu.cuMemAllocAsync(MIB, gpu.stream))
        ask(cu.cuLaunchHostFunc(gpu.stream, entry, 0))
        codes.append(code_of(cu.cuMemFreeAsync(address, gpu.stream)))
        codes.append(code_of(second(address)))
        gate.set()
        gpu.sync()
        codes.append(code_of(second(address)))
    return codes


def sync_memops() -> Any:
    Gpu()
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    address = ask(cu.cuMemAlloc(MIB))
    found = []
    for wanted in (None, True, False):
        if wanted is not None:
            ask(cu.cuPointerSetAttribute(wanted, attribute, address))
        found.append(bool(ask(cu.cuPointerGetAttribute(attribute, address))))
    return found


def zeroed_context() -> Any:
    ask(cu.cuInit(0))
    parameters = cu.CUctxCreateParams()
    ask(cu.cuCtxCreate(parameters, 0, 0))
    return code_of(cu.cuMemAlloc(MIB))


def memset_waits() -> Any:
    """Returns whether the stream is idle after a synchronous memset. A memset of device memory
    returns although a host function before it has not ended."""
    Gpu()
    default = cu.CUstream(0)
    idle = {}
    for kind, address in {
        "managed": int(ask(cu.cuMemAllocManaged(64 * MIB, 1))),
        "pinned": int(ask(cu.cuMemHostAlloc(64 * MIB, 0))),
    }.items():
        ask(cu.cuMemsetD8(address, 1, 64 * MIB))
        idle[kind] = code_of(cu.cuStreamQuery(default)) == 0
    address = ask(cu.cuMemAlloc(MIB))
    gate = threading.Event()
    function = DESTROY(lambda _: gate.wait(60))
    entry = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
    ask(cu.cuLaunchHostFunc(default, entry, 0))
    ask(cu.cuMemsetD8(address, 1, MIB))
    idle["device"] = code_of(cu.cuStreamQuery(default)) == 0
    gate.set()
    ask(cu.cuStreamSynchronize(default))
    return idle


def destroyed_in_capture() -> Any:
    """Returns the codes of cuStreamEndCapture after a stream was destroyed, joined or unjoined."""
    gpu = Gpu()
    relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    address = ask(cu.cuMemAlloc(MIB))
    codes = []
    for joined in (True, False):
        side = ask(cu.cuStreamCreate(1))
        fork, join = ask(cu.cuEventCreate(0)), ask(cu.cuEventCreate(0))
        ask(cu.cuStreamBeginCapture(gpu.stream, relaxed))
        ask(cu.cuEventRecord(fork, gpu.stream))
        ask(cu.cuStreamWaitEvent(side, fork, 0))
        ask(cu.cuMemsetD8Async(address, 1, MIB, side))
        ask(cu.cuEventRecord(join, side))
        ask(cu.cuStreamDestroy(side))
        if joined:
            ask(cu.cuStreamWaitEvent(gpu.stream, join, 0))
        codes.append(code_of(cu.cuStreamEndCapture(gpu.stream)))
    return codes


def old_calls() -> Any:
    """Attaches to a context, which ends with its last detach, and sets block shapes."""
    gpu = Gpu()
    function = gpu.function("scale")
    shapes = [
        code_of(cu.cuFuncSetBlockShape(function, 32, 4, 1)),
        code_of(cu.cuFuncSetBlockShape(function, 1024, 2, 1)),
        code_of(cu.cuFuncSetSharedSize(function, 1024)),
        code_of(cu.cuFuncSetSharedSize(function, 1 << 30)),
    ]
    primary = [code_of(cu.cuCtxAttach(0)), code_of(cu.cuCtxDetach(gpu.context))]
    made = ask(cu.cuCtxCreate(None, 0, 0))
    same = int(ask(cu.cuCtxAttach(0))) == int(made)
    ask(cu.cuCtxDetach(made))
    works = code_of(cu.cuMemAlloc(MIB))
    ask(cu.cuCtxDetach(made))
    current = int(ask(cu.cuCtxGetCurrent())) == int(gpu.context)
    ended = code_of(cu.cuCtxPushCurrent(made))
    return {"shapes": shapes, "primary": primary, "uses": [same, works, current, ended]}
