"""Streams, events, engines and limits of the modelled GPU."""

from __future__ import annotations

import pytest
from gpu_model import BLOCK, Gpu, gpu_with

US = 1000


def launch_ns(gpu: Gpu) -> int:
    return round(gpu.profile.launch_us * US)


def marker(gpu: Gpu, stream: int) -> int:
    return gpu.submit(gpu.lib.GPU_EVENT_RECORD, stream=stream, event=gpu.lib.GPU_NO_EVENT)


def query(gpu: Gpu, stream: int) -> tuple[int, int]:
    earliest = gpu.ffi.new("uint64_t *")
    idle = gpu.lib.gpu_stream_query(gpu.engine, gpu.now, gpu.hooks, stream, earliest)
    return idle, earliest[0]


def event_query(gpu: Gpu, event: int) -> tuple[int, int]:
    time = gpu.ffi.new("uint64_t *")
    done = gpu.lib.gpu_event_query(gpu.engine, gpu.now, gpu.hooks, event, time)
    return done, time[0]


# ---- order


def test_a_stream_executes_in_order_and_kernels_one_at_a_time() -> None:
    gpu = gpu_with(10)
    kernels = [gpu.kernel(us=100, stream=1 + i % 2) for i in range(6)]
    gpu.run()
    times = [gpu.finished[kernel] for kernel in kernels]
    assert times[0][0] == launch_ns(gpu)
    assert [end - start for start, end in times] == [100 * US] * 6
    assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]


def test_kernels_copies_each_way_and_memsets_run_at_the_same_time() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    streams = [1, 2, gpu.stream(), gpu.stream()]
    cookies = [
        gpu.kernel(us=1000, stream=streams[0]),
        gpu.submit(lib.GPU_COPY_H2D, stream=streams[1], length_bytes=BLOCK),
        gpu.submit(lib.GPU_COPY_D2H, stream=streams[2], length_bytes=BLOCK),
        gpu.submit(lib.GPU_MEMSET, stream=streams[3], duration_ns=50 * US),
    ]
    gpu.run()
    assert all(gpu.finished[c][0] <= launch_ns(gpu) for c in cookies)


def test_a_copy_over_the_link_takes_its_bytes_over_the_bandwidth() -> None:
    gpu = gpu_with(10)
    length = 200 << 20
    for kind, gbps in (
        (gpu.lib.GPU_COPY_H2D, gpu.profile.copy_h2d_gbps),
        (gpu.lib.GPU_COPY_D2H, gpu.profile.copy_d2h_gbps),
    ):
        copy = gpu.submit(kind, stream=1, length_bytes=length)
        assert gpu.time_of(copy) == pytest.approx(length / gbps, abs=10)
    assert gpu.counters().h2d_copy_bytes == gpu.counters().d2h_copy_bytes == length


def test_a_prefetch_gets_between_the_steps_of_a_long_copy() -> None:
    gpu = gpu_with(100)
    gpu.on_host(0, 1)
    copy = gpu.submit(gpu.lib.GPU_COPY_H2D, stream=2, length_bytes=4 << 30)
    gpu.advance(gpu.now)
    complete = gpu.prefetch(0, 1)
    gpu.run()
    assert complete < gpu.finished[copy][1] / 10


def test_the_legacy_stream_waits_for_blocking_streams_and_they_for_it() -> None:
    gpu = Gpu(10)
    first, second, free = gpu.stream(blocking=True), gpu.stream(blocking=True), gpu.stream()
    lib = gpu.lib
    before = gpu.submit(lib.GPU_MEMSET, stream=first, duration_ns=500 * US)
    legacy = gpu.submit(lib.GPU_COPY_H2D, stream=0, length_bytes=BLOCK)
    after = gpu.submit(lib.GPU_COPY_D2H, stream=second, length_bytes=BLOCK)
    exempt = gpu.kernel(us=10, stream=free)
    gpu.run()
    assert gpu.finished[legacy][0] == gpu.finished[before][1]
    assert gpu.finished[after][0] == gpu.finished[legacy][1]
    assert gpu.finished[exempt][0] == launch_ns(gpu)


def test_synchronising_the_legacy_stream_means_all_blocking_streams() -> None:
    gpu = Gpu(10)
    blocking, free = gpu.stream(blocking=True), gpu.stream()
    gpu.kernel(us=100, stream=free)
    gpu.advance(1)
    assert query(gpu, 0)[0] == 1
    gpu.kernel(us=100, stream=blocking)
    idle, earliest = query(gpu, 0)
    assert idle == 0
    assert earliest >= 100 * US
    gpu.run()
    assert query(gpu, 0)[0] == 1


# ---- events


