"""A segment that grows beyond the GPU's memory, after something else has used virtual memory.

mapped_segment.py BEFORE [LIBRARY]: BEFORE is a function of this file. Prints "true" if the
segment holds what was written to it.
"""

from __future__ import annotations

import ctypes
import json
import sys

from cuda.bindings import driver as cu
from mapped_calls import PIECE, ask, create, create_as, holds, place, reserve, write


def by_a_library() -> None:
    """Argument 2 is a library whose memory stays the driver's (nccl_like.c)."""
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
    """main() has made one of these without."""


def segment() -> bool:
    """As PyTorch with expandable segments: addresses for more than the card has, and pieces
    of memory one by one, half as much again as the card has; after argument 1."""
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
