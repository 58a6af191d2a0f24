"""Programs that use nodes of graphs of the CUDA runtime by name, for test_runtime_nodes.py. Each
prints one JSON object. The libraries are preloaded, so their names are global."""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np
from array_programs import HOST_FUNCTION, Box, Call, Host, Pitched, Set, Triple, pointer, size
from runtime_programs import CUDA, DEVICE_TO_HOST, HOST_TO_DEVICE, Buffer, check

KERNEL, COPY, MEMSET, HOST, CHILD, EMPTY, WAIT, RECORD = range(8)
ALLOC, FREE = 10, 11
TABLE_WORDS = 16
MODULE = b""".version 7.0
.target sm_50
.address_size 64
.visible .global .align 4 .b8 pump_table[64];
.visible .entry pump_put(.param .u64 where, .param .u32 value)
{
  ret;
}
\0"""


class Call2(ctypes.Structure):
    """cudaKernelNodeParamsV2."""

    _fields_ = (*Call._fields_, ("context", c_void_p), ("handle", c_int))


class Copy2(ctypes.Structure):
    """cudaMemcpyNodeParams."""

    _fields_ = (("flags", c_int * 2), ("context", c_void_p), ("box", Box))


class Alloc(ctypes.Structure):
    """cudaMemAllocNodeParams, of a pool on device 0."""

    _fields_ = (
        *(("kind", c_int), ("handles", c_int), ("location", c_int * 2), ("pool", c_uint64 * 9)),
        *(("accesses", c_void_p), ("access_count", c_size_t), ("bytes", c_size_t)),
        ("address", c_void_p),
    )


class Does(ctypes.Union):
    """The union of cudaGraphNodeParams."""

    _fields_ = (
        *(("call", Call2), ("copy", Copy2), ("fill", Set), ("host", Host), ("alloc", Alloc)),
        *(("handle", c_void_p), ("all", c_uint64 * 29)),
    )


class Node(ctypes.Structure):
    """cudaGraphNodeParams."""

    _anonymous_ = ("does",)
    _fields_ = (("type", c_int), ("none", c_int * 3), ("does", Does), ("more", c_uint64))


def registered() -> tuple[c_void_p, c_void_p]:
    """Registers the kernel and the variable by host addresses, as nvcc's start-up code does."""
    CUDA.__cudaRegisterFatBinary.restype = c_void_p
    binary = c_void_p(CUDA.__cudaRegisterFatBinary(MODULE))
    put = ctypes.cast(CUDA.cudaGetLastError, c_void_p)
    table = ctypes.cast(CUDA.cudaPeekAtLastError, c_void_p)
    nothing = (None, None, None, None, None)
    CUDA.__cudaRegisterFunction(binary, put, b"", b"pump_put", -1, *nothing)
    CUDA.__cudaRegisterVar(binary, table, b"", b"pump_table", 0, size(64), 0, 0)
    return put, table


class Program:
    """A registered kernel and variable, a buffer of 32-bit words, and a graph."""

    def __init__(self) -> None:
        self.put, self.table = registered()
        self.buffer = Buffer(np.zeros(8, np.uint32))
        self.where = self.buffer.address.value or 0
        self.results = np.zeros(8, np.uint32)
        self.graph = c_void_p()
        self.kept: list[Any] = []
        check(CUDA.cudaGraphCreate(byref(self.graph), 0))

    def call(self, value: int, where: int = 0) -> Call:
        words = c_void_p(where or self.where), c_int(value)
        parameters = (c_void_p * 2)(*(ctypes.addressof(word) for word in words))
        self.kept += [words, parameters]
        made = Call(func=self.put, parameters=ctypes.addressof(parameters))
        made.grid[:], made.block[:] = (1, 1, 1), (1, 1, 1)
        return made

    def call2(self, value: int) -> Call2:
        made = Call2()
        ctypes.memmove(byref(made), byref(self.call(value)), ctypes.sizeof(Call))
        return made

    def fill(self, value: int) -> Set:
        return Set(self.where, 0, value, 4, 8, 1)

    def back(self, words: int) -> Box:
        """Returns a copy from the buffer to the results."""
        box = Box(extent=Triple(4 * words, 1, 1), kind=DEVICE_TO_HOST)
        box.src = Pitched(self.where, 32, 32, 1)
        box.dst = Pitched(self.results.ctypes.data, 32, 32, 1)
        return box

    def add(self, name: str, *what: Any, on: tuple[c_void_p, ...] = ()) -> c_void_p:
        node, before = c_void_p(), (c_void_p * max(len(on), 1))(*on)
        function = getattr(CUDA, f"cudaGraphAdd{name}")
        check(function(byref(node), self.graph, before, size(len(on)), *what))
        return node

    def executable(self) -> c_void_p:
        made = c_void_p()
        check(CUDA.cudaGraphInstantiate(byref(made), self.graph, ctypes.c_ulonglong(0)))
        return made

    def launch(self, executable: c_void_p) -> list[int]:
        self.results[:] = 0
        check(CUDA.cudaGraphLaunch(executable, None))
        check(CUDA.cudaDeviceSynchronize())
        return [int(number) for number in self.results]

    def new_launch(self) -> list[int]:
        return self.launch(self.executable())


