"""Programs that use arrays, boxes and graphs of the CUDA runtime by name, for
test_runtime_arrays.py. Each prints one JSON object. The libraries are preloaded, so their names are
global."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np
from runtime_programs import CUDA, DEVICE_TO_HOST, Buffer, check

DEVICE_TO_DEVICE = 3
UNSIGNED = 1
KERNEL = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry pump_put(.param .u64 where, .param .u32 value)
{
  ret;
}
\0"""


class Channels(ctypes.Structure):
    """cudaChannelFormatDesc."""

    _fields_ = tuple((name, c_int) for name in "xyzwf")


class Triple(ctypes.Structure):
    """cudaExtent and cudaPos."""

    _fields_ = tuple((name, c_size_t) for name in "xyz")


class Pitched(ctypes.Structure):
    """cudaPitchedPtr."""

    _fields_ = (("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t))


class Box(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (
        *(("src_array", c_void_p), ("src_pos", Triple), ("src", Pitched)),
        *(("dst_array", c_void_p), ("dst_pos", Triple), ("dst", Pitched)),
        *(("extent", Triple), ("kind", c_int)),
    )


class PeerBox(ctypes.Structure):
    """cudaMemcpy3DPeerParms."""

    _fields_ = (
        *(("src_array", c_void_p), ("src_pos", Triple), ("src", Pitched), ("src_device", c_int)),
        *(("dst_array", c_void_p), ("dst_pos", Triple), ("dst", Pitched), ("dst_device", c_int)),
        ("extent", Triple),
    )


class Resource(ctypes.Structure):
    """cudaResourceDesc of an array."""

    _fields_ = (("type", c_int), ("array", c_void_p), ("rest", c_int * 30), ("flags", c_int))


class Texture(ctypes.Structure):
    """cudaTextureDesc."""

    _fields_ = (
        *(("address", c_int * 3), ("filter", c_int), ("read", c_int), ("srgb", c_int)),
        *(("border", ctypes.c_float * 4), ("normalized", c_int), ("anisotropy", c_int)),
        *(("mip_filter", c_int), ("mip", ctypes.c_float * 3), ("more", c_int * 2)),
    )


class Call(ctypes.Structure):
    """cudaKernelNodeParams."""

    _fields_ = (
        *(("func", c_void_p), ("grid", c_int * 3), ("block", c_int * 3), ("shared", c_int)),
        *(("parameters", c_void_p), ("extra", c_void_p)),
    )


class Set(ctypes.Structure):
    """cudaMemsetParams."""

    _fields_ = (
        *(("dst", c_void_p), ("pitch", c_size_t), ("value", c_int), ("element", c_int)),
        *(("width", c_size_t), ("height", c_size_t)),
    )


HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)


class Host(ctypes.Structure):
    """cudaHostNodeParams."""

    _fields_ = (("fn", HOST_FUNCTION), ("data", c_void_p))


def pointer(values: np.ndarray) -> c_void_p:
    return values.ctypes.data_as(c_void_p)


def size(number: int) -> c_size_t:
    return c_size_t(number)


def array_of(width: int, height: int, bits: int = 16, kind: int = UNSIGNED) -> c_void_p:
    made, channels = c_void_p(), Channels(bits, 0, 0, 0, kind)
    check(CUDA.cudaMallocArray(byref(made), byref(channels), size(width), size(height), 0))
    return made


def arrays() -> Any:
    """Copies to an array by rows and by a run of bytes, from one array to another, and back."""
    first, second = array_of(5, 4), array_of(5, 4)
    rows = np.arange(20, dtype=np.uint16).reshape(4, 5)
    whole = (size(10), size(4))
    check(CUDA.cudaMemcpy2DToArray(first, size(0), size(0), pointer(rows), size(10), *whole, 1))
    origin, part = (size(0), size(0)), (size(2), size(1))
    turn = (second, *origin, first, *part, size(6), size(2), DEVICE_TO_DEVICE)
    check(CUDA.cudaMemcpy2DArrayToArray(*turn))
    run = np.arange(90, 98, dtype=np.uint16)
    check(CUDA.cudaMemcpyToArray(second, size(6), size(1), pointer(run), size(16), 1))
    back, tail = np.zeros((4, 5), np.uint16), np.zeros(3, np.uint16)
    check(
        CUDA.cudaMemcpy2DFromArrayAsync(pointer(back), size(10), second, *origin, *whole, 2, None)
    )
    check(CUDA.cudaDeviceSynchronize())
    check(CUDA.cudaMemcpyFromArray(pointer(tail), first, size(8), size(1), size(6), 2))
    channels, extent, flags = Channels(), Triple(), c_int(-1)
    check(CUDA.cudaArrayGetInfo(byref(channels), byref(extent), byref(flags), first))
    wrong, made = Channels(16, 8, 0, 0, UNSIGNED), c_void_p()
    out = {
        "back": back.tolist(),
        "tail": tail.tolist(),
        "info": [channels.x, channels.y, channels.f, extent.x, extent.y, extent.z, flags.value],
        "texels": CUDA.cudaMallocArray(byref(made), byref(wrong), size(4), size(4), 0),
        "beyond": CUDA.cudaMemcpyToArray(second, size(0), size(3), pointer(rows), size(12), 1),
        "direction": CUDA.cudaMemcpyFromArray(pointer(tail), first, *origin, size(6), 9),
        "none": CUDA.cudaMemcpy2DToArray(None, *origin, pointer(rows), size(10), *whole, 1),
        "freed": [CUDA.cudaFreeArray(first), CUDA.cudaFreeArray(None), CUDA.cudaFreeArray(first)],
    }
    check(CUDA.cudaFreeArray(second))
    return out


def boxes() -> Any:
    """Copies a part of three-dimensional pitched memory to an array, and back."""
    memory, made = Pitched(), c_void_p()
    check(CUDA.cudaMalloc3D(byref(memory), Triple(6, 3, 2)))
    check(CUDA.cudaMemset3D(memory, 7, Triple(6, 3, 2)))
    check(CUDA.cudaMemset3DAsync(memory, 9, Triple(2, 1, 2), None))
    channels = Channels(8, 8, 0, 0, UNSIGNED)
    check(CUDA.cudaMalloc3DArray(byref(made), byref(channels), Triple(3, 3, 2), 0))
    there = Box(src=memory, dst_array=made, extent=Triple(3, 3, 2), kind=DEVICE_TO_DEVICE)
    check(CUDA.cudaMemcpy3D(byref(there)))
    values = np.zeros((2, 3, 4), np.uint8)
    back = Box(src_array=made, extent=Triple(2, 3, 2), kind=DEVICE_TO_HOST)
    back.dst = Pitched(values.ctypes.data, 4, 4, 3)
    check(CUDA.cudaMemcpy3DAsync(byref(back), None))
    check(CUDA.cudaDeviceSynchronize())
    both, other = Box.from_buffer_copy(there), Box.from_buffer_copy(there)
    both.src_array, other.src_array = made, array_of(3, 3)
    other.src = Pitched()
    return {
        "values": values.tolist(),
        "pitch": [memory.pitch % 512, memory.xsize, memory.ysize],
        "refused": [CUDA.cudaMemcpy3D(byref(box)) for box in (both, other, Box())],
    }


def peers() -> Any:
    """Copies boxes from a device to itself, as its peer. A second device does not exist."""
    memory, values = Buffer(np.arange(24, dtype=np.uint8).reshape(2, 3, 4)), []
    to = Buffer(np.zeros((2, 3, 4), np.uint8))
    box = PeerBox(extent=Triple(2, 2, 2), src_pos=Triple(1, 1, 0))
    box.src, box.dst = Pitched(memory.address, 4, 4, 3), Pitched(to.address, 4, 4, 3)
    check(CUDA.cudaMemcpy3DPeer(byref(box)))
    values.append(to.read()[:, :2, :2].tolist())
    box.src_pos.x = 2
    check(CUDA.cudaMemcpy3DPeerAsync(byref(box), None))
    check(CUDA.cudaDeviceSynchronize())
    values.append(to.read()[:, :2, :2].tolist())
    box.dst_device = 1
    return {"values": values, "refused": CUDA.cudaMemcpy3DPeer(byref(box))}


def runs() -> Any:
    """Copies bytes that continue from row to row, between arrays with rows of different lengths."""
    first, second = array_of(5, 4), array_of(3, 5)
    values, back = np.arange(20, dtype=np.uint16), np.zeros(15, np.uint16)
    check(CUDA.cudaMemcpyToArray(first, size(0), size(0), pointer(values), size(40), 1))
    zeros = (pointer(back), size(30), 1)
    check(CUDA.cudaMemcpyToArray(second, size(0), size(0), *zeros))
    ends = (second, size(2), size(1), first, size(6), size(1))
    check(CUDA.cudaMemcpyArrayToArray(*ends, size(20), DEVICE_TO_DEVICE))
    check(CUDA.cudaMemcpyFromArray(pointer(back), second, size(0), size(0), size(30), 2))
    return {
        "back": back.tolist(),
        "beyond": CUDA.cudaMemcpyArrayToArray(*ends, size(24), DEVICE_TO_DEVICE),
        "direction": CUDA.cudaMemcpyArrayToArray(*ends, size(20), 9),
    }


def mipmaps() -> Any:
    """Makes levels of half the size each, which hold texels of their own, and end together."""
    made, channels, levels = c_void_p(), Channels(16, 0, 0, 0, UNSIGNED), []
    shape = (byref(channels), Triple(8, 4, 0), 3, 0)
    check(CUDA.cudaMallocMipmappedArray(byref(made), *shape))
    sizes = []
    for index in range(3):
        level, extent = c_void_p(), Triple()
        check(CUDA.cudaGetMipmappedArrayLevel(byref(level), made, index))
        check(CUDA.cudaArrayGetInfo(None, byref(extent), None, level))
        sizes.append([extent.x, extent.y])
        values = np.full(extent.x * extent.y, index + 1, np.uint16)
        run = (size(0), size(0), pointer(values), size(values.nbytes), 1)
        check(CUDA.cudaMemcpyToArray(level, *run))
        levels.append(level)
    texels = []
    for level, (width, height) in zip(levels, sizes, strict=True):
        back = np.zeros(width * height, np.uint16)
        run = (level, size(0), size(0), size(back.nbytes), 2)
        check(CUDA.cudaMemcpyFromArray(pointer(back), *run))
        texels.append(sorted(set(back.tolist())))
    beyond = CUDA.cudaGetMipmappedArrayLevel(byref(c_void_p()), made, 3)
    own = CUDA.cudaFreeArray(levels[1])
    freed = [CUDA.cudaFreeMipmappedArray(made), CUDA.cudaFreeMipmappedArray(None)]
    return {
        "sizes": sizes,
        "texels": texels,
        "refused": [beyond, own],
        "freed": [*freed, CUDA.cudaFreeMipmappedArray(made)],
        "gone": CUDA.cudaArrayGetInfo(None, byref(Triple()), None, levels[0]),
    }


def textures() -> Any:
    array, made, told = array_of(4, 4), ctypes.c_ulonglong(), Resource()
    resource, texture, read = Resource(array=array), Texture(read=1, normalized=1), Texture()
    check(CUDA.cudaCreateTextureObject(byref(made), byref(resource), byref(texture), None))
    check(CUDA.cudaGetTextureObjectResourceDesc(byref(told), made))
    check(CUDA.cudaGetTextureObjectTextureDesc(byref(read), made))
    out = {
        "same": [told.type, told.array == array.value],
        "read": [read.read, read.normalized, read.srgb],
    }
    check(CUDA.cudaDestroyTextureObject(made))
    check(CUDA.cudaCreateSurfaceObject(byref(made), byref(resource)))
    check(CUDA.cudaDestroySurfaceObject(made))
    out["gone"] = CUDA.cudaDestroySurfaceObject(made)
    out["nothing"] = CUDA.cudaCreateTextureObject(byref(made), byref(resource), None, None)
    return out


def host_symbol() -> c_void_p:
    """Registers a kernel as nvcc's start-up code does, by the address of a host function."""
    CUDA.__cudaRegisterFatBinary.restype = c_void_p
    binary = c_void_p(CUDA.__cudaRegisterFatBinary(KERNEL))
    address = ctypes.cast(CUDA.cudaGetLastError, c_void_p)
    name = b"pump_put"
    CUDA.__cudaRegisterFunction(binary, address, name, name, -1, None, None, None, None, None)
    return address


def types(nodes: list[c_void_p]) -> list[int]:
    out = []
    for node in nodes:
        kind = c_int()
        check(CUDA.cudaGraphNodeGetType(node, byref(kind)))
        out.append(kind.value)
    return out


def graphs() -> Any:
    """Runs a chain of every kind of node; reads and changes parameters, also when instantiated."""
    buffer, results, called = Buffer(np.zeros(8, np.uint32)), np.zeros(8, np.uint32), []
    where, value, graph, child = c_void_p(buffer.address.value), c_int(5), c_void_p(), c_void_p()
    event, executable = c_void_p(), c_void_p()
    check(CUDA.cudaEventCreate(byref(event)))
    check(CUDA.cudaGraphCreate(byref(graph), 0))
    check(CUDA.cudaGraphCreate(byref(child), 0))
    inner = c_void_p()
    check(CUDA.cudaGraphAddEmptyNode(byref(inner), child, None, size(0)))
    parameters = (c_void_p * 2)(ctypes.addressof(where), ctypes.addressof(value))
    call = Call(func=host_symbol(), parameters=ctypes.addressof(parameters))
    call.grid[:], call.block[:] = (1, 1, 1), (1, 1, 1)
    fill = Set(buffer.address.value, 0, 3, 4, 8, 1)
    host = Host(HOST_FUNCTION(called.append), 11)
    nodes: list[c_void_p] = []

    def add(name: str, *what: Any) -> None:
        before, node = (c_void_p * 1)(*nodes[-1:]), c_void_p()
        function = getattr(CUDA, f"cudaGraphAdd{name}")
        check(function(byref(node), graph, before, size(len(nodes[-1:])), *what))
        nodes.append(node)

    add("MemsetNode", byref(fill))
    add("KernelNode", byref(call))
    add("EventRecordNode", event)
    add("EventWaitNode", event)
    add("ChildGraphNode", child)
    add("MemcpyNode1D", pointer(results), buffer.address, size(16), DEVICE_TO_HOST)
    add("HostNode", byref(host))
    count, edges, roots = c_size_t(), c_size_t(), c_size_t()
    check(CUDA.cudaGraphGetNodes(graph, None, byref(count)))
    check(CUDA.cudaGraphGetEdges(graph, None, None, None, byref(edges)))
    check(CUDA.cudaGraphGetRootNodes(graph, None, byref(roots)))
    told, box = Call(), Box()
    check(CUDA.cudaGraphKernelNodeGetParams(nodes[1], byref(told)))
    check(CUDA.cudaGraphMemcpyNodeGetParams(nodes[5], byref(box)))
    check(CUDA.cudaGraphInstantiate(byref(executable), graph, ctypes.c_ulonglong(0)))

    def launch() -> list[int]:
        check(CUDA.cudaGraphLaunch(executable, None))
        check(CUDA.cudaDeviceSynchronize())
        return [int(number) for number in results[:5]]

    out: dict[str, Any] = {"types": types(nodes), "counts": [count.value, edges.value, roots.value]}
    out["kernel"] = [told.func == call.func, list(told.grid)]
    out["copy"] = [box.src.ptr == buffer.address.value, box.extent.x, box.kind]
    out["first"], value.value, fill.value = launch(), 6, 4
    check(CUDA.cudaGraphExecKernelNodeSetParams(executable, nodes[1], byref(call)))
    check(CUDA.cudaGraphExecMemsetNodeSetParams(executable, nodes[0], byref(fill)))
    run = (pointer(results), buffer.address, size(20), DEVICE_TO_HOST)
    check(CUDA.cudaGraphExecMemcpyNodeSetParams1D(executable, nodes[5], *run))
    out["second"], out["called"] = launch(), called
    call.func = 0x1234
    out["unknown"] = CUDA.cudaGraphKernelNodeSetParams(nodes[1], byref(call))
    return out


def edges() -> Any:
    """Adds an edge between two nodes, counts it from both sides, and can remove it once."""
    graph, first, second, count = c_void_p(), c_void_p(), c_void_p(), c_size_t()
    check(CUDA.cudaGraphCreate(byref(graph), 0))
    for node in (first, second):
        check(CUDA.cudaGraphAddEmptyNode(byref(node), graph, None, size(0)))
    link = ((c_void_p * 1)(first.value), (c_void_p * 1)(second.value), None, size(1))
    check(CUDA.cudaGraphAddDependencies(graph, *link))
    counts = []
    for ask, node in (("DependentNodes", first), ("Dependencies", second)):
        check(getattr(CUDA, f"cudaGraphNodeGet{ask}")(node, None, None, byref(count)))
        counts.append(count.value)
    again = [CUDA.cudaGraphRemoveDependencies(graph, *link) for _ in range(2)]
    check(CUDA.cudaGraphDestroyNode(second))
    check(CUDA.cudaGraphGetNodes(graph, None, byref(count)))
    return {"counts": counts, "removed": again, "left": count.value}


def objects() -> Any:
    """Shows that an object lives as long as a graph that keeps it; copies stream attributes."""
    made, graph, destroyed, gone = c_void_p(), c_void_p(), [], threading.Event()

    def end(data: int) -> None:
        destroyed.append(data)
        gone.set()

    destroy = HOST_FUNCTION(end)
    check(CUDA.cudaGraphCreate(byref(graph), 0))
    check(CUDA.cudaUserObjectCreate(byref(made), c_void_p(21), destroy, 1, 1))
    check(CUDA.cudaGraphRetainUserObject(graph, made, 1, 0))
    check(CUDA.cudaUserObjectRelease(made, 1))
    before = list(destroyed)
    check(CUDA.cudaGraphDestroy(graph))
    gone.wait(60)  # the driver destroys it on another thread
    first, second, policy = c_void_p(), c_void_p(), (c_int * 16)(4)
    check(CUDA.cudaStreamCreate(byref(first)))
    check(CUDA.cudaStreamCreate(byref(second)))
    check(CUDA.cudaStreamSetAttribute(first, 3, policy))
    check(CUDA.cudaStreamCopyAttributes(second, first))
    read = (c_int * 16)()
    check(CUDA.cudaStreamGetAttribute(second, 3, read))
    return {"before": before, "after": destroyed, "policy": read[0]}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
