"""A segment that grows beyond the GPU's memory, after another use of virtual memory.

Usage: mapped_segment.py BEFORE [LIBRARY]. BEFORE is a function of this file. Prints "true" if the
segment has the written contents.
"""

from __future__ import annotations

import ctypes
import json
import sys

from cuda.bindings import driver as cu
from mapped_calls import PIECE, ask, create, create_as, holds, place, reserve, write


def by_a_library() -> None:
    """Loads the library of argument 2, whose memory stays with the driver (nccl_like.c)."""
    buffer = ctypes.CDLL(sys.argv[2]).make_buffer(ctypes.c_size_t(2 * PIECE))
    if buffer != 0:
        raise SystemExit(f"the library's buffer: error {buffer}")


def asked_for_an_export() -> None:
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    cu.cuMemExportToShareableHandle(create(1, 1), kind, 0)


def compressed() -> None:
    place(reserve(1), create_as(compression=1))
    create_as(compression=1)


def never_mapped() -> None:
    create_as(usage=1)


def a_segment_of_its_own() -> None:
    place(reserve(32), create(2), 2)


def before_a_context() -> None:
    """Does nothing: main() has already created memory without a context."""


def segment() -> bool:
    """Makes a segment like PyTorch's expandable segments, after the step of argument 1. Reserves
    twice the GPU's memory and maps 1.5 times the GPU's memory piece by piece."""
    globals()[sys.argv[1]]()
    count, base = 24, reserve(32)
    for i in range(count):
        handle = create_as(compression=1) if i == 5 else create(1, 1)
        place(base + i * PIECE, handle)
        ask(cu.cuMemRelease(handle))
        write(base + i * PIECE, i)
    return all(holds(base + i * PIECE, i) for i in range(count))


def main() -> None:
    ask(cu.cuInit(0))
    if sys.argv[1] == "before_a_context":
        create(2, 1)
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
    json.dump(segment(), sys.stdout)


if __name__ == "__main__":
    main()