def event() -> c_void_p:
    made = c_void_p()
    check(CUDA.cudaEventCreate(byref(made)))
    return made


def any_kind() -> Any:
    """Adds a chain of nodes of every kind by cudaGraphAddNode, then changes their parameters."""
    program, called, first, child = Program(), [], event(), c_void_p()
    check(CUDA.cudaGraphCreate(byref(child), 0))
    nodes: list[c_void_p] = []

    def add(kind: int, **does: Any) -> Node:
        params, node = Node(type=kind, **does), c_void_p()
        before, edges = (c_void_p * 1)(*nodes[-1:]), (ctypes.c_byte * 8)()
        link = (before, edges, size(len(nodes[-1:])))
        check(CUDA.cudaGraphAddNode(byref(node), program.graph, *link, byref(params)))
        nodes.append(node)
        return params

    def host(value: int) -> Host:
        program.kept.append(HOST_FUNCTION(called.append))
        return Host(program.kept[-1], value)

    add(MEMSET, fill=program.fill(3))
    add(KERNEL, call=program.call2(5))
    add(RECORD, handle=first)
    add(WAIT, handle=first)
    inner = add(CHILD, handle=child)
    add(EMPTY)
    add(COPY, copy=Copy2(box=program.back(3)))
    add(HOST, host=host(11))
    executable = program.executable()
    out: dict[str, Any] = {"first": program.launch(executable)}
    out["own_child"] = inner.handle not in (None, child.value)
    changes = ((0, MEMSET, {"fill": program.fill(4)}), (1, KERNEL, {"call": program.call2(6)}))
    copied = (6, COPY, {"copy": Copy2(box=program.back(5))})
    for index, kind, does in (*changes, copied, (7, HOST, {"host": host(12)})):
        params = Node(type=kind, **does)
        check(CUDA.cudaGraphExecNodeSetParams(executable, nodes[index], byref(params)))
    out["exec"] = program.launch(executable)
    for index, kind, does in (*changes, copied):
        params = Node(type=kind, **does)
        check(CUDA.cudaGraphNodeSetParams(nodes[index], byref(params)))
    out["node"], out["called"] = program.new_launch(), called
    wrong, unknown, handle = Node(type=MEMSET, fill=program.fill(1)), program.call2(1), Call2()
    out["kind"] = CUDA.cudaGraphNodeSetParams(nodes[1], byref(wrong))
    unknown.func = 0x1234
    out["unknown"] = CUDA.cudaGraphNodeSetParams(nodes[1], byref(Node(type=0, call=unknown)))
    ctypes.memmove(byref(handle), byref(program.call2(9)), ctypes.sizeof(Call2))
    kernel = c_void_p()
    check(CUDA.cudaGetKernel(byref(kernel), program.put))
    handle.func, handle.handle = kernel.value, 2
    check(CUDA.cudaGraphNodeSetParams(nodes[1], byref(Node(type=0, call=handle))))
    out["handle"] = program.new_launch()[0]
    return out


