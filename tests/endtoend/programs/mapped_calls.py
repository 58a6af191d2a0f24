"""Calls of virtual memory management that must succeed, for the programs mapped_*.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver as cu

MIB = 1 << 20
PIECE = 4 * MIB


def ask(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


def code(answer: tuple[Any, ...]) -> int:
    return int(answer[0])


def wishes(handle_types: int = 0) -> Any:
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    properties.requestedHandleTypes = cu.CUmemAllocationHandleType(handle_types)
    return properties


def access(flags: int = 3, device: int = 0) -> Any:
    described = cu.CUmemAccessDesc()
    described.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    described.location.id = device
    described.flags = cu.CUmemAccess_flags(flags)
    return described


def reserve(pieces: int, alignment: int = 0) -> int:
    return int(ask(cu.cuMemAddressReserve(pieces * PIECE, alignment, 0, 0)))


def create(pieces: int = 1, handle_types: int = 0) -> Any:
    return ask(cu.cuMemCreate(pieces * PIECE, wishes(handle_types), 0))


def create_as(pieces: int = 1, compression: int = 0, usage: int = 0) -> Any:
    """Creates memory with flags; memory for tile pools (usage 1) belongs to the driver."""
    properties = wishes()
    properties.allocFlags.compressionType = compression
    properties.allocFlags.usage = usage
    return ask(cu.cuMemCreate(pieces * PIECE, properties, 0))


def place(address: int, handle: Any, pieces: int = 1) -> None:
    ask(cu.cuMemMap(address, pieces * PIECE, 0, handle, 0))
    ask(cu.cuMemSetAccess(address, pieces * PIECE, [access()], 1))


def remove(address: int, pieces: int = 1) -> None:
    ask(cu.cuCtxSynchronize())
    ask(cu.cuMemUnmap(address, pieces * PIECE))


def write(address: int, seed: int, pieces: int = 1) -> None:
    values = np.random.default_rng(seed).integers(0, 256, pieces * PIECE, np.uint8)
    ask(cu.cuMemcpyHtoD(address, values.ctypes.data, values.size))


def holds(address: int, seed: int, pieces: int = 1) -> bool:
    values = np.random.default_rng(seed).integers(0, 256, pieces * PIECE, np.uint8)
    back = np.zeros_like(values)
    ask(cu.cuMemcpyDtoH(back.ctypes.data, address, back.size))
    return bool(np.array_equal(values, back))
