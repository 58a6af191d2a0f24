"""Programs about arrays, textures and surfaces, run by driver_programs.py."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import Gpu, ask, code_of

FETCH = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fetch(.param .u64 texture, .param .u64 out) { ret; }
"""


def array_shape(width: int, height: int, depth: int = 0) -> Any:
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth = width, height, depth
    shape.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    shape.NumChannels = 2
    return shape


def box(
    source: Any, target: Any, texels: tuple[int, int, int], at: tuple[int, int, int] = (0, 0, 0)
) -> Any:
    """Returns a copy of `texels` 8-byte texels between memory and an array, from `at` on."""
    copy = cu.CUDA_MEMCPY3D()
    kinds = cu.CUmemorytype
    for side, end in (("src", source), ("dst", target)):
        if isinstance(end, np.ndarray):
            setattr(copy, f"{side}MemoryType", kinds.CU_MEMORYTYPE_HOST)
            setattr(copy, f"{side}Host", end.ctypes.data)
            setattr(copy, f"{side}Pitch", end.strides[1])
            setattr(copy, f"{side}Height", end.shape[1])
        else:
            setattr(copy, f"{side}MemoryType", kinds.CU_MEMORYTYPE_ARRAY)
            setattr(copy, f"{side}Array", end)
            setattr(copy, f"{side}XInBytes", at[0] * 8)
            setattr(copy, f"{side}Y", at[1])
            setattr(copy, f"{side}Z", at[2])
    copy.WidthInBytes, copy.Height, copy.Depth = texels[0] * 8, texels[1], texels[2]
    return copy


def arrays() -> Any:
    """Copies texels there and back, whole, in part, between arrays and in graphs. A handle cannot
    serve as an address, and no copy passes an edge."""
    gpu = Gpu()
    whole = np.random.default_rng(1).random((4, 6, 50, 2), np.float32)
    solid, other = (ask(cu.cuArray3DCreate(array_shape(50, 6, 4))) for _ in range(2))
    ask(cu.cuMemcpy3D(box(whole, solid, (50, 6, 4))))
    part, back = np.zeros((2, 3, 20, 2), np.float32), np.zeros_like(whole)
    ask(cu.cuMemcpy3D(box(solid, part, (20, 3, 2), (7, 2, 1))))
    between = box(solid, other, (50, 6, 4))
    graph = ask(cu.cuGraphCreate(0))
    node = ask(cu.cuGraphAddMemcpyNode(graph, [], 0, between, gpu.context))
    told = ask(cu.cuGraphMemcpyNodeGetParams(node))
    ask(cu.cuGraphMemcpyNodeSetParams(node, told))
    ask(cu.cuGraphLaunch(ask(cu.cuGraphInstantiate(graph, 0)), gpu.stream))
    gpu.sync()
    ask(cu.cuMemcpy3D(box(other, back, (50, 6, 4))))
    line, row = ask(cu.cuArray3DCreate(array_shape(64, 0))), np.arange(128, dtype=np.float32)
    device, again = gpu.array(row), np.zeros_like(row)
    ask(cu.cuMemcpyDtoA(line, 0, device, 256))
    ask(cu.cuMemcpyHtoA(line, 256, row.ctypes.data + 256, 256))
    ask(cu.cuMemcpyAtoH(again.ctypes.data, line, 0, 512))
    shape = ask(cu.cuArray3DGetDescriptor(solid))
    return {
        "whole": bool(np.array_equal(back, whole)),
        "part": bool(np.array_equal(part, whole[1:3, 2:5, 7:27])),
        "row": bool(np.array_equal(again, row)),
        "shape": [int(shape.Width), int(shape.Height), int(shape.Depth), int(shape.NumChannels)],
        "past": code_of(cu.cuMemcpy3D(box(whole, solid, (50, 6, 4), (1, 0, 0)))),
        "half": code_of(cu.cuMemcpyDtoA(line, 4, device, 8)),
        "no array": code_of(cu.cuMemcpyDtoA(cu.CUarray(device), 0, device, 8)),
        "no address": code_of(cu.cuMemcpyDtoD(int(solid), device, 8)),
    }


def levels() -> Any:
    """Makes a mipmapped array: its levels are arrays of their own, and it ends as a whole."""
    Gpu()
    made = ask(cu.cuMipmappedArrayCreate(array_shape(16, 8), 3))
    found = []
    for number in range(3):
        level = ask(cu.cuMipmappedArrayGetLevel(made, number))
        shape = ask(cu.cuArray3DGetDescriptor(level))
        width, height = int(shape.Width), int(shape.Height)
        values = np.full((1, height, width, 2), number + 1, np.float32)
        ask(cu.cuMemcpy3D(box(values, level, (width, height, 1))))
        found.append([level, width, height])
    sums = []
    for level, width, height in found:
        back = np.zeros((1, height, width, 2), np.float32)
        ask(cu.cuMemcpy3D(box(level, back, (width, height, 1))))
        sums.append([width, height, float(back.sum())])
    ends = [code_of(cu.cuArrayDestroy(found[0][0])), code_of(cu.cuMipmappedArrayDestroy(made))]
    return [sums, code_of(cu.cuMipmappedArrayGetLevel(made, 0)), ends]


def textures() -> Any:
    """Lets a kernel's C function find and read the memory of an object: an array and linear managed
    memory. Objects end once, and never refer to missing memory."""
    gpu = Gpu()
    n = 40
    values = np.random.default_rng(2).random((1, 1, n, 2), np.float32)
    array = ask(cu.cuArray3DCreate(array_shape(n, 1)))
    ask(cu.cuMemcpy3D(box(values, array, (n, 1, 1))))
    resource, texture = cu.CUDA_RESOURCE_DESC(), cu.CUDA_TEXTURE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = array
    objects = [ask(cu.cuTexObjectCreate(resource, texture, None))]
    surface = ask(cu.cuSurfObjectCreate(resource))
    linear = cu.CUDA_RESOURCE_DESC()
    linear.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    linear.res.linear.devPtr = gpu.array(values, managed=True)
    linear.res.linear.format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    linear.res.linear.numChannels = 2
    linear.res.linear.sizeInBytes = n * 8
    objects.append(ask(cu.cuTexObjectCreate(linear, texture, None)))
    fetch = ask(cu.cuModuleGetFunction(ask(cu.cuModuleLoadData(FETCH)), b"fetch"))
    read = []
    for handle in objects:
        out = gpu.array(np.zeros(2 * n, np.float32))
        arguments = (int(handle), out), (ctypes.c_uint64, ctypes.c_uint64)
        ask(cu.cuLaunchKernel(fetch, 1, 1, 1, 1, 1, 1, 0, gpu.stream, arguments, 0))
        gpu.sync()
        read.append(bool(np.array_equal(gpu.read(out, 2 * n), values.ravel())))
    linear.res.linear.sizeInBytes = 1 << 40
    return {
        "read": read,
        "too long": code_of(cu.cuTexObjectCreate(linear, texture, None)),
        "ends": [code_of(cu.cuTexObjectDestroy(objects[0])) for _ in range(2)],
        "a surface": [
            code_of(cu.cuTexObjectDestroy(surface)),
            code_of(cu.cuSurfObjectDestroy(surface)),
        ],
    }
