"""Sets managed variables of loaded code to zero; prints nothing. Each step is a memset of 4 bytes.

A large variable is known from the query of its address until its code is unloaded.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .global .attribute(.managed) .align 8 .b8 large[8388608];
.visible .global .attribute(.managed) .align 8 .b8 small[65536];
.visible .global .align 8 .b8 plain[8388608];
.visible .entry nothing() { ret; }
\0"""


def ask(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0]}")
    return answer[1] if len(answer) == 2 else answer[1:]


def set_variables(module: Any) -> None:
    for name in (b"large", b"small", b"plain", b"large"):
        address, _ = ask(cu.cuModuleGetGlobal(module, name))
        ask(
            cu.cuMemsetD32Async(int(address) + (4 << 20), 0, 1, 0)
            if name != b"small"
            else cu.cuMemsetD32Async(address, 0, 1, 0)
        )


def main() -> None:
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(ask(cu.cuDeviceGet(0))))))
    for _ in range(3):  # its memory comes back at the same address
        first, second = (ask(cu.cuModuleLoadData(PTX)) for _ in range(2))
        set_variables(first)
        address, _ = ask(cu.cuModuleGetGlobal(second, b"large"))
        ask(cu.cuModuleUnload(first))
        ask(cu.cuMemsetD32Async(address, 0, 1, 0))  # in the module that stays loaded
        ask(cu.cuModuleUnload(second))
    library = ask(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    address, _ = ask(cu.cuLibraryGetManaged(library, b"large"))
    ask(cu.cuMemsetD32Async(address, 0, 1, 0))
    ask(cu.cuCtxSynchronize())
    ask(cu.cuLibraryUnload(library))
    memory = int(ask(cu.cuMemAlloc(4 << 20)))
    ask(cu.cuMemsetD32Async(memory, 0, 1, 0))
    ask(cu.cuCtxSynchronize())


if __name__ == "__main__":
    main()
