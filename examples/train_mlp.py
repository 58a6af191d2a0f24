"""Trains a deep perceptron on scikit-learn's digits, in plain cuda-python.

An ordinary CUDA program: driver API, NVRTC, one allocation for each tensor, Adam at the end of
each iteration. It does not use pump. It needs about 4 * layers * width * width * 4 bytes. The
same options give bit-identical results.

    python examples/train_mlp.py --width 1024 --layers 8
    pump-run python examples/train_mlp.py --width 16384 --layers 100
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import workload
from mlp import SAMPLES, Argument, Late, Model, Operation, adam_scales

KERNELS = Path(__file__).resolve().parent / "kernels.cu"


class Trainer:
    """A model in GPU memory and its launches."""

    def __init__(self, model: Model, gpu: Any, batches: Iterable[int] = ()) -> None:
        """Takes `batches`: other batch sizes of iterations, none larger than the model's."""
        self._model = model
        self._batch = model.batch
        self._gpu = gpu
        self._bytes = model.tensors()
        self._address = {name: gpu.allocate(size) for name, size in self._bytes.items()}
        # Shared by all launches: changing one value here changes all of them.
        self._late: dict[Late, Any] = {
            Late.IMAGES: ctypes.c_void_p(self._address["images"]),
            Late.LABELS: ctypes.c_void_p(self._address["labels"]),
            Late.MEAN_SCALE: ctypes.c_float(),
            Late.SQUARE_SCALE: ctypes.c_float(),
        }
        self._upload_digits()
        for operation in model.initialisation():
            self._bind(operation)()
        self._launches = {
            batch: [self._bind(one) for one in replace(model, batch=batch).iteration()]
            for batch in {model.batch, *batches}
        }
        self._loss = (ctypes.c_float * model.batch)()

    def _bind(self, operation: Operation) -> Any:
        values = [self._value(argument) for argument in operation.arguments]
        return self._gpu.launch(operation.kernel, values, operation.items)

    def _value(self, argument: Argument) -> Any:
        if isinstance(argument, Late):
            return self._late[argument]
        if isinstance(argument, str):
            return ctypes.c_void_p(self._address[argument])
        if isinstance(argument, int):
            return ctypes.c_int(argument)
        return ctypes.c_float(argument)

    def _upload_digits(self) -> None:
        import numpy as np
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(SAMPLES)
        for name, values in (
            ("images", (images[order] / 16.0).astype(np.float32)),
            ("labels", labels[order].astype(np.int32)),
        ):
            self._gpu.upload(self._address[name], values.ctypes.data, values.nbytes)

    @property
    def launches_per_iteration(self) -> int:
        return len(self._launches[self._model.batch])

    def issue(self, iteration: int, batch: int | None = None, *, wait_each: bool = False) -> None:
        """Issues all launches of one iteration, counted from 0, on `batch` images (default: the
        model's batch). With `wait_each`, waits for the GPU after each launch."""
        batch = self._batch = batch or self._model.batch
        first = iteration % (SAMPLES // batch) * batch
        bytes_per_image = self._bytes["images"] // SAMPLES
        self._late[Late.IMAGES].value = self._address["images"] + first * bytes_per_image
        self._late[Late.LABELS].value = self._address["labels"] + first * 4
        scales = adam_scales(iteration + 1)
        self._late[Late.MEAN_SCALE].value, self._late[Late.SQUARE_SCALE].value = scales
        for launch in self._launches[batch]:
            launch()
            if wait_each:
                self._gpu.synchronise()

    def loss(self) -> float:
        """Waits for the newest iteration and returns its mean loss."""
        size = self._bytes["loss"]
        self._gpu.download(ctypes.addressof(self._loss), self._address["loss"], size)
        return sum(self._loss[: self._batch]) / self._batch

    def weights_sha256(self) -> str:
        """Returns the hash of all weights and biases, in the optimizer's order."""
        digest = hashlib.sha256()
        largest = max(self._bytes[name] for name in self._model.values())
        host = (ctypes.c_char * largest)()
        for name in self._model.values():
            size = self._bytes[name]
            self._gpu.download(ctypes.addressof(host), self._address[name], size)
            digest.update(memoryview(host)[:size])
        return digest.hexdigest()


def train(trainer: Trainer, gpu: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Runs all iterations; returns the loop's part of the --json result."""
    losses: dict[str, float] = {}
    ends: list[float] = []
    batch: int | None = None
    began = started = time.perf_counter()
    for iteration in range(options.iterations):
        if iteration == options.warm_up:
            gpu.synchronise()
            started = time.perf_counter()
        batch = options.batch_from.get(iteration, batch)
        trainer.issue(iteration, batch, wait_each=options.sync_every_step == "launch")
        done = iteration + 1
        if options.sync_every_step or (options.sync_every and done % options.sync_every == 0):
            gpu.synchronise()
            ends.append(time.perf_counter() - began)
        if options.report_every and done % options.report_every == 0:
            losses[str(done)] = trainer.loss()
            print(f"iteration {done}: loss {losses[str(done)]:.6f}", file=sys.stderr, flush=True)
    gpu.synchronise()
    seconds = time.perf_counter() - started
    losses[str(options.iterations)] = trainer.loss()
    return {
        "seconds": seconds,
        "started_s": started,
        "iterations": options.iterations,
        "timed_iterations": options.iterations - options.warm_up,
        "waits_s": ends,
        "launches": trainer.launches_per_iteration * options.iterations,
        "losses": losses,
    }


def change(text: str) -> tuple[int, int]:
    """Returns the iteration and batch of `--batch-from`."""
    iteration, _, batch = text.partition(":")
    return int(iteration), int(batch)


def parse(arguments: list[str] | None = None) -> tuple[argparse.Namespace, Model]:
    """Returns the options and their model; exits with status 2 on a bad option."""
    parser = argparse.ArgumentParser(description="Train a deep perceptron on digits.")
    parser.add_argument("--width", type=int, default=1024, help="width of the hidden layers")
    parser.add_argument("--layers", type=int, default=8, help="number of hidden layers")
    parser.add_argument("--batch", type=int, default=64, help="images of an iteration")
    parser.add_argument(
        "--batch-from",
        type=change,
        action="append",
        default=[],
        metavar="ITERATION:BATCH",
        help="use another batch, at most --batch, from ITERATION on; may be repeated",
    )
    parser.add_argument("--iterations", type=int, default=50, help="number of iterations")
    parser.add_argument("--warm-up", type=int, default=2, help="iterations before the timed ones")
    parser.add_argument("--rate", type=float, help="Adam's learning rate (default: 0.2 / width)")
    parser.add_argument(
        "--report-every",
        type=int,
        default=10,
        metavar="N",
        help="print the loss every N iterations; 0: only at the end",
    )
    parser.add_argument(
        "--sync-every",
        type=int,
        default=0,
        metavar="N",
        help="wait for the GPU every N iterations; 0: only for the loss",
    )
    workload.add_sync_every_step(parser)
    parser.add_argument(
        "--managed", action="store_true", help="allocate Unified Memory (cuMemAllocManaged)"
    )
    parser.add_argument("--no-hash", action="store_true", help="do not hash the weights")
    parser.add_argument("--json", metavar="FILE", help="write the result to FILE; -: stdout")
    parser.add_argument("--footprint", action="store_true",
                        help="print the bytes that it allocates, and exit")  # fmt: skip
    options = parser.parse_args(arguments)
    options.batch_from = dict(options.batch_from)
    if not all(0 < batch <= options.batch for batch in options.batch_from.values()):
        parser.error(f"--batch-from must have batches from 1 to --batch, which is {options.batch}")
    if not 0 <= options.warm_up < options.iterations:
        parser.error(f"--warm-up {options.warm_up} must be below --iterations and at least 0")
    if options.report_every < 0 or options.sync_every < 0:
        parser.error("--report-every and --sync-every must not be negative")
    try:
        rate = 0.2 / options.width if options.rate is None and options.width else options.rate
        model = Model(options.width, options.layers, options.batch, rate)
        for batch in options.batch_from.values():
            replace(model, batch=batch)
    except ValueError as error:
        parser.error(str(error))
    return options, model


def main() -> int:
    options, model = parse()
    footprint_bytes = sum(model.tensors().values())
    if options.footprint:
        print(footprint_bytes)
        return 0
    try:
        from gpu import Gpu, GpuError

        gpu = Gpu(KERNELS, options.managed)
        trainer = Trainer(model, gpu, options.batch_from.values())
        result = train(trainer, gpu, options)
        result["weights_sha256"] = None if options.no_hash else trainer.weights_sha256()
        result |= {"gpu": gpu.name, "footprint_bytes": footprint_bytes, "managed": options.managed}
        gpu.close()
    except ModuleNotFoundError as error:
        packages = "cuda-python nvidia-cuda-nvrtc scikit-learn"
        print(f"train_mlp: {error}; run: pip install {packages}", file=sys.stderr)
        return 1
    except GpuError as error:
        print(f"train_mlp: {error}", file=sys.stderr)
        return 1
    text = json.dumps(result, indent=1)
    if options.json and options.json != "-":
        Path(options.json).write_text(text + "\n")
    elif options.json:
        print(text)
    else:
        final = result["losses"][str(options.iterations)]
        print(f"{options.iterations} iterations, final loss {final:.6f}, {result['seconds']:.3f} s"
              f" for {result['timed_iterations']} timed ones")  # fmt: skip
        print(f"weights sha256 {result['weights_sha256']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
