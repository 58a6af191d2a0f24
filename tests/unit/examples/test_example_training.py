"""The training example without a GPU: its kernels as host functions, against numpy.

The tests show that NVRTC accepts kernels.cu, but not what a GPU computes with it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import host_build
import numpy as np
import pytest
import train_mlp
from mlp import MEAN_DECAY, SQUARE_DECAY, Late, Model, adam_scales
from places import EXAMPLES

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


class HostGpu:
    """Acts as examples/gpu.py, with numpy arrays as memory and host functions as kernels."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._dim = (ctypes.c_uint * 3)(1, 1, 1)
        self.arrays: dict[int, np.ndarray] = {}

    def allocate(self, length_bytes: int) -> int:
        array = np.full(length_bytes // 4, np.nan, dtype=np.float32)
        self.arrays[array.ctypes.data] = array
        return array.ctypes.data

    def launch(self, kernel: str, values: list, items: int):
        assert items > 0
        function = getattr(self._library, f"pump_host_{kernel}")
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        # The closure names `values`, because `pointers` does not keep them alive.
        return lambda _kept=values: function(pointers, self._dim, self._dim)

    def upload(self, address: int, host_address: int, length_bytes: int) -> None:
        ctypes.memmove(address, host_address, length_bytes)

    def download(self, host_address: int, address: int, length_bytes: int) -> None:
        ctypes.memmove(host_address, address, length_bytes)

    def synchronise(self) -> None:
        pass


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return host_build.build(tmp_path_factory.mktemp("host"))


def call(library: Path, kernel: str, *arguments) -> None:
    """Runs one host kernel on numpy arrays, ints and floats."""
    values = [
        ctypes.c_void_p(a.ctypes.data)
        if isinstance(a, np.ndarray)
        else (ctypes.c_int(a) if isinstance(a, int) else ctypes.c_float(a))
        for a in arguments
    ]
    HostGpu(library).launch(kernel, values, 1)()


def trained(library: Path, model: Model, iterations: int, **options):
    gpu = HostGpu(library)
    trainer = train_mlp.Trainer(model, gpu)
    given = {"iterations": iterations, "warm_up": 0, "sync_every": 0, "report_every": 1}
    given |= {"sync_every_step": None, "batch_from": {}, **options}
    result = train_mlp.train(trainer, gpu, argparse.Namespace(**given))
    return trainer, result


def tensors_of(trainer, model: Model) -> dict[str, np.ndarray]:
    arrays = trainer._gpu.arrays
    return {name: arrays[trainer._address[name]].copy() for name in model.tensors()}


class Reference:
    """Computes the same model and optimiser in numpy, in float64, from given weights."""

    def __init__(self, model: Model, start: dict[str, np.ndarray]) -> None:
        self.model = model
        self.weights, self.biases = [], []
        for n, (inputs, outputs, _) in enumerate(model.dense):
            self.weights.append(start[f"weights{n}"].astype(np.float64).reshape(inputs, outputs))
            self.biases.append(start[f"bias{n}"].astype(np.float64))

    def loss_and_gradients(self, images, labels):
        x, inputs_of, outputs_of = images, [], []
        for w, b, (_, _, relu) in zip(self.weights, self.biases, self.model.dense, strict=True):
            inputs_of.append(x)
            y = x @ w + b
            x = np.maximum(y, 0) if relu else y
            outputs_of.append(x)
        shifted = x - x.max(axis=1, keepdims=True)
        probability = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(probability[rows, labels]).mean()
        grad = probability
        grad[rows, labels] -= 1
        grad /= len(labels)
        weight_grads, bias_grads = [], []
        for n in reversed(range(len(self.weights))):
            if self.model.dense[n][2]:
                grad = grad * (outputs_of[n] > 0)
            weight_grads.insert(0, inputs_of[n].T @ grad)
            bias_grads.insert(0, grad.sum(axis=0))
            grad = grad @ self.weights[n].T
        return loss, weight_grads, bias_grads


MODEL = Model(width=40, layers=2, batch=16, rate=1e-3)


@needs_compiler
def test_a_forward_layer_equals_numpy_for_shapes_that_fill_no_tile(library):
    random = np.random.default_rng(1)
    for batch, inputs, outputs in ((8, 8, 1), (16, 64, 10), (8, 24, 300), (24, 16, 256)):
        x = random.standard_normal((batch, inputs), dtype=np.float32)
        w = random.standard_normal((inputs, outputs), dtype=np.float32)
        b = random.standard_normal(outputs, dtype=np.float32)
        y = np.full((batch, outputs), np.nan, np.float32)
        expected = x.astype(np.float64) @ w + b
        call(library, "dense_forward", y, x, w, b, batch, inputs, outputs, 0)
        np.testing.assert_allclose(y, expected, atol=1e-4)
        call(library, "dense_forward", y, x, w, b, batch, inputs, outputs, 1)
        np.testing.assert_allclose(y, np.maximum(expected, 0), atol=1e-4)


@needs_compiler
def test_backward_kernels_equal_numpy_for_shapes_that_fill_no_lane(library):
    random = np.random.default_rng(2)
    for batch, inputs, outputs in ((8, 8, 10), (16, 16, 37), (8, 64, 272)):
        x = random.standard_normal((batch, inputs), dtype=np.float32)
        w = random.standard_normal((inputs, outputs), dtype=np.float32)
        grad = random.standard_normal((batch, outputs), dtype=np.float32)
        w_grad = np.full((inputs, outputs), np.nan, np.float32)
        b_grad = np.full(outputs, np.nan, np.float32)
        x_grad = np.full((batch, inputs), np.nan, np.float32)
        call(library, "dense_backward_weights", w_grad, x, grad, batch, inputs, outputs)
        call(library, "dense_backward_bias", b_grad, grad, batch, outputs)
        call(library, "dense_backward_input", x_grad, grad, w, x, batch, inputs, outputs)
        wide = grad.astype(np.float64)
        np.testing.assert_allclose(w_grad, x.T @ wide, atol=1e-4)
        np.testing.assert_allclose(b_grad, wide.sum(axis=0), atol=1e-5)
        np.testing.assert_allclose(x_grad, (wide @ w.T) * (x > 0), atol=1e-3)


def test_the_reference_gradient_equals_finite_differences():
    random = np.random.default_rng(3)
    start = {
        name: random.standard_normal(size // 4) * 0.2 for name, size in MODEL.tensors().items()
    }
    reference = Reference(MODEL, start)
    images, labels = random.random((16, 64)), random.integers(0, 10, 16)
    _, weight_grads, bias_grads = reference.loss_and_gradients(images, labels)
    for values, grads in ((reference.weights, weight_grads), (reference.biases, bias_grads)):
        for value, grad in zip(values, grads, strict=True):
            at = tuple(random.integers(0, n) for n in value.shape)
            before = value[at]
            value[at] = before + 1e-6
            above, _, _ = reference.loss_and_gradients(images, labels)
            value[at] = before - 1e-6
            below, _, _ = reference.loss_and_gradients(images, labels)
            value[at] = before
            assert grad[at] == pytest.approx((above - below) / 2e-6, abs=1e-7)


@needs_compiler
def test_three_iterations_equal_the_numpy_reference_tensor_by_tensor(library):
    pytest.importorskip("sklearn")
    gpu = HostGpu(library)
    trainer = train_mlp.Trainer(MODEL, gpu)
    start = tensors_of(trainer, MODEL)
    reference = Reference(MODEL, start)
    all_images = start["images"].reshape(-1, 64).astype(np.float64)
    all_labels = start["labels"].view(np.int32)
    values = [v for pair in zip(reference.weights, reference.biases, strict=True) for v in pair]
    means, squares = [v * 0 for v in values], [v * 0 for v in values]
    for iteration in range(3):
        part = slice(iteration * MODEL.batch, (iteration + 1) * MODEL.batch)
        loss, w_grads, b_grads = reference.loss_and_gradients(all_images[part], all_labels[part])
        grads = [g for pair in zip(w_grads, b_grads, strict=True) for g in pair]
        trainer.issue(iteration)
        assert trainer.loss() == pytest.approx(loss, rel=1e-5)
        now = tensors_of(trainer, MODEL)
        t = iteration + 1
        for i, name in enumerate(MODEL.values()):
            shape = values[i].shape
            np.testing.assert_allclose(now[name + "_grad"].reshape(shape), grads[i], atol=2e-6)
            means[i] += (1 - MEAN_DECAY) * (grads[i] - means[i])
            squares[i] += (1 - SQUARE_DECAY) * (grads[i] ** 2 - squares[i])
            np.testing.assert_allclose(now[name + "_mean"].reshape(shape), means[i], atol=2e-6)
            np.testing.assert_allclose(now[name + "_square"].reshape(shape), squares[i], atol=1e-8)
            # The step divides by a root of small squares. With the kernel's own moments, this
            # compares Adam's formula and not the rounding.
            m, s = now[name + "_mean"].astype(float), now[name + "_square"].astype(float)
            step = (m / (1 - MEAN_DECAY**t)) / (np.sqrt(s / (1 - SQUARE_DECAY**t)) + 1e-8)
            values[i] -= MODEL.rate * step.reshape(shape)
            np.testing.assert_allclose(now[name].reshape(shape), values[i], atol=1e-6)
            values[i][...] = now[name].reshape(shape)


@needs_compiler
def test_the_loss_on_digits_falls_below_a_tenth_of_guessing(library):
    pytest.importorskip("sklearn")
    model = Model(width=128, layers=4, batch=64, rate=1.5e-3)
    _, result = trained(library, model, 100)
    assert result["losses"]["1"] > 1.0
    assert result["losses"]["100"] < 0.1 * np.log(10)


@needs_compiler
def test_two_runs_give_the_same_hash_and_another_rate_gives_another(library):
    pytest.importorskip("sklearn")
    model = Model(width=64, layers=1, batch=32, rate=1e-3)
    hashes = [trained(library, model, 5)[0].weights_sha256() for _ in range(2)]
    other, _ = trained(library, Model(64, 1, 32, 2e-3), 5)
    assert hashes[0] == hashes[1] != other.weights_sha256()


@needs_compiler
def test_initial_weights_are_uniform_within_their_bound(library):
    values = np.full(100_000, np.nan, np.float32)
    call(library, "init_uniform", values, values.size, 7, 0.5)
    assert -0.5 <= values.min() < -0.499 and 0.499 < values.max() < 0.5
    assert abs(values.mean()) < 0.005
    assert np.histogram(values, 10, (-0.5, 0.5))[0].min() > 9_500
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02


def test_declared_accesses_match_the_pointers_that_each_kernel_takes():
    for operation in [*MODEL.initialisation(), *MODEL.iteration()]:
        late = (Late.IMAGES, Late.LABELS)
        pointers = {a for a in operation.arguments if isinstance(a, str)}
        pointers |= {a.name.lower() for a in operation.arguments if a in late}
        touched = [*operation.reads, *operation.updates, *operation.overwrites]
        assert set(touched) == pointers and len(touched) == len(set(touched))
        assert pointers <= MODEL.tensors().keys()


def test_every_value_gets_gradient_and_step_in_each_iteration():
    operations = MODEL.iteration()
    stepped = [o.arguments[0] for o in operations if o.kernel == "adam"]
    written = {name for o in operations for name in o.overwrites}
    assert stepped == MODEL.values()
    assert {f"{name}_grad" for name in MODEL.values()} <= written
    assert adam_scales(1) == pytest.approx((10.0, 1000.0))


def test_the_footprint_is_about_four_tensors_for_each_layer():
    model = Model(width=2048, layers=8, batch=64, rate=1e-4)
    footprint = sum(model.tensors().values())
    assert 1.0 < footprint / (4 * 8 * 2048 * 2048 * 4) < 1.06


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--width", "100"], "width is 100"),
        (["--batch", "2000"], "batch is 2000"),
        (["--batch", "4"], "batch is 4"),
        (["--layers", "-1"], "layers is -1"),
        (["--rate", "0"], "rate is 0"),
        (["--iterations", "2"], "--warm-up 2 must be below"),
        (["--sync-every", "-1"], "--sync-every must not be negative"),
    ],
)
def test_a_bad_option_is_named_and_ends_with_status_2(options, named, capsys):
    with pytest.raises(SystemExit) as stop:
        train_mlp.parse(options)
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