def test_an_event_completes_with_the_work_before_it_and_holds_its_waiters() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    event = lib.gpu_event_create(gpu.engine)
    assert event_query(gpu, event) == (1, 0)  # never recorded
    kernel = gpu.kernel(us=100, stream=1)
    gpu.submit(lib.GPU_EVENT_RECORD, stream=1, event=event)
    gpu.submit(lib.GPU_EVENT_WAIT, stream=2, event=event)
    waiter = gpu.submit(lib.GPU_MEMSET, stream=2, duration_ns=US)
    assert event_query(gpu, event)[0] == 0
    gpu.run()
    end = gpu.finished[kernel][1]
    assert event_query(gpu, event) == (1, end)
    assert gpu.finished[waiter][0] == end


def test_a_wait_is_for_the_record_made_before_it_not_for_a_later_one() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    event = lib.gpu_event_create(gpu.engine)
    gpu.kernel(us=100, stream=1)
    gpu.submit(lib.GPU_EVENT_RECORD, stream=1, event=event)
    gpu.submit(lib.GPU_EVENT_WAIT, stream=2, event=event)
    waiter = gpu.submit(lib.GPU_MEMSET, stream=2, duration_ns=US)
    late = gpu.kernel(us=5000, stream=1)
    gpu.submit(lib.GPU_EVENT_RECORD, stream=1, event=event)
    gpu.run()
    assert gpu.finished[waiter][1] < gpu.finished[late][1]
    assert event_query(gpu, event) == (1, gpu.finished[late][1])


def test_a_destroyed_event_is_not_reused_while_operations_refer_to_it() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    event = lib.gpu_event_create(gpu.engine)
    gpu.kernel(us=100, stream=1)
    gpu.submit(lib.GPU_EVENT_RECORD, stream=1, event=event)
    assert lib.gpu_event_destroy(gpu.engine, event) == 0
    assert event_query(gpu, event)[0] == lib.GPU_INVALID
    others = [lib.gpu_event_create(gpu.engine) for _ in range(256)]
    assert event not in others
    assert others[-1] == lib.GPU_FULL
    gpu.run()
    assert lib.gpu_event_create(gpu.engine) == event


# ---- waiting


def test_lower_bounds_are_never_late_and_are_exact_for_resident_kernels() -> None:
    gpu = gpu_with(10)
    last = [gpu.kernel(us=70, stream=1) for _ in range(50)][-1]
    earliest = gpu.ffi.new("uint64_t *")
    bounds = []
    while not gpu.lib.gpu_ticket_query(gpu.engine, gpu.now, gpu.hooks, gpu.tickets[last], earliest):
        bounds.append(earliest[0])
        gpu.advance(max(gpu.next_event(), gpu.now + 13 * US))
    end = gpu.finished[last][1]
    assert all(bound <= end for bound in bounds)
    assert bounds == sorted(bounds)
    assert end - bounds[0] <= 2 * US + launch_ns(gpu)


def test_the_launch_queue_holds_1024_operations_and_tells_when_to_try_again() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    for _ in range(lib.GPU_STREAM_QUEUE):
        gpu.kernel(us=10, stream=1)
    gpu.submit(lib.GPU_KERNEL, stream=1, duration_ns=US, expect=lib.GPU_WAIT)
    assert gpu.now < gpu.retry_ns <= gpu.now + 10 * US + launch_ns(gpu)
    gpu.kernel(us=10, stream=2)  # the queue of another stream has space
    for _ in range(3):  # a few retries may be needed
        gpu.advance(gpu.retry_ns)
        status = lib.GPU_OK if len(gpu.finished) else lib.GPU_WAIT
        gpu.submit(lib.GPU_KERNEL, stream=1, duration_ns=US, expect=status)
    assert gpu.finished
    gpu.run()
    gpu.check()


def test_a_host_operation_holds_its_stream_until_it_is_completed() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    host = gpu.submit(lib.GPU_HOST, stream=1)
    after = gpu.kernel(us=10, stream=1)
    gpu.advance(5_000_000)
    assert [cookie for cookie, _ in gpu.started] == [host]
    assert gpu.next_event() == lib.GPU_NEVER
    assert query(gpu, 1) == (0, lib.GPU_NEVER)
    assert lib.gpu_complete(gpu.engine, gpu.now, gpu.hooks, gpu.tickets[host]) == 0
    assert lib.gpu_complete(gpu.engine, gpu.now, gpu.hooks, gpu.tickets[host]) == lib.GPU_INVALID
    gpu.run()
    assert gpu.finished[after][0] == 5_000_000


def test_a_marker_ends_when_what_the_stream_held_then_has_ended() -> None:
    gpu = gpu_with(10)
    kernel = gpu.kernel(us=100, stream=1)
    mark = marker(gpu, 1)
    later = gpu.kernel(us=900, stream=1)
    gpu.run()
    assert gpu.finished[mark][1] == gpu.finished[kernel][1] < gpu.finished[later][1]


