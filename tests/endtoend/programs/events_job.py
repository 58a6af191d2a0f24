"""Not a test. Records an event a second time in a way that pump does not see (cuda-python).

The program launches KERNELS kernels and then records the event. After that, another process
(`process`) or a graph (`graph`) records the event on an idle stream. So the event completes long
before the kernels do. Prints the driver's answers to queries as JSON.
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
    handle = cu.CUipcEventHandle()
    bytes_of(handle).raw = bytes.fromhex(sys.stdin.readline())
    event = ask(cu.cuIpcOpenEventHandle(handle))
    print("opened", flush=True)
    sys.stdin.readline()
    ask(cu.cuEventRecord(event, stream))
    ask(cu.cuEventSynchronize(event))
    print("recorded", flush=True)


class Process:
    """Records the event in another process, which has opened it."""

    def __init__(self, event: cu.CUevent) -> None:
        self.child = subprocess.Popen(
            [sys.executable, __file__, "other"],
            env={**os.environ, "PUMP_DISABLE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        handle = ask(cu.cuIpcGetEventHandle(event))
        assert self.says(bytes_of(handle).raw.hex()) == "opened\n"

    def says(self, line: str) -> str:
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline()

    def record(self) -> None:
        assert self.says("") == "recorded\n"
        assert self.child.wait() == 0


class Graph:
    """Records the event with a graph that has only this node."""

    def __init__(self, event: cu.CUevent) -> None:
        graph = ask(cu.cuGraphCreate(0))
        ask(cu.cuGraphAddEventRecordNode(graph, None, 0, event))
        self.exec = ask(cu.cuGraphInstantiate(graph, 0))
        self.stream = ask(cu.cuStreamCreate(1))

    def record(self) -> None:
        ask(cu.cuGraphLaunch(self.exec, self.stream))
        ask(cu.cuStreamSynchronize(self.stream))


def main(way: str) -> None:
    stream = start()
    kernel = ask(cu.cuModuleGetFunction(ask(cu.cuModuleLoadData(PTX)), b"touch"))
    memory = ask(cu.cuMemAlloc(4 << 20))
    event = ask(cu.cuEventCreate(6))  # interprocess, without timing
    recorder = Process(event) if way == "process" else Graph(event)
    for _ in range(KERNELS):
        arguments = ((memory,), (None,))
        ask(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
    ask(cu.cuEventRecord(event, stream))
    said = [int(cu.cuEventQuery(event)[0])]
    recorder.record()
    said += [int(cu.cuEventQuery(event)[0]), int(cu.cuStreamQuery(stream)[0])]
    ask(cu.cuStreamSynchronize(stream))
    json.dump(said, sys.stdout)


other() if sys.argv[1] == "other" else main(sys.argv[1])
