"""Question: what a pointer's attributes tell about managed memory."""

from __future__ import annotations

import ctypes

from probe.driver import BLOCK, bindings, native
from probe.figures import Json
from probe.gpu import Gpu
from probe.registry import Notes, question

PREFIX = "CU_POINTER_ATTRIBUTE_"
VALUE_BYTES = 64
"""More than any attribute has."""
OF_EACH = ("BUFFER_ID", "MEMORY_BLOCK_ID")
"""They differ between any two allocations."""


def attributes(address: int) -> Json:
    """Returns all attributes of an address: the error, or the value's first 8 bytes as hexadecimal
    digits. A value that is the address itself becomes `address`."""
    found: Json = {}
    for which in bindings().CUpointer_attribute:
        value = ctypes.create_string_buffer(VALUE_BYTES)
        code = native("cuPointerGetAttribute")(value, int(which), address)
        text = "address" if value.raw[:8] == address.to_bytes(8, "little") else value.raw[:8].hex()
        found[which.name.removeprefix(PREFIX)] = f"error {code}" if code else text
    return found


@question(10, "what a library can see of a conversion to managed memory")
def ask_attributes(gpu: Gpu, out: Notes) -> None:
    both = {"managed": attributes(gpu.written(BLOCK)), "plain": attributes(gpu.plain(BLOCK))}
    for kind, found in both.items():
        out[kind] = found
    out["differ"] = sorted(
        name
        for name, value in both["managed"].items()
        if name not in OF_EACH and value != both["plain"][name]
    )
