"""Requests of libraries to the virtual driver other than work: user objects of graphs, attributes
of streams and pointers, pools, contexts with parameters."""

from __future__ import annotations

import functools

import pytest
import virtual_driver as virtual

pytest.importorskip("cuda.bindings.nvrtc")

INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED, UNJOINED = 1, 2, 801, 904
INVALID_CONTEXT = 201

run = functools.partial(virtual.run, script="driver_programs.py")


@virtual.needs_bindings_of_13
def test_a_user_object_ends_with_its_last_reference_a_graphs_or_the_programs() -> None:
    found = run("user_objects").found
    assert found == {"steps": [False] * 4, "refused": [INVALID_VALUE] * 5}


@virtual.needs_bindings_of_13
def test_attributes_of_a_stream_are_kept_and_copied() -> None:
    assert run("stream_attributes").found == {
        "before": 1,
        "after": [3, -2, -2, 1 << 20],
        "refused": [INVALID_VALUE] * 2,
    }


@virtual.needs_bindings_of_13
def test_the_cards_pools_are_found_by_their_location() -> None:
    assert run("default_pools").found == {"same": [True] * 4, "host": NOT_SUPPORTED}


@virtual.needs_bindings_of_13
def test_a_pool_gives_no_more_than_its_maximum() -> None:
    assert run("bounded_pool").found == [OUT_OF_MEMORY, OUT_OF_MEMORY, 0, 0]


def test_pools_give_nothing_for_no_bytes() -> None:
    assert run("empty_allocations").found == [[[0, 0]] * 3, 0]


@virtual.needs_bindings_of_13
def test_each_processor_that_accesses_memory_is_remembered() -> None:
    assert run("processors_that_access").found == [[-1, -2, -2], [0, -1, -2], [-1, -2, -2]]


def test_registered_memory_ends_at_its_start_alone() -> None:
    not_registered = 713
    assert run("unregistered").found == [INVALID_VALUE, 0, not_registered]


@virtual.needs_bindings_of_13
def test_no_function_has_no_name() -> None:
    assert run("names_of_nothing").found == [INVALID_VALUE] * 2


def test_a_second_free_is_refused_also_before_the_stream_reached_the_first() -> None:
    outcome = run("double_frees")
    assert outcome.found == [0, INVALID_VALUE, INVALID_VALUE] * 2
    assert outcome.report["violations_by_check"]["free_unknown"] == 4


def test_whether_copies_of_memory_are_to_wait_is_remembered() -> None:
    assert run("sync_memops").found == [False, True, False]


@virtual.needs_bindings_of_13
def test_parameters_of_a_context_that_are_all_zero_ask_for_nothing() -> None:
    assert run("zeroed_context").found == 0


def test_a_synchronous_memset_waits_except_for_device_memory() -> None:
    assert run("memset_waits").found == {"device": False, "managed": True, "pinned": True}


def test_a_stream_may_be_destroyed_within_a_capture_that_joins_its_work() -> None:
    assert run("destroyed_in_capture").found == [0, UNJOINED]


@virtual.needs_bindings_of_13
def test_a_context_ends_with_its_last_use_and_old_calls_of_functions_are_checked() -> None:
    assert run("old_calls").found == {
        "shapes": [0, INVALID_VALUE, 0, INVALID_VALUE],
        "primary": [INVALID_CONTEXT] * 2,
        "uses": [True, 0, True, INVALID_CONTEXT],
    }
