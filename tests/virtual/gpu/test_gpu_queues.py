"""Work queues of the modelled GPU: which work waits for another stream's, and which does not."""

from __future__ import annotations

import pytest
from gpu_model import Gpu
from virtual_driver import GIB, profile, run

SLICE_BLOCKS = 4


def gpu(connections: int = 8) -> Gpu:
    made = Gpu(64)
    assert made.lib.gpu_connections(made.engine, connections) == 0
    made.on_host(0, 64)
    return made


def begin_prefetch(gpu: Gpu, first: int, stream: int) -> int:
    """Sends a slice like an executor. Its copy is still in flight; returns the time of its end."""
    call = gpu.ffi.new(
        "struct gpu_prefetch_call *",
        {"stream": stream, "first_block": first, "block_count": SLICE_BLOCKS},
    )
    assert gpu.lib.gpu_prefetch_step(gpu.engine, gpu.now, gpu.hooks, call) == gpu.lib.GPU_OK
    gpu.advance(call.cost.caller_free_ns)
    return int(call.cost.complete_ns)


def kernel_behind_slices(gpu: Gpu, lanes: int, priority: int) -> tuple[int, int]:
    """Returns when a kernel that touches nothing ends, and when the last slice has arrived.

    Each lane has a slice. The program makes its own stream first, as programs do.
    """
    own = gpu.stream()
    arrived = 0
    for lane in range(lanes):
        arrived = begin_prefetch(gpu, lane * SLICE_BLOCKS % 64, gpu.stream(priority=priority))
    kernel = gpu.kernel(us=1, stream=own)
    gpu.run()
    return gpu.finished[kernel][1], arrived


def test_a_kernel_waits_behind_a_slice_in_a_lane_of_its_own_priority() -> None:
    ended, arrived = kernel_behind_slices(gpu(), 8, priority=0)
    assert ended > arrived  # the eighth lane shares the program's queue


def test_a_kernel_waits_for_no_slice_in_a_lane_of_another_priority() -> None:
    ended, arrived = kernel_behind_slices(gpu(), 8, priority=1)
    assert ended < arrived


def test_as_many_queues_as_streams_let_a_kernel_pass() -> None:
    ended, arrived = kernel_behind_slices(gpu(32), 8, priority=0)
    assert ended < arrived


def test_one_queue_makes_every_kernel_wait_for_every_slice() -> None:
    ended, arrived = kernel_behind_slices(gpu(1), 1, priority=0)
    assert ended > arrived


def test_a_kernel_waits_behind_an_event_that_another_stream_waits_for() -> None:
    g = gpu(1)
    recorder, waiter, own = g.stream(), g.stream(), g.stream()
    event = g.lib.gpu_event_create(g.engine)
    long = g.kernel(us=500, stream=recorder)
    g.submit(g.lib.GPU_EVENT_RECORD, stream=recorder, event=event)
    g.submit(g.lib.GPU_COPY_H2D, stream=own, length_bytes=1 << 20)
    g.submit(g.lib.GPU_EVENT_WAIT, stream=waiter, event=event)
    behind = g.submit(g.lib.GPU_COPY_D2H, stream=own, length_bytes=1 << 20)
    g.run()
    assert g.finished[behind][0] >= g.finished[long][1]


def test_a_copy_does_not_wait_behind_a_kernel_that_only_waits_for_its_engine() -> None:
    g = gpu(1)
    streams = [g.stream() for _ in range(3)]
    first = g.kernel(us=500, stream=streams[0])
    second = g.kernel(us=500, stream=streams[1])
    copy = g.submit(g.lib.GPU_COPY_H2D, stream=streams[2], length_bytes=1 << 20)
    g.run()
    assert g.finished[copy][1] < g.finished[first][1] < g.finished[second][1]


def test_a_copy_waits_behind_a_kernel_that_waits_for_its_own_stream() -> None:
    g = gpu(1)
    busy, own = g.stream(), g.stream()
    first = g.kernel(us=500, stream=busy)
    g.kernel(us=500, stream=busy)
    copy = g.submit(g.lib.GPU_COPY_H2D, stream=own, length_bytes=1 << 20)
    g.run()
    assert g.finished[copy][0] >= g.finished[first][1]


def test_work_of_two_streams_in_one_queue_never_waits_in_a_circle() -> None:
    g = gpu(1)
    streams = [g.stream() for _ in range(4)]
    events = [g.lib.gpu_event_create(g.engine) for _ in streams]
    kernels = []
    for turn in range(40):
        here, there = streams[turn % 4], (turn * 3 + 1) % 4
        g.submit(g.lib.GPU_EVENT_WAIT, stream=here, event=events[there])
        kernels.append(g.kernel([(turn, 8)], us=20, stream=here))
        g.submit(g.lib.GPU_EVENT_RECORD, stream=here, event=events[turn % 4])
        g.check()
    g.run()
    g.check()
    assert all(kernel in g.finished for kernel in kernels)


@pytest.mark.parametrize("connections", [0, 33])
def test_queues_are_one_to_thirty_two(connections: int) -> None:
    g = Gpu(1)
    assert g.lib.gpu_connections(g.engine, connections) == g.lib.GPU_INVALID


@pytest.mark.parametrize(
    ("connections", "stuck"),
    [
        (None, [0, 7, 8, 15, 16, 23, 24, 31, 32]),
        ("32", [0, 31, 32]),
        ("1", list(range(33))),
        ("99", [0, 31, 32]),
    ],
)
def test_the_driver_has_as_many_queues_as_the_variable_says(
    connections: str | None, stuck: list[int]
) -> None:
    """The default is 8; streams of another priority have other queues. The stream that waits for
    the kernel is stuck, and all streams in its queue or in the kernel's."""
    env = {"PUMP_VIRTUAL_PROFILE": profile("timing", GIB, **{"kernels.default_gbps": "0.1"})}
    if connections is not None:
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = connections
    assert run("work_queues", env=env).found == {"stuck": stuck, "levels": 6}


def test_priorities_share_queues_where_the_driver_is_set_so() -> None:
    """The 8 queues are shared, so streams of the greatest priority are stuck in the same ones."""
    slow = profile("timing", GIB, **{"kernels.default_gbps": "0.1", "queues": "shared"})
    stuck = run("work_queues", env={"PUMP_VIRTUAL_PROFILE": slow}).found["stuck"]
    assert stuck[:9] == [0, 7, 8, 15, 16, 23, 24, 31, 32]
    assert len(stuck) > 9
