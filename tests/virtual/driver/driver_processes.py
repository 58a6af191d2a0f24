"""Programs about initialisation, contexts and processes, run by driver_programs.py."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_base import SCALE, Gpu, ask, code_of
from driver_kernels import vector_add


def fork_after_init() -> Any:
    Gpu()
    child = os.fork()
    if child == 0:
        codes = [code_of(cu.cuInit(0)), code_of(cu.cuDeviceGetCount()), code_of(cu.cuMemAlloc(4))]
        os._exit(0 if codes == [3, 3, 3] else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_before_init() -> Any:
    """Loads the driver in both processes; the child initialises it, then the parent."""
    code_of(cu.cuDriverGetVersion())
    child = os.fork()
    if child == 0:
        Gpu()
        os._exit(0 if vector_add("ptx") else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, vector_add("ptx")]


def exit_while_busy() -> Any:
    """Ends while a stream waits for ever and has more work after the wait."""
    gpu = Gpu()
    pinned = int(ask(cu.cuMemHostAlloc(4, 0)))
    ask(cu.cuStreamWaitValue32(gpu.stream, pinned, 1, 0))
    data = gpu.array(np.ones(4, np.float32))
    for _ in range(500):
        gpu.launch("scale", (data, 1.0, 1), SCALE)
    return "ended"


def contexts() -> Any:
    ask(cu.cuInit(0))
    none = int(ask(cu.cuCtxGetCurrent()))
    without = code_of(cu.cuMemAlloc(4096))
    device = ask(cu.cuDeviceGet(0))
    inactive = ask(cu.cuDevicePrimaryCtxGetState(device))[1]
    context = ask(cu.cuCtxCreate(None, 0, device))
    ask(cu.cuCtxPushCurrent(context))
    popped = ask(cu.cuCtxPopCurrent())
    same = int(popped) == int(context)
    version = ask(cu.cuCtxGetApiVersion(context))
    ask(cu.cuCtxDestroy(context))
    destroyed = code_of(cu.cuCtxSetCurrent(context))
    return {
        "none": none,
        "without": without,
        "inactive": int(inactive),
        "same": same,
        "version": int(version) > 0,
        "destroyed": destroyed,
    }


def handles_for_others() -> Any:
    """Shows that IPC handles are only for memory of cuMemAlloc, and not for their own process."""
    gpu = Gpu()
    plain, managed = gpu.array(np.ones(4, np.float32)), gpu.array(np.ones(4, np.float32), True)
    handle = ask(cu.cuIpcGetMemHandle(plain))
    return {
        "managed": code_of(cu.cuIpcGetMemHandle(managed)),
        "nothing": code_of(cu.cuIpcGetMemHandle(4096)),
        "same process": code_of(cu.cuIpcOpenMemHandle(handle, 1)),
        "no handle": code_of(cu.cuIpcOpenMemHandle(cu.CUipcMemHandle(), 1)),
    }


def events_for_others() -> Any:
    """Shows that handles are only for events made for them, and not for their own process."""
    Gpu()
    event = ask(cu.cuEventCreate(6))
    handle = ask(cu.cuIpcGetEventHandle(event))
    return {
        "timed": code_of(cu.cuEventCreate(4)),
        "not made for it": code_of(cu.cuIpcGetEventHandle(ask(cu.cuEventCreate(2)))),
        "same process": code_of(cu.cuIpcOpenEventHandle(handle)),
        "no handle": code_of(cu.cuIpcOpenEventHandle(cu.CUipcEventHandle())),
        "query": code_of(cu.cuEventQuery(event)),
        "wait": code_of(cu.cuStreamWaitEvent(0, event, 0)),
    }


def init_only() -> Any:
    return code_of(cu.cuInit(0))


def uuid() -> Any:
    ask(cu.cuInit(0))
    return bytes(ask(cu.cuDeviceGetUuid(0)).bytes).hex()


def version_only() -> Any:
    return ask(cu.cuDriverGetVersion())
