"""The sweep and the gather: options, results, and the rows that the gather reports to read."""

from __future__ import annotations

import ctypes
import json
import random
import shutil
import subprocess
import sys

import cyclic_sweep
import embedding_bags
import host_build
import irregular_gather
import numpy as np
import pytest
import train_mlp
import workload
from places import EXAMPLES

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
DIM = (ctypes.c_uint * 3)(1, 1, 1)


class Counting:
    """Records what a loop does with a GPU."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def synchronise(self) -> None:
        self.calls.append("wait")

    def launch(self) -> None:
        self.calls.append("launch")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    return ctypes.CDLL(str(host_build.build(tmp_path_factory.mktemp("host"))))


def packed(*arguments) -> ctypes.Array:
    """Returns pointers to the values of numpy arrays (addresses) and ints, which it keeps alive."""
    values = [
        ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int(a)
        for a in arguments
    ]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    pointers.kept = values
    return pointers


@needs_compiler
def test_the_sweep_multiplies_and_adds_as_often_as_it_is_told(library):
    buffer = np.linspace(-1, 1, 1001, dtype=np.float32)
    expected = buffer.astype(np.float64)
    for _ in range(5):
        expected = expected * 0.999 + 0.001
    library.pump_host_sweep(packed(buffer, buffer.size, 5), DIM, DIM)
    np.testing.assert_allclose(buffer, expected, atol=1e-6)


@needs_compiler
def test_the_gather_adds_the_rows_of_the_index(library):
    source = np.random.default_rng(1)
    table = source.standard_normal((50, 12), dtype=np.float32)
    index = source.integers(0, 50, 20).astype(np.int32)
    sums = np.ones((20, 12), np.float32)
    library.pump_host_gather(packed(sums, table, index, 20, 12, 0), DIM, DIM)
    np.testing.assert_allclose(sums, 1 + table[index], atol=1e-6)


@needs_compiler
def test_the_gather_tells_the_rows_it_reads_and_its_other_arguments(library):
    table = np.zeros((50, 12), np.float32)
    index = np.array([7, 49, 7], np.int32)
    sums = np.zeros((3, 12), np.float32)
    out = (ctypes.c_uint64 * 20)()
    call = packed(sums, table, index, 3, 12, 0)
    assert library.pump_touch_gather(call, DIM, DIM, out, 10) == 5
    parts = [(out[2 * i], out[2 * i + 1]) for i in range(5)]
    base = table.ctypes.data
    assert parts == [
        (sums.ctypes.data, 144),
        (index.ctypes.data, 12),
        *((base + row * 48, 48) for row in (7, 49, 7)),
    ]


@needs_compiler
def test_the_gather_writes_no_part_more_than_there_is_room_for(library):
    arrays = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(4, np.int32)
    out = (ctypes.c_uint64 * 12)()
    assert library.pump_touch_gather(packed(*arrays, 4, 1, 0), DIM, DIM, out, 5) == 6
    assert not any(out)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (None, ["wait", *["launch"] * 4, "wait"]),
        ("iteration", ["wait", *["launch", "launch", "wait"] * 2, "wait"]),
        ("launch", ["wait", *[*["launch", "wait"] * 2, "wait"] * 2, "wait"]),
    ],
)
def test_a_workload_waits_as_often_as_sync_every_step_says(step, expected):
    options = cyclic_sweep.parse(["--iterations=2", "--warm-up=0"])
    options.sync_every_step = step
    gpu = Counting()
    found = workload.run(gpu, options, lambda _: [gpu.launch, gpu.launch])
    assert gpu.calls == expected
    assert found["launches"] == 4


@pytest.mark.parametrize("module", [cyclic_sweep, irregular_gather, embedding_bags])
def test_sync_every_step_alone_means_each_iteration(module):
    assert module.parse([]).sync_every_step is None
    assert module.parse(["--sync-every-step"]).sync_every_step == "iteration"
    assert module.parse(["--sync-every-step", "launch"]).sync_every_step == "launch"
    assert train_mlp.parse(["--sync-every-step"])[0].sync_every_step == "iteration"


def test_compute_per_byte_becomes_rounds_of_two_flops_on_four_bytes():
    assert [workload.rounds(value) for value in (0, 0.5, 1, 16)] == [0, 1, 2, 32]


def test_each_launch_of_the_gather_gets_its_own_rows_and_all_lie_in_the_table():
    options = irregular_gather.parse(["--table-mib=4", "--rows=8", "--launches=3"])
    index = irregular_gather.indices(options)
    assert len(index) == 8 * 3 * options.iterations
    assert 0 <= min(index) <= max(index) < 1024
    assert len({tuple(index[at : at + 8]) for at in range(0, len(index), 8)}) == 36
    assert index == irregular_gather.indices(options)


def test_ids_of_bags_lie_in_their_table_and_are_the_same_in_every_run():
    options = embedding_bags.parse(["--tables=2", "--table-mib=1", "--bags=32", "--zipf=1"])
    found = embedding_bags.ids(options)
    assert len(found) == 2 * options.iterations * 32 * 20
    assert 0 <= min(found) <= max(found) < 4096
    assert found == embedding_bags.ids(options)


@pytest.mark.parametrize("exponent", [0.75, 1, 1.2])
def test_ids_by_heat_have_zipfs_frequencies_and_hashed_ones_are_the_same_rows_elsewhere(exponent):
    words = ["--table-mib=1", f"--zipf={exponent}", "--bags=1000", "--ids=60"]
    words += ["--iterations=3", "--tables=1"]
    counts = np.bincount(embedding_bags.ids(embedding_bags.parse([*words, "--by-heat"])))
    frequency = np.arange(1, 4097) ** -float(exponent)
    hottest = counts[:64].sum() / counts.sum()
    assert hottest == pytest.approx(frequency[:64].sum() / frequency.sum(), abs=0.06)
    hashed = np.bincount(embedding_bags.ids(embedding_bags.parse(words)))
    assert sorted(hashed[hashed > 0]) == sorted(counts[counts > 0])
    assert hashed[:64].sum() < 0.5 * counts[:64].sum()


def test_uniform_ids_reach_the_whole_table():
    options = embedding_bags.parse(["--table-mib=4", "--tables=1", "--bags=1000"])
    counts = np.bincount(embedding_bags.ids(options), minlength=16384)
    assert counts.std() == pytest.approx(counts.mean() ** 0.5, rel=0.1), "a Poisson distribution"


def test_indices_reach_the_whole_table():
    options = irregular_gather.parse(["--table-mib=64"])
    blocks = {row * 4096 // (2 << 20) for row in irregular_gather.indices(options)}
    assert blocks == set(range(32))


@pytest.mark.parametrize(
    ("module", "options", "named"),
    [
        (cyclic_sweep, ["--buffers", "0"], "--buffers is 0"),
        (cyclic_sweep, ["--passes", "0"], "--passes is 0"),
        (cyclic_sweep, ["--buffer-mib", "5000"], "--buffer-mib is 5000"),
        (cyclic_sweep, ["--iterations", "2"], "--warm-up 2 must be below"),
        (cyclic_sweep, ["--compute-per-byte", "-1"], "--compute-per-byte is -1"),
        (cyclic_sweep, ["--sync-every-step", "often"], "often"),
        (irregular_gather, ["--table-mib", "9000"], "--table-mib is 9000"),
        (irregular_gather, ["--row-bytes", "1000"], "--row-bytes is 1000"),
        (irregular_gather, ["--rows", "0"], "--rows is 0"),
        (irregular_gather, ["--launches", "0"], "--launches is 0"),
        (embedding_bags, ["--tables", "0"], "--tables is 0"),
        (embedding_bags, ["--table-mib", "9000"], "--table-mib is 9000"),
        (embedding_bags, ["--row-bytes", "1000"], "--row-bytes is 1000"),
        (embedding_bags, ["--bags", "6000"], "--bags times --ids"),
        (embedding_bags, ["--zipf", "-1"], "--zipf is -1"),
        (embedding_bags, ["--read-in-place"], "--read-in-place needs --managed"),
    ],
)
def test_a_bad_option_is_named_and_ends_with_status_2(module, options, named, capsys):
    with pytest.raises(SystemExit) as stop:
        module.parse(options)
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("cyclic_sweep.py", ["--buffers=3", "--buffer-mib=8"], 24 << 20),
        (
            "irregular_gather.py",
            ["--table-mib=8", "--rows=4", "--launches=5", "--iterations=6"],
            (8 << 20) + 4 * 4096 + 4 * 4 * 30,
        ),
        (
            "embedding_bags.py",
            ["--tables=2", "--table-mib=8", "--bags=4", "--ids=3", "--iterations=6"],
            2 * (8 << 20) + 2 * 4 * 256 + 2 * 6 * 4 * 3 * 4,
        ),
    ],
)
def test_footprint_prints_the_bytes_and_needs_no_gpu(script, options, expected):
    command = [sys.executable, EXAMPLES / script, "--footprint", *options]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == expected


def test_results_are_written_where_they_were_asked_for(tmp_path, capsys):
    result = {"seconds": 1.0, "timed_iterations": 3, "result_sha256": "ab"}
    workload.finish(result, str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == result
    workload.finish(result, "-")
    assert json.loads(capsys.readouterr().out) == result
    workload.finish(result, None)
    assert "result sha256 ab" in capsys.readouterr().out


def test_random_choices_are_those_of_every_python_version():
    # A run must give the same bits on every machine.
    assert random.Random(1).choices(range(1000), k=4) == [134, 847, 763, 255]
