"""Nodes of graphs of the stand-in for libcudart, called by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import virtual_driver as virtual
from test_runtime_arrays import KERNEL
from test_runtime_libraries import found, libraries, run


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the host function of the programs' kernel."""
    source = tmp_path_factory.mktemp("nodes") / "put.c"
    source.write_text(KERNEL)
    return virtual.compile_c(source.with_suffix(".so"), "-shared", "-fPIC", source)


def outcome(program: str, kernels: Path) -> Any:
    env = {"PUMP_VIRTUAL_KERNELS": f"{kernels}:{libraries()[1]}"}
    return found(run(program, script="node_programs.py", **env))


def test_nodes_of_any_kind_are_added_and_changed_by_one_call(kernels: Path) -> None:
    assert outcome("any_kind", kernels) == {
        "first": [5, 3, 3, 0, 0, 0, 0, 0],
        "own_child": True,
        "exec": [6, 4, 4, 4, 4, 0, 0, 0],
        "node": [6, 4, 4, 4, 4, 0, 0, 0],
        "called": [11, 12, 11, 11],
        "kind": 1,
        "unknown": 98,
        "handle": 9,
    }


def test_kernel_nodes_keep_their_attributes_and_hand_them_on(kernels: Path) -> None:
    assert outcome("attributes", kernels) == {
        "before": [0, 0, 0],
        "set": [0, 0, 0],
        "window": [0, 64],
        "after": [1, -5, 1],
        "refused": [1, 1, 1],
        "cluster": 801,
        "other": [1, 1, 1],
    }


def test_nodes_copy_to_variables_and_from_them_within_their_bounds(kernels: Path) -> None:
    assert outcome("symbols", kernels) == {
        "first": [3, 4, 5, 6, 0, 0, 0, 0],
        "exec": [4, 1, 2, 3, 4, 0, 0, 0],
        "node": [0, 0, 1, 2, 3, 4, 0, 0],
        "refused": [1, 13, 21],
    }


def test_a_graphs_own_memory_is_allocated_counted_and_freed_by_nodes(kernels: Path) -> None:
    assert outcome("own_memory", kernels) == {
        "before": [0, 0, 0],
        "values": [7] * 8,
        "after": [0, 1, 1],
        "told": [1 << 20, True],
        "trimmed": [0, 0, 0],
        "twice": 1,
        "unknown": 1,
    }


def test_nodes_of_each_kind_get_other_parameters_by_calls_of_their_own(kernels: Path) -> None:
    assert outcome("set_params", kernels) == {
        "first": [5, 3, 3, 3, 3, 3, 3, 21],
        "exec": [6, 4, 4, 4, 4, 4, 4, 22],
        "recorded": 0,
        "told": [14, 7, True, True],
        "node": [8, 0, 0, 0, 0, 0, 0, 0],
        "run": [8, 7, 0],
        "called": [11, 12, 11, -13, 11, -14, 11, -14],
        "refused": [1, 1],
    }
