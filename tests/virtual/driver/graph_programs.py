"""Programs about CUDA graphs in plain cuda-python, run by test_driver_graphs.py.

Usage: graph_programs.py NAME [argument ...]; prints one JSON value.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import ADD, SCALE, Gpu, ask, code_of

N = 4096
RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
KERNEL, COPY, MEMSET, HOST, CHILD, EMPTY, WAIT, RECORD = range(8)


class Graphs(Gpu):
    """Device 0, some arrays of ones, and methods that make nodes over them."""

    def __init__(self) -> None:
        super().__init__()
        ones = np.ones(N, np.float32)
        self.a, self.b, self.c = (self.array(ones, managed=True) for _ in range(3))
        self.kept: list[Any] = []  # parameters that the bindings only point to

    def kernel_params(self, name: str, values: tuple[Any, ...], types: Any) -> Any:
        params = cu.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function(name)
        params.gridDimX, params.gridDimY, params.gridDimZ = 4096, 1, 1
        params.blockDimX, params.blockDimY, params.blockDimZ = 256, 1, 1
        params.kernelParams = (values, types)
        self.kept.append(params)
        return params

    def scale(self, address: int, factor: float) -> Any:
        return self.kernel_params("scale", (address, factor, N), SCALE)

    def add(self, a: int, b: int, c: int) -> Any:
        return self.kernel_params("add", (a, b, c, N), ADD)

    def kernel(self, graph: Any, on: list[Any], params: Any) -> Any:
        return ask(cu.cuGraphAddKernelNode(graph, on, len(on), params))

    def memset_params(self, address: int, value: float) -> Any:
        params = cu.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.elementSize = address, 4
        params.value = int(np.float32(value).view(np.uint32))
        params.width, params.height = N, 1
        return params

    def memset(self, graph: Any, on: list[Any], address: int, value: float) -> Any:
        params = self.memset_params(address, value)
        return ask(cu.cuGraphAddMemsetNode(graph, on, len(on), params, self.context))

    def copy_params(self, to: int, source: int) -> Any:
        params = cu.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = source, to
        params.WidthInBytes, params.Height, params.Depth = 4 * N, 1, 1
        return params

    def copy(self, graph: Any, on: list[Any], to: int, source: int) -> Any:
        params = self.copy_params(to, source)
        return ask(cu.cuGraphAddMemcpyNode(graph, on, len(on), params, self.context))

    def replay(self, executable: Any, times: int = 1) -> None:
        for _ in range(times):
            ask(cu.cuGraphLaunch(executable, self.stream))
        self.sync()

    def values(self) -> list[float]:
        """Returns the last element of each array."""
        return [float(self.read(address, N)[-1]) for address in (self.a, self.b, self.c)]


def new_graph() -> Any:
    return ask(cu.cuGraphCreate(0))


def instance(graph: Any) -> Any:
    return ask(cu.cuGraphInstantiate(graph, 0))


def explicit() -> Any:
    """Makes nodes of every kind, in another order than they have to run in."""
    gpu = Graphs()
    child = new_graph()
    gpu.kernel(child, [], gpu.add(gpu.a, gpu.b, gpu.c))
    graph = new_graph()
    last = ask(cu.cuGraphAddChildGraphNode(graph, [], 0, child))
    middle = gpu.kernel(graph, [], gpu.scale(gpu.a, 3.0))
    copied = gpu.copy(graph, [middle], gpu.b, gpu.a)
    empty = ask(cu.cuGraphAddEmptyNode(graph, [copied], 1))
    first = gpu.memset(graph, [], gpu.a, 5.0)
    event = ask(cu.cuEventCreate(0))
    recorded = ask(cu.cuGraphAddEventRecordNode(graph, [empty], 1, event))
    ask(cu.cuGraphAddEventWaitNode(graph, [recorded], 1, event))
    edges = [cu.CUgraphEdgeData(), cu.CUgraphEdgeData()]
    ask(cu.cuGraphAddDependencies(graph, [first, empty], [middle, last], edges, 2))
    ask(cu.cuGraphDestroy(child))
    executable = instance(graph)
    ask(cu.cuGraphDestroy(graph))
    gpu.replay(executable, 3)
    ask(cu.cuGraphExecDestroy(executable))
    return gpu.values()


def cycle() -> Any:
    gpu = Graphs()
    graph = new_graph()
    first = gpu.memset(graph, [], gpu.a, 1.0)
    second = gpu.memset(graph, [first], gpu.b, 1.0)
    edge = [cu.CUgraphEdgeData()]
    ask(cu.cuGraphAddDependencies(graph, [second], [first], edge, 1))
    refused = code_of(cu.cuGraphInstantiate(graph, 0))
    ask(cu.cuGraphRemoveDependencies(graph, [second], [first], edge, 1))
    return [refused, code_of(cu.cuGraphInstantiate(graph, 0))]


def asked() -> Any:
    """Returns a graph's answers about its nodes and edges."""
    gpu = Graphs()
    graph = new_graph()
    first = gpu.memset(graph, [], gpu.a, 5.0)
    second = gpu.kernel(graph, [first], gpu.scale(gpu.a, 3.0))
    third = gpu.copy(graph, [first, second], gpu.b, gpu.a)
    names = {int(node): index for index, node in enumerate((first, second, third))}

    def numbers(nodes: Any) -> list[int]:
        return [names[int(node)] for node in nodes]

    nodes, count = ask(cu.cuGraphGetNodes(graph, 8))
    roots, root_count = ask(cu.cuGraphGetRootNodes(graph, 8))
    sources, targets, _, edge_count = ask(cu.cuGraphGetEdges(graph, 8))
    on, _, on_count = ask(cu.cuGraphNodeGetDependencies(third, 8))
    behind, _, behind_count = ask(cu.cuGraphNodeGetDependentNodes(first, 8))
    kernel = ask(cu.cuGraphKernelNodeGetParams(second))
    pointers = ctypes.cast(int(kernel.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    copied, filled = (
        ask(cu.cuGraphMemcpyNodeGetParams(third)),
        ask(cu.cuGraphMemsetNodeGetParams(first)),
    )
    found = {
        "types": [int(ask(cu.cuGraphNodeGetType(node))) for node in (first, third)],
        "nodes": numbers(nodes[:count]),
        "roots": numbers(roots[:root_count]),
        "edges": sorted(
            zip(numbers(sources[:edge_count]), numbers(targets[:edge_count]), strict=True)
        ),
        "on": numbers(on[:on_count]),
        "behind": numbers(behind[:behind_count]),
        "pointer": ctypes.c_uint64.from_address(pointers[0]).value == gpu.a,
        "factor": ctypes.c_float.from_address(pointers[1]).value,
        "grid": [kernel.gridDimX, kernel.blockDimX],
        "copy": [int(copied.dstDevice) == gpu.b, int(copied.WidthInBytes)],
        "memset": [int(filled.dst) == gpu.a, filled.elementSize, int(filled.width)],
    }
    ask(cu.cuGraphDestroyNode(second))
    found["left"] = ask(cu.cuGraphGetEdges(graph, 8))[3]
    found["stale"] = code_of(cu.cuGraphNodeGetType(second))
    return found


def changed() -> Any:
    """Changes parameters of graphs, clones and executable graphs independently."""
    gpu = Graphs()
    graph = new_graph()
    node = gpu.kernel(graph, [], gpu.scale(gpu.a, 2.0))
    clone = ask(cu.cuGraphClone(graph))
    twin = ask(cu.cuGraphNodeFindInClone(node, clone))
    executable = instance(graph)
    ask(cu.cuGraphKernelNodeSetParams(node, gpu.scale(gpu.a, 10.0)))
    ask(cu.cuGraphKernelNodeSetParams(twin, gpu.scale(gpu.b, 7.0)))
    gpu.replay(executable)
    before = gpu.values()
    gpu.replay(instance(graph))
    gpu.replay(instance(clone))
    after = gpu.values()
    ask(cu.cuGraphExecKernelNodeSetParams(executable, node, gpu.scale(gpu.c, 5.0)))
    gpu.replay(executable)
    foreign = code_of(cu.cuGraphExecKernelNodeSetParams(executable, twin, gpu.scale(gpu.c, 5.0)))
    return {"before": before, "after": after, "set": gpu.values(), "foreign": foreign}


def set_params() -> Any:
    """Changes every kind of node of an executable graph, one of them in a child graph."""
    gpu = Graphs()
    child = new_graph()
    gpu.memset(child, [], gpu.a, 1.0)
    graph = new_graph()
    inside = ask(cu.cuGraphAddChildGraphNode(graph, [], 0, child))
    owned = ask(cu.cuGraphChildGraphNodeGetGraph(inside))
    nodes, _ = ask(cu.cuGraphGetNodes(owned, 1))
    copied = gpu.copy(graph, [inside], gpu.b, gpu.a)
    executable = instance(graph)
    found = []
    set_ = cu.cuGraphExecMemsetNodeSetParams
    ask(set_(executable, nodes[0], gpu.memset_params(gpu.a, 9.0), gpu.context))
    gpu.replay(executable)
    found.append(gpu.values())
    copy = gpu.copy_params(gpu.c, gpu.a)
    ask(cu.cuGraphExecMemcpyNodeSetParams(executable, copied, copy, gpu.context))
    other = new_graph()
    gpu.memset(other, [], gpu.a, 4.0)
    ask(cu.cuGraphExecChildGraphNodeSetParams(executable, inside, other))
    gpu.replay(executable)
    found.append(gpu.values())
    ask(cu.cuGraphNodeSetEnabled(executable, copied, 0))
    ask(set_(executable, nodes[0], gpu.memset_params(gpu.a, 6.0), gpu.context))
    gpu.replay(executable)
    found.append(gpu.values())
    off = ask(cu.cuGraphNodeGetEnabled(executable, copied))
    return {
        "found": found,
        "off": off,
        "child": code_of(cu.cuGraphNodeSetEnabled(executable, inside, 0)),
        "owned": code_of(cu.cuGraphDestroy(owned)),
    }


def updated() -> Any:
    gpu = Graphs()

    def made(factor: float, more: bool = False, other: bool = False) -> Any:
        graph = new_graph()
        node = gpu.kernel(graph, [], gpu.scale(gpu.a, factor))
        if other:
            gpu.copy(graph, [node], gpu.b, gpu.a)
        else:
            gpu.memset(graph, [node], gpu.b, factor)
        if more:
            gpu.memset(graph, [node], gpu.c, factor)
        return graph

    executable = instance(made(2.0))
    ask(cu.cuGraphExecUpdate(executable, made(5.0)))
    gpu.replay(executable)
    answers = []
    for graph in (made(1.0, more=True), made(1.0, other=True)):
        info = (ctypes.c_uint64 * 3)()  # the bindings drop it when the update fails
        pointers = (ctypes.c_void_p(int(executable)), ctypes.c_void_p(int(graph)))
        answers.append([ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2(*pointers, info), info[0]])
    gpu.replay(executable)
    return {"values": gpu.values(), "refused": answers}


def captured() -> Any:
    """Reads and changes the dependencies of a capture; a launch in it becomes a child graph."""
    gpu = Graphs()
    inner = new_graph()
    gpu.kernel(inner, [], gpu.scale(gpu.a, 3.0))
    executable = instance(inner)
    graph = new_graph()
    root = gpu.memset(graph, [], gpu.a, 2.0)
    edges = [cu.CUgraphEdgeData()]
    ask(cu.cuStreamBeginCaptureToGraph(gpu.stream, graph, [root], edges, 1, RELAXED))
    ask(cu.cuGraphLaunch(executable, gpu.stream))
    info = ask(cu.cuStreamGetCaptureInfo(gpu.stream))
    tail = [int(ask(cu.cuGraphNodeGetType(node))) for node in info[3]]
    ask(cu.cuStreamUpdateCaptureDependencies(gpu.stream, [root], edges, 1, 1))
    moved = [int(node) == int(root) for node in ask(cu.cuStreamGetCaptureInfo(gpu.stream))[3]]
    event = ask(cu.cuEventCreate(0))
    ask(cu.cuEventRecordWithFlags(event, gpu.stream, 1))
    ask(cu.cuStreamUpdateCaptureDependencies(gpu.stream, info[3], edges, 1, 0))
    gpu.launch("add", (gpu.a, gpu.b, gpu.c, N), ADD)
    same = int(ask(cu.cuStreamEndCapture(gpu.stream))) == int(graph)
    nodes, count = ask(cu.cuGraphGetNodes(graph, 8))
    types = [int(ask(cu.cuGraphNodeGetType(node))) for node in nodes[:count]]
    gpu.replay(instance(graph))
    return {
        "tail": tail,
        "moved": moved,
        "same": same,
        "types": types,
        "edges": ask(cu.cuGraphGetEdges(graph, 8))[3],
        "recorded": code_of(cu.cuEventQuery(event)),
        "values": gpu.values(),
    }


def node_attributes() -> Any:
    """Returns attributes of kernel nodes, as captured, set, and copied with the graph."""
    gpu = Graphs()
    names = cu.CUkernelNodeAttrID
    cooperative, priority = (
        getattr(names, f"CU_LAUNCH_ATTRIBUTE_{name}") for name in ("COOPERATIVE", "PRIORITY")
    )

    def told(graph: Any) -> list[list[int]]:
        nodes, count = ask(cu.cuGraphGetNodes(graph, 8))
        return [
            [
                int(ask(cu.cuGraphKernelNodeGetAttribute(node, cooperative)).cooperative),
                int(ask(cu.cuGraphKernelNodeGetAttribute(node, priority)).priority),
            ]
            for node in nodes[:count]
        ]

    urgent = ask(cu.cuStreamCreateWithPriority(1, -2))
    function, arguments = gpu.function("scale"), ((gpu.a, 2.0, N), SCALE)
    attribute, config = cu.CUlaunchAttribute(), cu.CUlaunchConfig()
    attribute.id, attribute.value.priority = cu.CUlaunchAttributeID(priority), -4
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream, config.attrs, config.numAttrs = urgent, [attribute], 1
    ask(cu.cuStreamBeginCapture(urgent, RELAXED))
    gpu.launch("scale", *arguments, urgent)
    shape = (1, 1, 1, 1, 1, 1, 0)
    ask(cu.cuLaunchCooperativeKernel(function, *shape, urgent, arguments))
    ask(cu.cuLaunchKernelEx(config, function, arguments, 0))
    graph = ask(cu.cuStreamEndCapture(urgent))
    captured = told(graph)
    value = cu.CUkernelNodeAttrValue()
    value.priority = -1
    ask(cu.cuGraphKernelNodeSetAttribute(ask(cu.cuGraphGetNodes(graph, 8))[0][0], priority, value))
    return {"captured": captured, "set": told(graph), "clone": told(ask(cu.cuGraphClone(graph)))}


def unjoined() -> Any:
    """Shows that work after the joined event counts as not joined."""
    gpu = Graphs()
    other = ask(cu.cuStreamCreate(1))
    fork, join = ask(cu.cuEventCreate(2)), ask(cu.cuEventCreate(2))
    codes = []
    for late in (False, True):
        ask(cu.cuStreamBeginCapture(gpu.stream, RELAXED))
        ask(cu.cuEventRecord(fork, gpu.stream))
        ask(cu.cuStreamWaitEvent(other, fork, 0))
        gpu.launch("scale", (gpu.a, 2.0, N), SCALE, other)
        ask(cu.cuEventRecord(join, other))
        if late:
            gpu.launch("scale", (gpu.a, 2.0, N), SCALE, other)
        ask(cu.cuStreamWaitEvent(gpu.stream, join, 0))
        codes.append(code_of(cu.cuStreamEndCapture(gpu.stream)))
    return codes


def reused_memory() -> Any:
    """Replays a kernel: its touches are determined at the launch, not at the capture."""
    gpu = Graphs()
    size = 8 << 20
    first = ask(cu.cuMemAllocManaged(size, 1))
    ask(cu.cuStreamBeginCapture(gpu.stream, RELAXED))
    gpu.launch("scale", (int(first), 2.0, 16), SCALE)
    executable = instance(ask(cu.cuStreamEndCapture(gpu.stream)))
    ask(cu.cuMemFree(first))
    again = ask(cu.cuMemAllocManaged(size // 2, 1))
    gpu.replay(executable)
    return int(first) == int(again)


def own_memory() -> Any:
    """Runs a graph that allocates, works and frees; returns its answers and reserved memory."""
    gpu = Graphs()
    size = 4 * N

    def reserved() -> list[int]:
        names = ("USED_MEM_CURRENT", "RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH")
        attributes = [getattr(cu.CUgraphMem_attribute, f"CU_GRAPH_MEM_ATTR_{n}") for n in names]
        return [int(ask(cu.cuDeviceGetGraphMemAttribute(0, one))) // size for one in attributes]

    ask(cu.cuStreamBeginCapture(gpu.stream, RELAXED))
    inner, kept = (int(ask(cu.cuMemAllocAsync(size, gpu.stream))) for _ in range(2))
    ask(cu.cuMemcpyDtoDAsync(inner, gpu.a, size, gpu.stream))
    gpu.launch("scale", (inner, 3.0, N), SCALE)
    ask(cu.cuMemcpyDtoDAsync(kept, inner, size, gpu.stream))
    gpu.launch("add", (gpu.a, inner, gpu.b, N), ADD)
    ask(cu.cuMemFreeAsync(inner, gpu.stream))
    twice = code_of(cu.cuMemFreeAsync(inner, gpu.stream))
    foreign = code_of(cu.cuMemFreeAsync(gpu.a, gpu.stream))
    graph = ask(cu.cuStreamEndCapture(gpu.stream))
    nodes, count = ask(cu.cuGraphGetNodes(graph, 16))
    types = [int(ask(cu.cuGraphNodeGetType(node))) for node in nodes[:count]]
    params = ask(cu.cuGraphMemAllocNodeGetParams(nodes[0]))
    before = reserved()
    executable = instance(graph)
    found = {
        "types": types,
        "asked": [int(params.dptr) == inner, int(params.bytesize) == size],
        "freed": int(ask(cu.cuGraphMemFreeNodeGetParams(nodes[count - 1]))) == inner,
        "refused": [twice, foreign],
        "second": code_of(cu.cuGraphInstantiate(graph, 0)),
        "clone": code_of(cu.cuGraphClone(graph)),
        "child": code_of(cu.cuGraphAddChildGraphNode(new_graph(), [], 0, graph)),
        "destroyed_node": code_of(cu.cuGraphDestroyNode(nodes[0])),
        "before": before,
    }
    gpu.replay(executable)
    found["launched"] = reserved()
    found["kept"] = float(gpu.read(kept, N)[-1])
    found["again"] = code_of(cu.cuGraphLaunch(executable, gpu.stream))  # `kept` is live
    ask(cu.cuMemFreeAsync(kept, gpu.stream))
    gpu.replay(executable)
    ask(cu.cuGraphExecDestroy(executable))
    ask(cu.cuGraphDestroy(graph))
    found["outlived"] = [reserved(), float(gpu.read(kept, N)[-1])]
    ask(cu.cuMemFree(kept))
    found["after"] = reserved()
    found["values"] = gpu.values()
    return found


def own_memory_relaunched() -> Any:
    """Launches with automatic frees of memory from the last launch; a trim returns the memory."""
    gpu = Graphs()
    graph = new_graph()
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = 4 * N
    node = ask(cu.cuGraphAddMemAllocNode(graph, [], 0, params))
    address = int(params.dptr)
    filled = gpu.memset(graph, [node], address, 7.0)
    gpu.copy(graph, [filled], gpu.b, address)
    executable = ask(cu.cuGraphInstantiate(graph, 1))
    gpu.replay(executable, 3)
    ask(cu.cuMemFree(address))
    high = cu.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    held = [int(ask(cu.cuDeviceGetGraphMemAttribute(0, high)))]
    ask(cu.cuDeviceGraphMemTrim(0))
    held.append(int(ask(cu.cuDeviceGetGraphMemAttribute(0, high))))
    freed = code_of(cu.cuMemFree(address))
    return {"values": gpu.values(), "held": held, "freed": freed}


PROGRAMS = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == "__main__"
}


if __name__ == "__main__":
    json.dump(PROGRAMS[sys.argv[1]](*sys.argv[2:]), sys.stdout)
