"""Touches of PyTorch's kernels by lab/runtime/kernels/torch_kernels.c, for tables made by hand."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import pytest
from places import ROOT

SOURCE = ROOT / "lab" / "runtime" / "kernels" / "torch_kernels.c"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

CHUNK = 65536
STALE = 0x7F00DEADB000
READ = 1 << 63
NAMESPACE = "_ZN2at6native12_GLOBAL__N__25multi_tensor_apply_kernelINS1_"
PLAIN = NAMESPACE + "18TensorListMetadataILi2EEENS1_14UnaryOpFunctorIfLi2ELi1ELi1EEEJEEEvT_T0_"
PLAIN_HALF = PLAIN.replace("FunctorIf", "FunctorIN3c104HalfE")
SCALARS = NAMESPACE + "28TensorListScalarListMetadataIfLi1EEENS1_7FunctorIfLi1EEEJEEEvT_T0_"
COPY = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct"
SELECT = "_ZN2at6native12_GLOBAL__N__21indexSelectSmallIndexIN3c108BFloat16EljLi2ELi2ELin2EEEv"
REDUCE = "_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpI"
SUM = REDUCE + "fZNS0_11sum_functorIfffEclE"
SUM_OF_HALF = REDUCE + "N3c104HalfEZNS0_11sum_functorIS5_fS5_EclE"
FUSED = (
    NAMESPACE + "32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4"
    "ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS7_S7_EEEvT_T0_DpT1_"
)
NORM = (
    "_ZN2at6native12_GLOBAL__N__14lpnorm_cleanupIfLNS0_8NormTypeE1EfLb1EfEEv"
    "PKT3_NS1_19TensorListAddressesEi"
)
CAT = "_ZN2at6native12_GLOBAL__N__19CatArrayBatchedCopyINS1_10OpaqueTypeILj2EEEjLi2ELi64ELi64EEEv"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("kernels") / "torch_kernels.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, SOURCE], check=True, timeout=60)
    return ctypes.CDLL(str(made))


def touched(
    library: ctypes.CDLL, kernel: str, parameters: bytes, grid: tuple[int, ...], block: int = 512
) -> list[tuple[int, int]] | None:
    """Returns the (address, bytes) of each part; None if the kernel is unknown."""
    out = (ctypes.c_uint64 * 2000)()
    grids, blocks = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(block, 1, 1)
    count = library.pump_touch_any(
        kernel.encode(), parameters, len(parameters), grids, blocks, out, 1000
    )
    return None if count < 0 else [(out[2 * i], out[2 * i + 1]) for i in range(count)]


def table(lists: int, room: int, tensors: list[tuple[int, ...]], values: bytes = b"") -> bytes:
    """Returns a by-value table of tensors: addresses for each list, then elements. Unused slots
    have addresses of an earlier launch. `values`: One for each slot, after the elements."""
    words = [STALE] * (lists * room) + [1 << 20] * room
    blocks = []
    for slot, (*addresses, elements) in enumerate(tensors):
        for number, address in enumerate(addresses):
            words[number * room + slot] = address
        words[lists * room + slot] = elements
        blocks += [(slot, chunk) for chunk in range(-(-elements // CHUNK))]
    tail = bytes(slot for slot, _ in blocks).ljust(320, b"\x01")
    chunks = [chunk for _, chunk in blocks] + [99] * (320 - len(blocks))
    return struct.pack(f"<{len(words)}Q", *words) + values + tail + struct.pack("<320i", *chunks)


def test_slots_that_no_block_of_the_launch_works_on_are_not_touched(library: ctypes.CDLL) -> None:
    first, second = (0x1000000, 0x5000000, CHUNK + 10), (0x2000000, 0x6000000, 100)
    parameters = table(2, 64, [first, second]) + bytes(12)
    assert touched(library, PLAIN, parameters, (3, 1, 1)) == [
        (0x1000000, 4 * CHUNK),
        (0x5000000, 4 * CHUNK),
        (0x1000000 + 4 * CHUNK, 40),
        (0x5000000 + 4 * CHUNK, 40),
        (0x2000000, 400),
        (0x6000000, 400),
    ]


def test_scalars_stand_between_the_lengths_and_the_blocks(library: ctypes.CDLL) -> None:
    parameters = table(1, 96, [(0x1000000, 7)], struct.pack("<96f", *[1.0] * 96)) + bytes(4)
    assert touched(library, SCALARS, parameters, (1, 1, 1)) == [(0x1000000, 28)]


def test_the_functor_has_the_tensors_type_and_pointers_of_its_own(library: ctypes.CDLL) -> None:
    parameters = table(2, 64, [(0x1000000, 0x5000000, 100)]) + struct.pack("<iiQ", 0, 0, 0x70000)
    assert touched(library, PLAIN_HALF, parameters, (1, 1, 1)) == [
        (0x1000000, 200),
        (0x5000000, 200),
        (0x70000, 1 << 40),
    ]


def test_a_fused_optimizer_reads_the_steps_of_its_tensors(library: ctypes.CDLL) -> None:
    tensors = [(0x1000000, 0x2000000, 0x3000000, 0x4000000, 10), (0x5, 0x6, 0x7, 0x8, 20)]
    steps = struct.pack("<36Q", 0x50000, 0x60000, *[STALE] * 34)
    parts = touched(library, FUSED, table(4, 36, tensors, steps) + bytes(4), (2, 1, 1))
    assert parts == [
        *((address, 40) for address in tensors[0][:4]),
        (0x50000, 4 | READ),
        *((address, 80) for address in tensors[1][:4]),
        (0x60000, 4 | READ),
    ]


def test_norms_are_written_to_as_many_addresses_as_there_are_blocks(library: ctypes.CDLL) -> None:
    parameters = struct.pack("<QQQ", 0x10000, 0x20000, 0x30000) + struct.pack("<Q", STALE) * 398
    assert touched(library, NORM, parameters + bytes(8), (2, 1, 1)) == [
        (0x10000, 1 << 40 | READ),
        (0x20000, 8),
        (0x30000, 8),
    ]


@pytest.mark.parametrize("shapes", [1, 64])
def test_a_concatenation_reads_the_inputs_of_its_launch(library: ctypes.CDLL, shapes: int) -> None:
    inputs = struct.pack("<64Q", 0x1000000, 0x2000000, *[STALE] * 62)
    numbers = struct.pack("<192I", *[0] * 128, 100, 50, *[7] * 62)
    contiguous = bytes([1, shapes == 1]) + bytes(62)
    parameters = struct.pack("<Q", 0x10000) + inputs + numbers + contiguous
    parameters += bytes(32 * shapes + 40)
    assert touched(library, CAT, parameters, (216, 2, 1)) == [
        (0x10000, 1 << 40),
        (0x1000000, 200 | READ),
        (0x2000000, (100 if shapes == 1 else 1 << 40) | READ),
    ]


def test_a_table_that_makes_no_sense_is_left_alone(library: ctypes.CDLL) -> None:
    parameters = table(2, 64, [(0x1000000, 0x5000000, 100)])
    assert touched(library, PLAIN, parameters, (2, 1, 1)) is None  # its chunk begins after the end
    assert touched(library, PLAIN, parameters[:3000], (1, 1, 1)) is None


def reduction(blocks: int, across: int, threads: int = 64, identity: int = 8) -> bytes:
    """Returns a sum with four outputs per thread. `across`: 1 if threads of a block share an
    output. `identity`: The bytes up to the end of the identity."""
    config = (4, 1000, 64, 1, 1, blocks, across, 0, int(blocks > 1), 0, 0, threads, 1, threads)
    head = bytes(identity) + struct.pack("<14i?3xi", *config, True, 4)
    tail = struct.pack("<6Qq4xi", 0x10000, 0x20000, 0, 0, 0x40000, 0x50000, 0, 1)
    return head + bytes(400 - len(head) - len(tail)) + tail


@pytest.mark.parametrize(
    ("across", "scratch"),
    [(1, 2 * 5 * 4 * 4), (0, 2 * 5 * 64 * 4 * 4)],  # grid, vector, float; threads
)
@pytest.mark.parametrize(("kernel", "identity"), [(SUM, 8), (SUM_OF_HALF, 4), (REDUCE, 32)])
def test_a_reduction_reaches_no_further_into_its_scratch_than_it_stages(
    library: ctypes.CDLL, across: int, scratch: int, kernel: str, identity: int
) -> None:
    parts = touched(library, kernel, reduction(5, across, 64, identity), (2, 5, 1), 64)
    assert parts is not None
    assert parts[:2] == [(0x10000, 1 << 40 | READ), (0x20000, 1 << 40)]
    assert parts[2:] == [(0x40000, scratch), (0x50000, 8)]


def test_blocks_that_finish_alone_stage_nothing(library: ctypes.CDLL) -> None:
    parts = touched(library, SUM, reduction(1, 0), (2, 1, 1), 64)
    assert parts is not None and len(parts) == 2


def elementwise(sizes: tuple[int, ...], strides: list[tuple[int, ...]], *to: int) -> bytes:
    """Returns sizes, and each dimension's strides in bytes for each tensor. Unused entries hold an
    address of an earlier launch."""
    stale = struct.pack("<Q", STALE) * 50
    divisors = b"".join(struct.pack("<3I", size, 7, 1) for size in sizes)
    bytes_ = b"".join(struct.pack(f"<{len(to)}I", *row) for row in strides)
    head = struct.pack("<iiI", 1000, 0, len(sizes)) + (divisors + stale)[:300]
    head += (bytes_ + stale)[: 100 * len(to)]
    head += bytes(-len(head) % 8)
    return head + struct.pack(f"<{len(to)}Q", *to) + bytes(16)


@pytest.mark.parametrize("inputs", [1, 2])
def test_an_elementwise_kernel_follows_its_operands_alone(
    library: ctypes.CDLL, inputs: int
) -> None:
    to = [0x10000 * (number + 1) for number in range(1 + inputs)]
    strides = [(2, *[4] * inputs), (200, *[0] * inputs)]
    assert touched(library, COPY, elementwise((100, 3), strides, *to), (1, 1, 1)) == [
        (0x10000, 99 * 2 + 2 * 200 + 8),
        *((address, (99 * 4 + 8) | READ) for address in to[1:]),
    ]


def test_a_selection_reads_its_source(library: ctypes.CDLL) -> None:
    info = [struct.pack("<Q", address) + bytes(208) for address in (0x10000, 0x20000, 0x30000)]
    assert touched(library, SELECT, b"".join(info) + bytes(24), (1, 1, 1)) == [
        (0x10000, 1 << 40),
        (0x20000, 1 << 40 | READ),
        (0x30000, 1 << 40 | READ),
    ]


@pytest.mark.parametrize(
    ("kernel", "elements", "image", "columns"),
    [("im2col", 3 * 4 * 6, (0x10000, READ), (0x20000, 0)),
     ("col2im", 3 * 8 * 10, (0x20000, 0), (0x10000, READ))],
)  # fmt: skip
def test_a_convolution_reaches_one_sample(
    library: ctypes.CDLL,
    kernel: str,
    elements: int,
    image: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    name = f"_ZN2at6native13{kernel}_kernelIN3c104HalfEEEvlPKT_llllllllllllPS4_"
    words = (elements, 0x10000, 8, 10, 5, 5, 0, 0, 1, 1, 1, 1, 4, 6, 0x20000)
    parts = touched(library, name, struct.pack("<15Q", *words), (1, 1, 1))
    expected = [
        (image[0], 3 * 8 * 10 * 2 | image[1]),
        (columns[0], 3 * 5 * 5 * 4 * 6 * 2 | columns[1]),
    ]
    assert parts is not None and sorted(parts) == sorted(expected)


def test_other_kernels_are_not_known(library: ctypes.CDLL) -> None:
    assert touched(library, "pump_gemm", bytes(400), (1, 1, 1)) is None
    assert touched(library, SUM, reduction(5, 1), (2, 5, 1), 128) is None
