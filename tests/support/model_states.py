"""Sets the state of blocks of a worker's model without the events that normally lead there.

The product has no such call: model_states.c is compiled here together with the model's sources.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Iterable
from pathlib import Path

import builds
from places import ROOT

from pump.model.client import ClientModel
from pump.wire.abi import ffi

ROOMS = ("model", "extents", "predict", "timing")
FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O1",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Werror",
)


@functools.cache
def _library() -> ctypes.CDLL:
    """Builds the library once per test run with the system's C compiler."""
    name = "model_states.so"
    sources = [file for room in ROOMS for file in (ROOT / "daemon/core" / room).glob("*.c")]
    sources.append(Path(__file__).with_suffix(".c"))
    include = (f"-I{ROOT}", f"-I{ROOT / 'shim/include'}")

    def make(folder: Path) -> None:
        command = ["cc", *FLAGS, *include, "-o", folder / name, *sources, "-lm"]
        subprocess.run(command, check=True, timeout=120)

    return ctypes.CDLL(str(builds.once("model-states", make) / name))


def set_states(model: ClientModel, blocks: Iterable[int], state: int) -> None:
    """Sets live blocks to a PUMP_BLOCK_* state; the model treats this as a deviation."""
    numbers = list(blocks)
    array = (ctypes.c_int64 * len(numbers))(*numbers)
    raw = ctypes.c_void_p(int(ffi.cast("uintptr_t", model.raw)))
    _library().set_states(raw, array, len(numbers), state)
