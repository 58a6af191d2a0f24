"""Graphs of the virtual driver: built from nodes, captured, changed, launched."""

from __future__ import annotations

import functools

import pytest
import virtual_driver as virtual

pytest.importorskip("cuda.bindings.nvrtc")

INVALID_VALUE, NOT_SUPPORTED, UNJOINED, UPDATE_FAILURE = 1, 801, 904, 910
KERNEL, COPY, MEMSET, CHILD, RECORD, ALLOC, FREE = 0, 1, 2, 4, 7, 10, 11

run = functools.partial(virtual.run, script="graph_programs.py", mode="compute")


@virtual.needs_bindings_of_13
def test_nodes_run_as_their_edges_say_whatever_the_order_of_their_making() -> None:
    outcome = run("explicit")
    assert outcome.found == [15.0, 15.0, 30.0]
    assert outcome.report["graphs"] == {"launches": 3, "kernels": 6, "copies": 3, "memsets": 3}
    assert outcome.report["violations"] == 0


@virtual.needs_bindings_of_13
def test_a_graph_with_a_cycle_cannot_be_instantiated() -> None:
    assert run("cycle").found == [INVALID_VALUE, 0]


@virtual.needs_bindings_of_13
def test_a_graph_tells_what_it_was_made_of() -> None:
    assert run("asked").found == {
        "types": [MEMSET, COPY],
        "nodes": [0, 1, 2],
        "roots": [0],
        "edges": [[0, 1], [0, 2], [1, 2]],
        "on": [0, 1],
        "behind": [1, 2],
        "pointer": True,
        "factor": 3.0,
        "grid": [4096, 256],
        "copy": [True, 4 * 4096],
        "memset": [True, 4, 4096],
        "left": 1,
        "stale": INVALID_VALUE,
    }


def test_graphs_clones_and_executable_graphs_change_apart_from_each_other() -> None:
    assert run("changed").found == {
        "before": [2.0, 1.0, 1.0],
        "after": [20.0, 7.0, 1.0],
        "set": [20.0, 7.0, 5.0],
        "foreign": INVALID_VALUE,
    }


def test_nodes_of_an_executable_graph_get_other_parameters_and_are_switched_off() -> None:
    assert run("set_params").found == {
        "found": [[9.0, 9.0, 1.0], [4.0, 9.0, 4.0], [6.0, 9.0, 4.0]],
        "off": 0,
        "child": INVALID_VALUE,
        "owned": INVALID_VALUE,
    }


def test_an_update_takes_parameters_over_and_refuses_another_shape() -> None:
    topology, kind = 2, 3
    assert run("updated").found == {
        "values": [25.0, 5.0, 1.0],
        "refused": [[UPDATE_FAILURE, topology], [UPDATE_FAILURE, kind]],
    }


@virtual.needs_bindings_of_13
def test_a_capture_tells_and_changes_what_its_next_node_depends_on() -> None:
    assert run("captured").found == {
        "tail": [CHILD],
        "moved": [True],
        "same": True,
        "types": [MEMSET, CHILD, RECORD, KERNEL],
        "edges": 4,
        "recorded": 0,
        "values": [6.0, 1.0, 7.0],
    }


@virtual.needs_bindings_of_13
def test_kernel_nodes_have_the_attributes_of_their_launches_and_clones_those_of_nodes() -> None:
    captured = [[0, -2], [1, -2], [0, -4]]
    later = [[0, -1], *captured[1:]]
    assert run("node_attributes").found == {"captured": captured, "set": later, "clone": later}


def test_work_after_the_event_that_was_joined_counts_as_not_joined() -> None:
    assert run("unjoined").found == [0, UNJOINED]


def test_a_graph_has_memory_of_its_own_that_lives_as_its_nodes_say() -> None:
    outcome = run("own_memory")
    assert outcome.found == {
        "types": [ALLOC, ALLOC, COPY, KERNEL, COPY, KERNEL, FREE],
        "asked": [True, True],
        "freed": True,
        "refused": [INVALID_VALUE, INVALID_VALUE],
        "second": INVALID_VALUE,
        "clone": NOT_SUPPORTED,
        "child": NOT_SUPPORTED,
        "destroyed_node": INVALID_VALUE,
        "before": [0, 0, 0],
        "launched": [1, 2, 2],
        "kept": 3.0,
        "again": INVALID_VALUE,
        "outlived": [[1, 1, 2], 3.0],
        "after": [0, 0, 2],
        "values": [1.0, 4.0, 1.0],
    }
    assert outcome.report["violations"] == 0


def test_memory_of_a_graph_is_freed_by_its_next_launch_if_that_was_asked_for() -> None:
    outcome = run("own_memory_relaunched")
    assert outcome.found == {
        "values": [1.0, 7.0, 1.0],
        "held": [4 * 4096, 0],
        "freed": INVALID_VALUE,
    }
    assert outcome.report["violations_by_check"]["free_unknown"] == 1


def test_memory_that_came_back_shorter_is_touched_as_it_is() -> None:
    outcome = run("reused_memory", mode="timing")
    assert outcome.found is True
    assert outcome.report["violations"] == 0
    assert outcome.report["graphs"]["kernels"] == 1
