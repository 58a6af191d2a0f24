"""Question: the driver's managed pools."""

from __future__ import annotations

import ctypes
import functools

from probe.driver import (
    BLOCK,
    MIB,
    TO_HOST,
    U64,
    CudaError,
    MemLocation,
    PoolProps,
    call,
    error_name,
    native,
    outcome,
    timed,
)
from probe.figures import Json, rounded
from probe.gpu import Gpu, peek
from probe.moves import moves_summary
from probe.registry import Notes, question


@question(30, "whether the driver's managed pools exist and can back a stream-ordered pool")
def ask_managed_pool(gpu: Gpu, out: Notes) -> None:
    native("cuMemPoolCreate")
    device, host, none = MemLocation(1, int(gpu.device)), MemLocation(2, 0), MemLocation(0, 0)
    length, managed_type = 64 * MIB, 2
    for name, location in (("none", none), ("device", device), ("host", host)):
        gpu.check_managed(length)
        pool = U64(0)
        props = PoolProps(managed_type, 0, location, None, 0, 0)
        code = native("cuMemPoolCreate")(ctypes.byref(pool), ctypes.byref(props))
        row: Json = {"create": {"code": code, "name": error_name(code) if code else ""}}
        if code == 0:
            row |= use_pool(gpu, pool.value, length)
            row["destroy"] = outcome(functools.partial(call, "cuMemPoolDestroy", pool.value))
        out[f"location_{name}"] = row
    pool = U64(0)
    out["cuMemGetDefaultMemPool"] = outcome(
        lambda: call("cuMemGetDefaultMemPool", ctypes.byref(pool), ctypes.byref(none), managed_type)
    )


def use_pool(gpu: Gpu, pool: int, length: int) -> Json:
    """Allocates from a managed pool, migrates, reads, frees, and allocates again."""
    row: Json = {}
    address, is_managed = U64(0), U64(0)
    try:
        row["first_alloc_us"] = rounded(
            timed("cuMemAllocFromPoolAsync", ctypes.byref(address), length, pool, gpu.stream) / 1e3
        )
        gpu.sync()
        code = native("cuPointerGetAttribute")(ctypes.byref(is_managed), 8, address.value)
        row["is_managed"] = bool(is_managed.value) if code == 0 else error_name(code)
        row["address_is_block_aligned"] = address.value % BLOCK == 0
        gpu.launch(gpu.fill(address.value, length, 6))
        row["out"] = moves_summary([gpu.move(address.value, length, TO_HOST)], length)
        row["data_kept"] = peek(address.value) == peek(address.value + length - 4) == 6
        row["in"] = moves_summary([gpu.move(address.value, length, 0)], length)
        old = address.value
        row["free_us"] = rounded(timed("cuMemFreeAsync", old, gpu.stream) / 1e3)
        row["second_alloc_us"] = rounded(
            timed("cuMemAllocFromPoolAsync", ctypes.byref(address), length, pool, gpu.stream) / 1e3
        )
        row["second_alloc_reuses_address"] = address.value == old
        call("cuMemFreeAsync", address.value, gpu.stream)
        gpu.sync()
    except CudaError as error:
        row["failed"] = str(error)
    return row
