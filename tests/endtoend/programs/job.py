"""A small CUDA program for the end-to-end tests, with a result that a test can compute.

Uses the driver API through plain cuda-python. Fills buffers and runs a random sequence of `mix`
kernels over several streams: a = a * K + b + seed, on two of the buffers. Prints the sha256 of all
buffers. `expected()` computes the same hash with numpy.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

HOLD_MOST_S = 300.0
MULTIPLIER = np.uint64(6364136223846793005)
CACHED_WORDS = 1 << 14
"""Words of each buffer per pass; they fit in the CPU's cache."""

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry mix(.param .u64 mix_param_0, .param .u64 mix_param_1,
                    .param .u64 mix_param_2, .param .u64 mix_param_3)
{
  ret;
}
"""


def plan(buffers: int, steps: int, seed: int) -> list[tuple[int, int, int]]:
    """Returns (target, source, seed) of every step."""
    random_ = random.Random(seed)
    return [
        (random_.randrange(buffers), random_.randrange(buffers), random_.randrange(1 << 32))
        for _ in range(steps)
    ]


def grid_of(number: int) -> int:
    """Returns a grid size that differs between steps, so that the learner can distinguish them."""
    return 1 + number % 255


def start_values(index: int, words: int) -> np.ndarray:
    return np.arange(words, dtype=np.uint64) + np.uint64(index * 1_000_003)


@functools.cache
def expected(buffers: int, mib: int, steps: int, seed: int, replays: int = 1) -> str:
    """Returns the sha256 that the job must print."""
    return left_by(buffers, mib, plan(buffers, steps, seed) * replays)


def left_by(buffers: int, mib: int, steps: list[tuple[int, int, int]]) -> str:
    """Returns the sha256 of the buffers after these steps."""
    words = mib * (1 << 20) // 8
    values = np.stack([start_values(index, words) for index in range(buffers)])
    for part in np.split(values, words // CACHED_WORDS, axis=1):
        for target, source, number in steps:
            part[target] = part[target] * MULTIPLIER + part[source] + np.uint64(number)
    return hashlib.sha256(values).hexdigest()


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffers", type=int, default=24)
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="how often to do the steps")
    parser.add_argument("--replays", type=int, default=0, help="capture the steps, then replay")
    parser.add_argument("--sync-every", type=int, default=0)
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="after each step")
    parser.add_argument("--hold", default="", help="stay half-way while this file is there")
    parser.add_argument("--close-descriptors", action="store_true")
    parser.add_argument("--block-signals", action="store_true")
    parser.add_argument("--fork-every", type=int, default=0)
    parser.add_argument("--wait-any", action="store_true", help="expect no child but our own")
    parser.add_argument("--thread", action="store_true", help="run in one that outlives the first")
    parser.add_argument("--churn", action="store_true", help="free and allocate while running")
    parser.add_argument("--load-every", type=int, default=0, help="steps between loads of code")
    parser.add_argument("--managed", action="store_true")
    parser.add_argument("--exit-signal", type=int, default=0)
    return parser


def parse() -> argparse.Namespace:
    return parser().parse_args()


def check(result: tuple[Any, ...]) -> Any:
    code, *rest = result
    if int(code) != 0:
        print(f"error {code.name}", flush=True)
        sys.exit(9)
    return rest[0] if rest else None


class Program:
    """The device side: context, kernel, stream, buffers."""

    def __init__(self, options: argparse.Namespace, ordinal: int = 0) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.options = options
        self.size = options.mib << 20
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(ordinal))
        self.context = check(driver.cuDevicePrimaryCtxRetain(device))
        self.enter()
        self.load()
        self.launches = 0
        non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = check(driver.cuStreamCreate(non_blocking))
        self.pointers: list[Any] = []
        for index in range(options.buffers):
            self.pointers.append(self.allocate())
            values = start_values(index, self.size // 8)
            check(driver.cuMemcpyHtoD(self.pointers[-1], values, self.size))

    def load(self) -> None:
        """Loads the code once more: the next launch is the first one of its function."""
        module = check(self.driver.cuModuleLoadData(PTX.encode() + b"\0"))
        self.function = check(self.driver.cuModuleGetFunction(module, b"mix"))

    def enter(self) -> None:
        check(self.driver.cuCtxSetCurrent(self.context))

    def allocate(self) -> Any:
        if self.options.managed:
            attach = self.driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
            return check(self.driver.cuMemAllocManaged(self.size, attach.value))
        return check(self.driver.cuMemAlloc(self.size))

    def mix(self, target: int, source: int, number: int) -> None:
        words = [self.pointers[target], self.pointers[source], self.size // 8, number]
        values = np.array([int(word) for word in words], np.uint64)
        addresses = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        self.launches += 1
        if self.options.load_every and self.launches % self.options.load_every == 0:
            self.load()
        launch = (
            self.function,
            grid_of(number),
            1,
            1,
            256,
            1,
            1,
            0,
            self.stream,
            addresses.ctypes.data,
            0,
        )
        check(self.driver.cuLaunchKernel(*launch))

    def synchronise(self) -> None:
        check(self.driver.cuStreamSynchronize(self.stream))

    def read(self, index: int) -> np.ndarray:
        values = np.empty(self.size // 8, np.uint64)
        check(self.driver.cuMemcpyDtoH(values, self.pointers[index], self.size))
        return values

    def replace(self, index: int) -> None:
        """Frees a buffer and allocates it again with the same contents."""
        self.synchronise()
        values = self.read(index)
        check(self.driver.cuMemFree(self.pointers[index]))
        self.pointers[index] = self.allocate()
        check(self.driver.cuMemcpyHtoD(self.pointers[index], values, self.size))

    def digest(self) -> str:
        """Hashes and frees all buffers."""
        self.synchronise()
        digest = hashlib.sha256()
        for index in range(len(self.pointers)):
            digest.update(self.read(index).tobytes())
            check(self.driver.cuMemFree(self.pointers[index]))
        return digest.hexdigest()


def fork_a_child() -> None:
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def hold(program: Program, options: argparse.Namespace) -> None:
    """Reads the buffers, which changes no result, until a test releases the job."""
    until = time.monotonic() + HOLD_MOST_S
    index = 0
    while Path(options.hold).exists() and time.monotonic() < until:
        program.read(index % options.buffers)
        index += 1
        time.sleep(max(options.sleep_ms, 10.0) / 1000)


def run_steps(program: Program, options: argparse.Namespace) -> None:
    steps = plan(options.buffers, options.steps, options.seed) * options.rounds
    for step, (target, source, number) in enumerate(steps):
        if options.hold and step == options.steps // 2:
            hold(program, options)
        program.mix(target, source, number)
        if options.sync_every and not options.replays and step % options.sync_every == 0:
            program.synchronise()
        if options.sleep_ms:
            time.sleep(options.sleep_ms / 1000)
        if options.churn and step % 10 == 5:
            program.replace(target)
        if options.fork_every and step % options.fork_every == 0:
            fork_a_child()


def replay_steps(program: Program, options: argparse.Namespace) -> None:
    """Captures the steps as a graph and launches it `replays` times."""
    driver, stream = program.driver, program.stream
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode))
    run_steps(program, options)
    graph = check(driver.cuStreamEndCapture(stream))
    executable = check(driver.cuGraphInstantiate(graph, 0))
    check(driver.cuGraphDestroy(graph))
    for _ in range(options.replays):
        check(driver.cuGraphLaunch(executable, stream))
        if options.sync_every:
            program.synchronise()
    program.synchronise()
    check(driver.cuGraphExecDestroy(executable))


def outlive_first_thread(options: argparse.Namespace) -> None:
    """Runs in another thread, which exits the process; the first thread ends with pthread_exit."""
    libc = ctypes.CDLL(None)
    state = Path(f"/proc/{os.getpid()}/stat")

    def run_alone() -> None:
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.001)
        run(options)
        libc.exit(0)

    threading.Thread(target=run_alone).start()
    libc.pthread_exit(None)


def run(options: argparse.Namespace) -> None:
    if options.block_signals:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    program = Program(options)
    files: list[int] = []
    if options.close_descriptors:
        os.closerange(3, 4096)
        # The program gets the descriptors that pump used, such as its connection to pumpd.
        files = [os.open("/dev/null", os.O_WRONLY) for _ in range(20)]
    print("running", flush=True)
    (replay_steps if options.replays else run_steps)(program, options)
    digest = program.digest()
    for file in files:
        os.write(file, b"still mine")
    if options.wait_any:
        try:
            print("stranger", os.waitpid(-1, 0), flush=True)
        except ChildProcessError:
            print("no strangers", flush=True)
    print(digest, flush=True)
    if options.exit_signal:
        os.kill(os.getpid(), options.exit_signal)


def main() -> None:
    options = parse()
    (outlive_first_thread if options.thread else run)(options)


if __name__ == "__main__":
    main()
