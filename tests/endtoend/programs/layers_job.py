"""Reads layers of weights in order for each token, and sometimes writes one of them.

Plain cuda-python, driver API. Prints the sha256 of all memory, which `expected()` computes with
numpy, and a line of JSON with the seconds of each token.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MIB = 1 << 20
FACTOR = np.uint64(6364136223846793005)
HIDDEN_WORDS = 2 * MIB // 8
PROFILED_FROM = 3
"""Tokens before this one are not part of the virtual driver's profile."""
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry layer(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) { ret; }
.visible .entry update(.param .u64 p0, .param .u64 p1, .param .u64 p2) { ret; }
"""


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--mib", type=int, default=4, help="of a layer")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--writes", type=float, default=0.0, help="share of layers written")
    parser.add_argument("--hold", default="", help="begin once this file is gone")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="after each token")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def plan(options: argparse.Namespace) -> list[list[tuple[int, int]]]:
    """Returns the layers of each token in order, each with the seed of its write, or 0 for none."""
    dice = random.Random(options.seed)

    def seed() -> int:
        return dice.randrange(1, 1 << 32) if dice.random() < options.writes else 0

    return [[(layer, seed()) for layer in range(options.layers)] for _ in range(options.tokens)]


def start_values(options: argparse.Namespace, layer: int) -> Any:
    words = np.arange(options.mib * MIB // 8, dtype=np.uint64)
    return words * FACTOR + np.uint64(layer)


def expected(options: argparse.Namespace) -> str:
    """Returns the sha256 that the program must print."""
    weights = [start_values(options, layer) for layer in range(options.layers)]
    hidden = np.zeros(HIDDEN_WORDS, np.uint64)
    for token in plan(options):
        for layer, seed in token:
            for part in weights[layer].reshape(-1, HIDDEN_WORDS):
                hidden = hidden * FACTOR + part
            if seed:
                weights[layer] = weights[layer] * FACTOR + np.uint64(seed)
    return hashlib.sha256(np.concatenate([hidden, *weights])).hexdigest()


def check(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise SystemExit(f"error {answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]


class Program:
    def __init__(self, options: argparse.Namespace) -> None:
        from cuda.bindings import driver

        self.driver, self.options = driver, options
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
        module = check(driver.cuModuleLoadData(PTX.encode() + b"\0"))
        self.layer, self.update = (
            check(driver.cuModuleGetFunction(module, name)) for name in (b"layer", b"update")
        )
        self.stream = check(driver.cuStreamCreate(1))
        self.bytes = options.mib * MIB
        self.hidden = int(check(driver.cuMemAlloc(HIDDEN_WORDS * 8)))
        check(driver.cuMemsetD8(self.hidden, 0, HIDDEN_WORDS * 8))
        self.weights = [int(check(driver.cuMemAlloc(self.bytes))) for _ in range(options.layers)]

    def fill(self) -> None:
        for layer, address in enumerate(self.weights):
            values = start_values(self.options, layer)
            check(self.driver.cuMemcpyHtoD(address, values.ctypes.data, self.bytes))

    def launch(self, function: Any, *words: int) -> None:
        values = [ctypes.c_uint64(word) for word in words]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        check(
            self.driver.cuLaunchKernel(
                function, 1, 1, 1, 32, 1, 1, 0, self.stream, ctypes.addressof(pointers), 0
            )
        )

    def token(self, layers: list[tuple[int, int]]) -> None:
        words = self.bytes // 8
        for layer, seed in layers:
            self.launch(self.layer, self.hidden, self.weights[layer], words, HIDDEN_WORDS)
            if seed:
                self.launch(self.update, self.weights[layer], words, seed)
        check(self.driver.cuStreamSynchronize(self.stream))

    def digest(self) -> str:
        digest = hashlib.sha256()
        pairs = [(self.hidden, HIDDEN_WORDS * 8), *((one, self.bytes) for one in self.weights)]
        for address, length in pairs:
            values = np.empty(length // 8, np.uint64)
            check(self.driver.cuMemcpyDtoH(values.ctypes.data, address, length))
            digest.update(values)
        return digest.hexdigest()


def main() -> int:
    options = parse()
    program = Program(options)
    program.fill()
    print("running", flush=True)
    while options.hold and Path(options.hold).exists():
        time.sleep(0.01)
    seconds = []
    for number, layers in enumerate(plan(options)):
        if number == PROFILED_FROM:
            check(program.driver.cuProfilerStart())
        begin = time.perf_counter()
        program.token(layers)
        seconds.append(round(time.perf_counter() - begin, 5))
        time.sleep(options.sleep_ms / 1e3)
    check(program.driver.cuProfilerStop())
    print(program.digest())
    print(json.dumps(seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
