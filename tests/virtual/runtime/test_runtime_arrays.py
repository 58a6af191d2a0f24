"""Arrays, boxes, textures and graphs of the stand-in for libcudart, called by name."""

from __future__ import annotations

from pathlib import Path

import virtual_driver as virtual
from test_runtime_libraries import found, libraries, run

PROGRAMS = "array_programs.py"
KERNEL = """
void pump_host_pump_put(void **p, const unsigned grid[3], const unsigned block[3]) {
  (void)grid, (void)block;
  **(unsigned **)p[0] = *(unsigned *)p[1];
}
"""


def test_arrays_take_rows_and_runs_and_give_them_back() -> None:
    assert found(run("arrays", script=PROGRAMS)) == {
        "back": [[6, 7, 8, 0, 0], [11, 12, 13, 90, 91], [92, 93, 94, 95, 96], [97, 0, 0, 0, 0]],
        "tail": [9, 10, 11],
        "info": [16, 0, 1, 5, 4, 0, 0],
        "texels": 20,
        "beyond": 1,
        "direction": 21,
        "none": 1,
        "freed": [0, 0, 400],
    }


def test_boxes_count_texels_of_arrays_and_bytes_of_memory() -> None:
    row, head = [7, 7, 7, 7], [9, 9, 7, 7]
    assert found(run("boxes", script=PROGRAMS)) == {
        "values": [[head, row, row], [head, row, row]],
        "pitch": [0, 6, 3],
        "refused": [1, 1, 1],
    }


def test_boxes_go_from_the_device_to_itself_as_its_peer() -> None:
    assert found(run("peers", script=PROGRAMS)) == {
        "values": [
            [[[5, 6], [9, 10]], [[17, 18], [21, 22]]],
            [[[6, 7], [10, 11]], [[18, 19], [22, 23]]],
        ],
        "refused": 101,
    }


def test_runs_of_bytes_go_on_from_row_to_row_of_both_arrays() -> None:
    assert found(run("runs", script=PROGRAMS)) == {
        "back": [0, 0, 0, 0, *range(8, 18), 0],
        "beyond": 1,
        "direction": 21,
    }


def test_levels_of_a_mipmapped_array_are_arrays_that_end_with_it() -> None:
    assert found(run("mipmaps", script=PROGRAMS)) == {
        "sizes": [[8, 4], [4, 2], [2, 1]],
        "texels": [[1], [2], [3]],
        "refused": [1, 400],
        "freed": [0, 0, 400],
        "gone": 400,
    }


def test_texture_objects_tell_what_they_were_made_of() -> None:
    assert found(run("textures", script=PROGRAMS)) == {
        "same": [0, True],
        "read": [1, 1, 0],
        "gone": 1,
        "nothing": 1,
    }


def test_graphs_are_built_node_by_node_asked_and_changed(tmp_path: Path) -> None:
    source = tmp_path / "put.c"
    source.write_text(KERNEL)
    kernels = virtual.compile_c(tmp_path / "put.so", "-shared", "-fPIC", source)
    env = {"PUMP_VIRTUAL_KERNELS": f"{kernels}:{libraries()[1]}"}
    assert found(run("graphs", script=PROGRAMS, **env)) == {
        "types": [2, 0, 7, 6, 4, 1, 3],
        "counts": [7, 6, 1],
        "kernel": [True, [1, 1, 1]],
        "copy": [True, 16, 2],
        "first": [5, 3, 3, 3, 0],
        "second": [6, 4, 4, 4, 4],
        "called": [11, 11],
        "unknown": 98,
    }


def test_edges_are_added_once_and_removed_once() -> None:
    assert found(run("edges", script=PROGRAMS)) == {"counts": [1, 1], "removed": [0, 1], "left": 1}


def test_graphs_keep_objects_and_streams_hand_attributes_on() -> None:
    assert found(run("objects", script=PROGRAMS)) == {"before": [], "after": [21], "policy": 4}
