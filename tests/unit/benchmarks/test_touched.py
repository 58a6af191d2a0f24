"""Pump's extents against touches on the virtual GPU, for hand-made records."""

from __future__ import annotations

import pytest
import touched
from gpu_events import read

from pump.trace import format as form
from pump.trace import records as rec

BASE = 10 * touched.BLOCK_BYTES
HALF = touched.BLOCK_BYTES // 2
NAMES = (rec.Name(1, "add"), rec.Name(2, "scale"))
RANGE = rec.RangeRow(form.ALLOC, 0, 5, 1, BASE, 8 * touched.BLOCK_BYTES, 0, 1, 0)


def launch(function: int, *extents: tuple[int, int]) -> rec.Operation:
    """Returns a launch. `extents`: Offset and length in bytes."""
    found = tuple(rec.Extent(5, 1, offset, length, 0, 0) for offset, length in extents)
    return rec.Operation(form.KERNEL, 1, 0, 0, 0, function, 0, found)


def test_blocks_are_compared_launch_by_launch() -> None:
    rows = (*NAMES, RANGE, launch(1, (0, HALF)), launch(2, (HALF, 2 * HALF)), launch(1))
    extents = touched.read_extents(rows)
    assert extents == {"add": [{10}, set()], "scale": [{10, 11}]}
    lines = (
        "launch 1 5 scale 10+1",
        "launch 2 6 add 10+2 10+1",
        "start 1 7",
        "launch 3 8 add 17+1",
    )
    touches = touched.read_touches(read(lines))
    found = touched.compare(touches, extents)
    assert found == {
        "add": touched.Uses(launches=2, touched=3, told=1, missed=2, idle=0),
        "scale": touched.Uses(launches=1, touched=1, told=2, missed=0, idle=1),
    }
    assert touched.together(found.values()) == touched.Uses(3, 4, 3, 2, 1)


def test_arguments_believed_to_be_unused_and_copies_do_not_count() -> None:
    copy = launch(0, (0, HALF))._replace(kind=form.COPY)
    rows = (*NAMES, RANGE, launch(1, (HALF, 0), (3 * HALF, 1)), copy)
    assert touched.read_extents(rows) == {"add": [{11}]}


def test_records_of_different_runs_are_refused() -> None:
    extents = touched.read_extents((*NAMES, RANGE, launch(1, (0, HALF))))
    with pytest.raises(ValueError, match="add: 2 launches touch memory, 1 are recorded"):
        touches = touched.read_touches(read(["launch 1 5 add 10+1", "launch 2 6 add 10+1"]))
        touched.compare(touches, extents)


def test_a_recording_that_lost_events_is_refused() -> None:
    with pytest.raises(ValueError, match="lost 3 events"):
        touched.read_extents([rec.Lost(0, form.LOST_RING_FULL, 3)])