def test_footprint_prints_the_bytes_and_needs_no_gpu():
    command = [sys.executable, EXAMPLES / "train_mlp.py", "--footprint", "--width", "64"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == sum(Model(64, 8, 64, 1e-3).tensors().values())


@needs_compiler
def test_every_kernel_has_a_host_entry_point_and_a_second_build_reuses_the_first(library):
    source = (EXAMPLES / "kernels.cu").read_text()
    names = {operation.kernel for operation in [*MODEL.initialisation(), *MODEL.iteration()]}
    names |= {"sweep", "gather", "embedding_bag"}
    loaded = ctypes.CDLL(str(library))
    assert len(names) == 11
    assert all(hasattr(loaded, f"pump_host_{name}") for name in names)
    assert host_build.entry_points(source).count("void pump_host_") == 2 * len(names)
    before = library.stat().st_mtime_ns
    assert host_build.build(library.parent) == library
    assert library.stat().st_mtime_ns == before


def test_a_missing_compiler_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(host_build.BuildError, match=r"no-such-compiler.*install one"):
        host_build.build(tmp_path)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_nvrtc_compiles_the_kernels_without_local_memory(capability):
    pytest.importorskip("cuda.bindings.nvrtc")
    import gpu

    try:
        cubin, compiled = gpu.compile_kernels(EXAMPLES / "kernels.cu", capability)
        ptx = compiled.decode()
    except RuntimeError as error:
        if "nvrtc" in str(error).lower() and "librar" in str(error).lower():
            pytest.skip("NVRTC is not installed")
        raise
    assert ptx.count(".visible .entry") == 11
    assert ".local" not in ptx
    assert cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("accepted", [b"cubin", b"ptx"])
def test_a_driver_that_takes_one_form_of_the_kernels_gets_it(accepted, monkeypatch):
    pytest.importorskip("cuda.bindings.driver")
    import gpu

    status = gpu.driver.CUresult

    def load(image):
        refused = status.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        return (status.CUDA_SUCCESS, image) if image == accepted else (refused, None)

    monkeypatch.setattr(gpu.driver, "cuModuleLoadData", load)
    assert gpu.load_module(b"cubin", b"ptx") == accepted
    with pytest.raises(gpu.GpuError, match="UNSUPPORTED_PTX_VERSION"):
        gpu.load_module(b"neither", b"nor")
