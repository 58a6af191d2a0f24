"""Not a test. A program that has an event in common with another process (cuda-python).

It launches KERNELS kernels and records the event behind them; the other process then
records it on a stream that has nothing to do. So the event is complete long before the
kernels are. Prints what the driver said of both as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

from cuda.bindings import driver as cu

KERNELS = 3
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 a) { ret; }
"""


def ask(answer: tuple[Any, ...]) -> Any:
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else None


def bytes_of(handle: cu.CUipcEventHandle) -> Any:
    return (ctypes.c_char * 64).from_address(handle.getPtr())


def start() -> Any:
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(0))))
    return ask(cu.cuStreamCreate(1))


def other() -> None:
    stream = start()
    print("ready", flush=True)
    handle = cu.CUipcEventHandle()
    bytes_of(handle).raw = bytes.fromhex(sys.stdin.readline())
    event = ask(cu.cuIpcOpenEventHandle(handle))
    ask(cu.cuEventRecord(event, stream))
    ask(cu.cuEventSynchronize(event))
    print("recorded", flush=True)


def main() -> None:
    with subprocess.Popen(
        [sys.executable, __file__, "other"],
        env={**os.environ, "PUMP_DISABLE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline() == "ready\n"
        stream = start()
        kernel = ask(cu.cuModuleGetFunction(ask(cu.cuModuleLoadData(PTX)), b"touch"))
        memory = int(ask(cu.cuMemAlloc(4 << 20)))
        event = ask(cu.cuEventCreate(6))  # for other processes, without timing
        handle = ask(cu.cuIpcGetEventHandle(event))
        for _ in range(KERNELS):
            arguments = ((cu.CUdeviceptr(memory),), (None,))
            ask(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
        ask(cu.cuEventRecord(event, stream))
        before = int(cu.cuEventQuery(event)[0])
        child.stdin.write(bytes_of(handle).raw.hex() + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "recorded\n"
        said = [before, int(cu.cuEventQuery(event)[0]), int(cu.cuStreamQuery(stream)[0])]
    ask(cu.cuStreamSynchronize(stream))
    json.dump(said, sys.stdout)


other() if sys.argv[1:] == ["other"] else main()
