"""Values that a stream waits for or writes, and whether a stream comes to rest."""

from __future__ import annotations

import time

from probe.driver import NOT_READY, CudaError, call, load_libcuda, native


def stream_value(what: str, stream: int, address: int, value: int) -> None:
    """cuStream<what>Value32 (Wait means: until the word is at least value) by its current ABI."""
    name = f"cuStream{what}Value32"
    current = hasattr(load_libcuda(), name + "_v2")
    call(name + "_v2" if current else name, stream, address, value, 0)


def settles(stream: int, limit_s: float = 2.0) -> bool:
    """Whether the stream becomes idle in time. A wait that is never ended must not hang us."""
    deadline = time.monotonic() + limit_s
    while (code := native("cuStreamQuery")(stream)) == NOT_READY:
        if time.monotonic() > deadline:
            return False
    if code != 0:
        raise CudaError("cuStreamQuery", code)
    return True
