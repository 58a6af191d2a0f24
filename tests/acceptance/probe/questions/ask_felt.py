"""Question: the effect of evictions in one thread on application threads."""

from __future__ import annotations

import collections
import ctypes
import functools
import mmap
import os
import sys
import time
import warnings
from collections.abc import Callable

from probe.driver import (
    ATTACH_GLOBAL,
    DISABLE_TIMING,
    INT,
    MIB,
    PTR,
    SIZE,
    TO_HOST,
    U64,
    call,
    handle_of,
    native,
    timed,
)
from probe.figures import Json, now, rounded, us
from probe.gpu import Gpu
from probe.moves import sliced
from probe.registry import Notes, question
from probe.threads import Worker


class Disturber:
    """A thread that repeatedly evicts a buffer and brings it back, and publishes its phase."""

    def __init__(self, gpu: Gpu, address: int, length: int) -> None:
        self.gpu, self.address, self.length = gpu, address, length
        self.stream = gpu.new_stream()
        self.phase = ""
        self.stop = False
        self.usleep = ctypes.CDLL(None).usleep

    def evict(self, slice_length: int) -> None:
        while not self.stop:
            self.phase = "in"
            self.move_all(32 * MIB, 0)
            self.phase = "out"
            self.move_all(slice_length, TO_HOST)
        self.phase = ""

    def evict_elsewhere(self, context: int) -> None:
        """Evicts slices of 8 MiB, all from another context of the process."""
        call("cuCtxSetCurrent", context)
        self.stream = self.gpu.new_stream()
        self.evict(8 * MIB)

    def move_all(self, slice_length: int, to: int) -> None:
        sliced(
            self.gpu,
            self.address,
            self.length,
            slice_length=slice_length,
            to=to,
            stream=self.stream,
        )

    def only_sleep(self) -> None:
        """Control: a thread that acquires and releases the interpreter lock in the same way."""
        self.phase = "control"
        while not self.stop:
            self.usleep(1000)
        self.phase = ""


def victims(gpu: Gpu) -> dict[str, Callable[[], dict[str, int]]]:
    """Returns typical actions of an application thread; each returns nanoseconds by call."""
    stream, query = gpu.new_stream(), native("cuEventQuery")
    launch_args = gpu.prepare("probe_empty", 1, 32).on(stream)
    event, address = handle_of("cuEventCreate", DISABLE_TIMING), U64(0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = PTR, (PTR, SIZE, INT, INT, INT, ctypes.c_long)
    libc.munmap.argtypes = (PTR, SIZE)
    issued = 0

    def launching() -> dict[str, int]:
        nonlocal issued
        issued += 1
        if issued % 64 == 0:
            gpu.sync(stream)
        return {"cuLaunchKernel": timed("cuLaunchKernel", *launch_args)}

    def launch_and_wait() -> dict[str, int]:
        start = now()
        call("cuLaunchKernel", *launch_args)
        gpu.sync(stream)
        return {"launch_and_synchronise": now() - start}

    def allocating() -> dict[str, int]:
        spent = timed("cuMemAlloc_v2", ctypes.byref(address), 4 * MIB)
        return {"cuMemAlloc": spent, "cuMemFree": timed("cuMemFree_v2", address.value)}

    def allocating_managed() -> dict[str, int]:
        gpu.check_managed(4 * MIB)
        spent = timed("cuMemAllocManaged", ctypes.byref(address), 4 * MIB, ATTACH_GLOBAL)
        freed = timed("cuMemFree_v2", address.value)
        return {"cuMemAllocManaged": spent, "cuMemFree_of_managed": freed}

    def mapping() -> dict[str, int]:
        start = now()
        where = libc.mmap(
            None,
            MIB,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            -1,
            0,
        )
        mapped = now()
        libc.munmap(where, MIB)
        return {"mmap": mapped - start, "munmap": now() - mapped}

    def marking() -> dict[str, int]:
        spent = timed("cuEventRecord", event, stream)
        start = now()
        query(event)  # ready or not
        return {"cuEventRecord": spent, "cuEventQuery": now() - start}

    def forking() -> dict[str, int]:
        start = now()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        spent = now() - start
        os.waitpid(pid, 0)
        return {"fork": spent}

    return {
        "launch": launching,
        "launch_and_wait": launch_and_wait,
        "alloc": allocating,
        "managed_alloc": allocating_managed,
        "mmap": mapping,
        "event": marking,
        "fork": forking,
    }


def feel(victim: Callable[[], dict[str, int]], disturber: Disturber, seconds: float) -> Json:
    """Samples a victim for `seconds`, by call and by the disturber's phase before or after."""
    samples: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = disturber.phase
        answer = victim()
        phases = {before, disturber.phase}
        phase = next((p for p in ("out", "in", "control") if p in phases), "alone")
        for name, spent in answer.items():
            samples[name, phase].append(spent)
    result: Json = {}
    for (name, phase), values in samples.items():
        result.setdefault(name, {})[phase] = us(values)
    return result


ALONE_S, EVICTING_S = 0.4, 0.9  # sampling time of a victim
FEEL_S = 0.05 + 2 * ALONE_S + 3 * EVICTING_S  # total for one victim
ELSEWHERE = "launch", "launch_and_wait"  # EVICTING_S more for each
FEEL_SHARE = 0.6  # share of the question's time; the rest is for moving and waiting


@question(75, "the design's greatest risk: what application threads feel while executors evict")
def ask_felt_by_others(gpu: Gpu, out: Notes) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # intentional fork in a threaded program
    sys.setswitchinterval(5e-5)
    length = 512 * MIB
    address = gpu.written(length)
    gpu.move(address, length, TO_HOST)
    every = victims(gpu)
    context = handle_of("cuCtxCreate_v2", 0, int(gpu.device))
    call("cuCtxSetCurrent", gpu.context)
    felt_s = len(every) * FEEL_S + len(ELSEWHERE) * EVICTING_S
    share = min(1.0, FEEL_SHARE * out.left_s() / felt_s)
    out["share_of_full_time"] = rounded(share)
    for name, victim in every.items():
        disturber = Disturber(gpu, address, length)
        feel(victim, disturber, 0.05 * share)
        row: Json = {"alone": feel(victim, disturber, ALONE_S * share)}
        plans: list[tuple[str, Callable[[], None]]] = [("control", disturber.only_sleep)]
        plans += [
            (f"evict_slices_{mib}_mib", functools.partial(disturber.evict, mib * MIB))
            for mib in (8, 32, 256)
        ]
        if name in ELSEWHERE:
            elsewhere = functools.partial(disturber.evict_elsewhere, context)
            plans.append(("evict_8_mib_in_another_context", elsewhere))
        for label, work in plans:
            disturber.stop = False
            worker = Worker(gpu, work)
            try:
                row[label] = feel(
                    victim, disturber, share * (ALONE_S if label == "control" else EVICTING_S)
                )
            finally:
                disturber.stop = True
                worker.finish()
        out[name] = row
    call("cuCtxDestroy_v2", context)