def attributes() -> Any:
    """Sets, keeps and copies attributes of a kernel node; wrong ones are refused."""
    program = Program()
    nodes = [program.add("KernelNode", byref(program.call(1))) for _ in range(2)]
    empty, read, given = program.add("EmptyNode"), (c_int * 16)(), (c_int * 16)()

    def get(node: c_void_p, attribute: int, word: int = 0) -> int:
        check(CUDA.cudaGraphKernelNodeGetAttribute(node, attribute, read))
        return read[word]

    def put(node: c_void_p, attribute: int, *words: int) -> int:
        given[: len(words)] = words
        return int(CUDA.cudaGraphKernelNodeSetAttribute(node, attribute, given))

    out: dict[str, Any] = {"before": [get(nodes[0], attribute) for attribute in (2, 8, 10)]}
    out["set"] = [put(nodes[0], 2, 1), put(nodes[0], 8, -9), put(nodes[0], 10, 1)]
    ratio = c_int.from_buffer(c_float(0.5))
    out["window"] = [put(nodes[0], 1, 4096, 0, 64, 0, ratio.value), get(nodes[0], 1, 2)]
    check(CUDA.cudaGraphKernelNodeSetParams(nodes[0], byref(program.call(2))))
    check(CUDA.cudaGraphKernelNodeCopyAttributes(nodes[1], nodes[0]))
    out["after"] = [get(nodes[1], attribute) for attribute in (2, 8, 10)]
    out["refused"] = [put(nodes[0], 3, 2), put(nodes[0], 10, 2), put(nodes[0], 77, 1)]
    out["cluster"] = put(nodes[0], 4, 2, 1, 1)
    ask = CUDA.cudaGraphKernelNodeCopyAttributes
    out["other"] = [put(empty, 8, -1), ask(nodes[0], empty), ask(empty, nodes[0])]
    return out


def symbols() -> Any:
    """Copies to a variable and from it as nodes, then with other parameters."""
    program, given = Program(), np.arange(1, TABLE_WORDS + 1, dtype=np.uint32)
    results = pointer(program.results)

    def to(first: int, words: int) -> tuple[Any, ...]:
        """Returns a copy of `words` given words to the variable, from word `first` on."""
        return program.table, pointer(given), size(4 * words), size(4 * first), HOST_TO_DEVICE

    def back(first: int, words: int) -> tuple[Any, ...]:
        return results, program.table, size(4 * words), size(4 * first), DEVICE_TO_HOST

    there = program.add("MemcpyNodeToSymbol", *to(0, 8))
    here = program.add("MemcpyNodeFromSymbol", *back(2, 4), on=(there,))
    executable = program.executable()
    out: dict[str, Any] = {"first": program.launch(executable)}
    exec_to, exec_from = (
        getattr(CUDA, f"cudaGraphExecMemcpyNodeSetParams{way}Symbol") for way in ("To", "From")
    )
    check(exec_to(executable, there, *to(4, 4)))
    check(exec_from(executable, here, *back(3, 5)))
    out["exec"] = program.launch(executable)
    check(CUDA.cudaGraphMemcpyNodeSetParamsToSymbol(there, *to(12, 4)))
    check(CUDA.cudaGraphMemcpyNodeSetParamsFromSymbol(here, *back(10, 6)))
    out["node"] = program.new_launch()
    wrong = (program.buffer.address, pointer(given), size(4), size(0), HOST_TO_DEVICE)
    turned = (program.table, pointer(given), size(4), size(0), DEVICE_TO_HOST)
    change = CUDA.cudaGraphMemcpyNodeSetParamsToSymbol
    out["refused"] = [change(there, *what) for what in (to(13, 4), wrong, turned)]
    return out


def own_memory() -> Any:
    """Allocates, uses and frees memory of a graph by its nodes; the device counts it."""
    program, told, freed = Program(), Alloc(), c_void_p()
    given = Alloc(kind=1, location=(1, 0), bytes=1 << 20)
    node = program.add("MemAllocNode", byref(given))
    where = given.address
    fill = program.add("MemsetNode", byref(Set(where, 0, 7, 4, 8, 1)), on=(node,))
    run = (pointer(program.results), c_void_p(where), size(32), DEVICE_TO_HOST)
    copied = program.add("MemcpyNode1D", *run, on=(fill,))
    free = program.add("MemFreeNode", c_void_p(where), on=(copied,))
    check(CUDA.cudaGraphMemAllocNodeGetParams(node, byref(told)))
    check(CUDA.cudaGraphMemFreeNodeGetParams(free, byref(freed)))

    def counted() -> list[int]:
        values = [c_uint64(), c_uint64(), c_uint64()]
        for attribute, value in zip((0, 1, 2), values, strict=True):
            check(CUDA.cudaDeviceGetGraphMemAttribute(0, attribute, byref(value)))
        return [value.value >> 20 for value in values]

    out: dict[str, Any] = {"before": counted()}
    executable = program.executable()
    out["values"] = [program.launch(executable) for _ in range(2)][1]
    out["after"], out["told"] = counted(), [told.bytes, told.address == where == freed.value]
    check(CUDA.cudaDeviceSetGraphMemAttribute(0, 1, byref(c_uint64(0))))
    check(CUDA.cudaDeviceGraphMemTrim(0))
    again = c_void_p()
    instance = (byref(again), program.graph, ctypes.c_ulonglong(0))
    out["trimmed"], out["twice"] = counted(), CUDA.cudaGraphInstantiate(*instance)
    other, nodes = c_void_p(), (c_void_p * 1)()
    check(CUDA.cudaGraphCreate(byref(other), 0))
    unknown = (byref(again), other, nodes, size(0), program.buffer.address)
    out["unknown"] = CUDA.cudaGraphAddMemFreeNode(*unknown)
    check(CUDA.cudaGraphExecDestroy(executable))
    return out


