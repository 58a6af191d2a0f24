"""Tensors of known sizes in PyTorch's segments, each doubled once. With "broken", a wrong report of
the allocator precedes the right ones."""

from __future__ import annotations

import ctypes
import sys

import common
import torch

REPORT = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
SIZES = [3 << 20, (5 << 20) + 512, 1 << 20, 9 << 20, 4096]
"""Bytes; multiples of the allocator's unit."""


class Device(ctypes.Structure):
    """Mirrors c10::Device."""

    _fields_ = (("type", ctypes.c_int8), ("index", ctypes.c_int8))


tensors = [torch.zeros(size, dtype=torch.uint8, device="cuda") for size in SIZES]
freed = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
del freed
if sys.argv[1] == "broken":  # as if the allocator had reused a live block
    report = getattr(ctypes.CDLL(None), REPORT)
    report.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, Device]
    report.restype = None
    report(tensors[0].data_ptr(), 512, 0, 0, Device(1, 0))
for tensor in tensors:
    tensor.mul_(2)
common.tell(sizes=SIZES)
