"""JSON traces become programs: mappings, lifetimes, iterations."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from sim_programs import DATA

from pump.model.bounds import BLOCK_BYTES
from pump_lab.sim import program as form
from pump_lab.sim import tensors
from pump_lab.sim.allocator import BestFit
from pump_lab.sim.deaths import lasting
from pump_lab.sim.program import ProgramError

MIB = 1 << 20


def trace(**changes: Any) -> bytes:
    """Returns a trace: persistent weights, two activations in turn, and a tiny tensor."""
    raw = {
        "model": "toy",
        "batch": 1,
        "tensors": [
            {"id": 0, "bytes": 4 * MIB, "persistent": True},
            {"id": 1, "bytes": 4 * MIB, "persistent": False},
            {"id": 2, "bytes": 4 * MIB, "persistent": False},
            {"id": 3, "bytes": 1000, "persistent": False},
        ],
        "kernels": [
            {"name": "a", "duration_us": 10, "reads": [0, 3], "writes": [1]},
            {"name": "b", "duration_us": 20, "reads": [1], "writes": [0, 1]},
            {"name": "c", "duration_us": 30, "reads": [0], "writes": [2]},
        ],
        **changes,
    }
    return gzip.compress(json.dumps(raw).encode())


def uses_of(found: form.Program, operation: int) -> list[tuple[int, int, int, int]]:
    step = found.steps[found.steps["seq"] == operation][0]
    rows = found.uses[int(step["first_use"]) :][: int(step["uses"])]
    return [(int(u["range"]), int(u["offset_bytes"]), int(u["length_bytes"]), int(u["access"]))
            for u in rows]  # fmt: skip


def test_unique_gives_each_tensor_a_range_and_tiny_ones_none() -> None:
    found = tensors.program(tensors.parse(trace(), "toy"), "unique", 2)
    assert found.operations == 6
    assert found.ranges["length_bytes"].tolist() == [4 * MIB] * 3
    assert found.peak_bytes == 8 * MIB
    assert uses_of(found, 1) == [(0, 0, 4 * MIB, form.READ), (1, 0, 4 * MIB, form.OVERWRITE)]
    assert uses_of(found, 2) == [(0, 0, 4 * MIB, form.OVERWRITE), (1, 0, 4 * MIB, form.WRITE)]
    assert uses_of(found, 5) == uses_of(found, 2)  # the second iteration


def test_caching_hands_out_what_was_freed() -> None:
    found = tensors.program(tensors.parse(trace(), "toy"), "caching", 1)
    assert len(found.ranges) == 1
    assert found.blocks * BLOCK_BYTES == 8 * MIB
    assert uses_of(found, 3)[1] == (0, 4 * MIB, 4 * MIB, form.OVERWRITE)


def test_discards_stand_behind_the_last_use_of_what_dies() -> None:
    toy = tensors.parse(trace(), "toy")
    found = tensors.program(toy, "unique", 1, discard=True, kernels_free=0)
    kinds = found.steps["kind"].tolist()
    first = kinds.index(form.KERNEL)
    rest = [form.KERNEL, form.KERNEL, form.DISCARD, form.KERNEL, form.DISCARD, form.SYNC]
    assert kinds[first:] == rest


def test_what_is_used_again_soon_is_not_discarded() -> None:
    mine, border = (0, 0, 4 * MIB), (0, 5 * MIB, 4 * MIB)
    used = [[mine], [(1, 0, 2 * MIB)], [(0, 2 * MIB, 2 * MIB)], [], [border]]
    freed = {0: [mine], 4: [border]}
    # Kernel 2 uses the second block of `mine` again. Kernel 5, which is kernel 0 of the next round,
    # uses the first.
    assert lasting(used, freed, [0, 5], 6, kernels=1)[0] == [mine]
    assert lasting(used, freed, [0, 5], 6, kernels=2)[0] == [(0, 0, 2 * MIB)]
    # Only one block is wholly inside `border`.
    assert lasting(used, freed, [0, 5], 6, kernels=4)[4] == [(0, 6 * MIB, 2 * MIB)]
    assert lasting(used, freed, [0, 5], 6, kernels=5) == {}


def test_the_iterations_end_with_marks() -> None:
    found = tensors.program(tensors.parse(trace(), "toy"), iterations=4)
    assert int(found.steps["mark"].sum()) == 4
    assert found.steps["seq"].max() == 12


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "must be a recording of pump-run or a JSON trace"),
        (b"\x1f\x8b broken", "unreadable trace"),
        (b"[]", "not a trace"),
        (
            trace(kernels=[{"name": "a", "duration_us": 1, "reads": [9], "writes": []}]),
            "tensor 9, which",
        ),
        (trace(kernels=[]), "no kernel uses"),
    ],
)
def test_what_is_no_trace_is_told_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason) as error:
        tensors.parse(data, "some.json")
    assert str(error.value).startswith("some.json: ")
    assert "\n" not in str(error.value)


def test_real_traces_have_the_peaks_that_their_page_says() -> None:
    for name, gib in (("bert_base_b128", 24.08), ("vit_b256", 11.54)):
        data = (DATA / f"{name}_marginal.json.xz").read_bytes()
        assert tensors.parse(data, name).peak_bytes() / 2**30 == pytest.approx(gib, abs=0.01)


def test_best_fit_takes_the_smallest_gap_and_joins_neighbours() -> None:
    arena = BestFit()
    places = [arena.allocate(size * MIB) for size in (4, 2, 8, 2, 1)]
    assert places == [0, 4 * MIB, 6 * MIB, 14 * MIB, 16 * MIB]
    arena.free(places[2], 8 * MIB)
    arena.free(places[0], 4 * MIB)
    assert arena.allocate(3 * MIB) == 0  # the smaller of gaps of 4 and 8
    arena.free(places[1], 2 * MIB)
    assert arena.gap(4 * MIB) == (3 * MIB, 11 * MIB)  # 1 left over + 2 + 8
    assert arena.allocate(11 * MIB) == 3 * MIB
    assert arena.end == 17 * MIB
    arena.free(places[4], MIB)
    assert arena.allocate(5 * MIB) == 16 * MIB  # the last gap grows
    assert arena.end == 21 * MIB