def set_params() -> Any:
    """Makes every call that changes a node of one kind, in a graph and in an executable one."""
    program, called, first, second = Program(), [], event(), event()
    host, other = HOST_FUNCTION(called.append), HOST_FUNCTION(lambda data: called.append(-data))
    children = [c_void_p(), c_void_p()]
    for child, value in zip(children, (21, 22), strict=True):
        check(CUDA.cudaGraphCreate(byref(child), 0))
        inner, where = c_void_p(), program.where + 28  # the last word
        call = program.call(value, where)
        check(CUDA.cudaGraphAddKernelNode(byref(inner), child, None, size(0), byref(call)))
    fill = program.add("MemsetNode", byref(program.fill(3)))
    call = program.add("KernelNode", byref(program.call(5)), on=(fill,))
    child = program.add("ChildGraphNode", children[0], on=(call,))
    record = program.add("EventRecordNode", first, on=(child,))
    wait = program.add("EventWaitNode", first, on=(record,))
    copy = program.add("MemcpyNode", byref(program.back(8)), on=(wait,))
    program.add("HostNode", byref(Host(host, 11)), on=(copy,))
    last = program.add("HostNode", byref(Host(host, 12)), on=(copy,))
    executable = program.executable()
    out: dict[str, Any] = {"first": program.launch(executable)}
    check(CUDA.cudaGraphExecMemsetNodeSetParams(executable, fill, byref(program.fill(4))))
    check(CUDA.cudaGraphExecKernelNodeSetParams(executable, call, byref(program.call(6))))
    check(CUDA.cudaGraphExecChildGraphNodeSetParams(executable, child, children[1]))
    check(CUDA.cudaGraphExecEventRecordNodeSetEvent(executable, record, second))
    check(CUDA.cudaGraphExecEventWaitNodeSetEvent(executable, wait, second))
    check(CUDA.cudaGraphExecMemcpyNodeSetParams(executable, copy, byref(program.back(8))))
    check(CUDA.cudaGraphExecHostNodeSetParams(executable, last, byref(Host(other, 13))))
    out["exec"] = program.launch(executable)
    out["recorded"] = CUDA.cudaEventQuery(second)
    check(CUDA.cudaGraphMemsetNodeSetParams(fill, byref(program.fill(7))))
    check(CUDA.cudaGraphKernelNodeSetParams(call, byref(program.call(8))))
    check(CUDA.cudaGraphMemcpyNodeSetParams(copy, byref(program.back(1))))
    check(CUDA.cudaGraphEventRecordNodeSetEvent(record, second))
    check(CUDA.cudaGraphEventWaitNodeSetEvent(wait, second))
    check(CUDA.cudaGraphHostNodeSetParams(last, byref(Host(other, 14))))
    told, filled, seen = Host(), Set(), [c_void_p(), c_void_p()]
    check(CUDA.cudaGraphHostNodeGetParams(last, byref(told)))
    check(CUDA.cudaGraphMemsetNodeGetParams(fill, byref(filled)))
    check(CUDA.cudaGraphEventRecordNodeGetEvent(record, byref(seen[0])))
    check(CUDA.cudaGraphEventWaitNodeGetEvent(wait, byref(seen[1])))
    out["told"] = [told.data, filled.value, *(found.value == second.value for found in seen)]
    out["node"] = program.new_launch()
    run = (pointer(program.results), program.buffer.address, size(8), DEVICE_TO_HOST)
    check(CUDA.cudaGraphMemcpyNodeSetParams1D(copy, *run))
    out["run"], out["called"] = program.new_launch()[:3], called
    wrong = CUDA.cudaGraphMemsetNodeSetParams(call, byref(program.fill(1)))
    foreign = CUDA.cudaGraphExecEventRecordNodeSetEvent(executable, wait, second)
    out["refused"] = [wrong, foreign]
    return out


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