def test_a_destroyed_stream_finishes_its_work_before_its_number_is_reused() -> None:
    gpu = gpu_with(10)
    kernel = gpu.kernel(us=100, stream=1)
    assert gpu.lib.gpu_stream_destroy(gpu.engine, 1) == 0
    gpu.submit(gpu.lib.GPU_KERNEL, stream=1, expect=gpu.lib.GPU_INVALID)
    assert gpu.stream() != 1
    gpu.run()
    assert kernel in gpu.finished
    assert gpu.stream() == 1
    assert gpu.lib.gpu_stream_destroy(gpu.engine, 0) == gpu.lib.GPU_INVALID


def test_a_prefetch_on_a_busy_stream_is_deferred_and_keeps_stream_order() -> None:
    gpu = gpu_with(200)
    gpu.on_host(0, 100)
    kernel = gpu.kernel(us=3000, stream=1)
    began = gpu.now
    assert gpu.prefetch(0, 100) == gpu.lib.GPU_NEVER
    assert gpu.now - began == round(gpu.profile.prefetch_call_us * US)
    after = gpu.submit(gpu.lib.GPU_MEMSET, stream=1, duration_ns=US)
    gpu.run()
    start, end = gpu.finished[1 << 40]
    assert start == gpu.finished[kernel][1]
    assert end - start >= 100 * BLOCK / gpu.profile.prefetch_h2d_gbps
    assert gpu.finished[after][0] == end
    assert gpu.resident(0, 100) == list(range(100))


def test_the_start_hook_runs_in_model_order_at_the_time_of_execution() -> None:
    gpu = gpu_with(10)
    slow = gpu.kernel(us=1000, stream=1)
    queued = gpu.kernel(us=10, stream=1)
    other = gpu.submit(gpu.lib.GPU_MEMSET, stream=2, duration_ns=10 * US)
    gpu.run()
    assert [cookie for cookie, _ in gpu.started] == [other, slow, queued]
    assert [time for _, time in gpu.started] == sorted(time for _, time in gpu.started)


# ---- bad arguments


def test_bad_arguments_are_refused_and_change_nothing() -> None:
    gpu = gpu_with(10)
    lib = gpu.lib
    bad = lib.GPU_INVALID
    gpu.submit(lib.GPU_KERNEL, stream=7, expect=bad)
    gpu.submit(lib.GPU_KERNEL, stream=4_000_000_000, expect=bad)
    gpu.submit(99, stream=1, expect=bad)
    gpu.submit(lib.GPU_EVENT_WAIT, stream=1, event=3, expect=bad)
    gpu.submit(lib.GPU_DISCARD, [(0, 1)], stream=1, expect=bad)
    gpu.submit(lib.GPU_KERNEL, [(4000, 97)], stream=1, expect=bad)
    gpu.submit(lib.GPU_KERNEL, [(2**32 - 1, 2**32 - 1)], stream=1, expect=bad)
    assert gpu.counters().last_error == lib.GPU_ERROR_OUT_OF_BOUNDS
    assert gpu.next_event() == lib.GPU_NEVER
    gpu.check()


def test_a_state_without_room_or_sense_is_not_created() -> None:
    gpu = gpu_with(10)
    new, lib = gpu.ffi.new, gpu.lib
    good = {"blocks": 10, "streams": 2, "events": 0, "operations": 4, "uses": 4}
    size = lib.gpu_engine_bytes(new("struct gpu_capacity *", good))
    memory = new("uint64_t[]", size // 8 + 1)
    capacity = new("struct gpu_capacity *", good)
    for bytes_, memory_bytes in ((size - 1, 0), (size, 1000)):
        made = lib.gpu_engine_create(memory, bytes_, capacity, gpu.profile, memory_bytes, 0)
        assert made == gpu.ffi.NULL
    for key, value in (("streams", 0), ("streams", 1025), ("blocks", 0), ("uses", 2**32 - 1)):
        assert lib.gpu_engine_bytes(new("struct gpu_capacity *", good | {key: value})) == 0


def test_the_state_may_be_copied_elsewhere_and_goes_on_the_same() -> None:
    gpu = gpu_with(50)
    gpu.on_host(0, 80)
    last = [gpu.kernel([(0, 80)], us=300, stream=1) for _ in range(4)][-1]
    gpu.advance(gpu.now + 5_000_000)
    ffi = gpu.ffi
    other = ffi.new("uint64_t[]", len(gpu.memory))
    ffi.memmove(other, gpu.memory, ffi.sizeof(gpu.memory))
    gpu.run()
    first = gpu.finished.pop(last)
    gpu.engine = ffi.cast("struct gpu_engine *", other)
    gpu.run()
    assert gpu.finished[last] == first
