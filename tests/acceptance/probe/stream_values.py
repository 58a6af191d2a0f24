"""Stream waits for values, stream writes of values, and whether a stream becomes idle."""

from __future__ import annotations

import time

from probe.driver import NOT_READY, CudaError, call, load_libcuda, native


def stream_value(what: str, stream: int, address: int, value: int) -> None:
    """Calls cuStream<what>Value32 with its current ABI; Wait ends when the word is >= value."""
    name = f"cuStream{what}Value32"
    current = hasattr(load_libcuda(), name + "_v2")
    call(name + "_v2" if current else name, stream, address, value, 0)


def settles(stream: int, limit_s: float = 2.0) -> bool:
    """Returns whether the stream becomes idle in time; a wait that never ends must not hang us."""
    deadline = time.monotonic() + limit_s
    while (code := native("cuStreamQuery")(stream)) == NOT_READY:
        if time.monotonic() > deadline:
            return False
    if code != 0:
        raise CudaError("cuStreamQuery", code)
    return True
