/* case_gates.c - launches that wait in their stream for their memory (progress/gates.c). */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor_harness.h"

#define MS 1000000u

/* The driver's side: the newest wait of a stream. */
static const uint32_t *word;
static uint32_t value, waits, registrations, wait_error, register_error;

static CUresult fake_register(void *start, size_t bytes, unsigned int flags) {
  CHECK((uintptr_t)start % 4096 == 0 && bytes == 4096 && flags == 2);
  PUMP_ADD(&registrations, 1);
  return (CUresult)PUMP_LOAD(&register_error);
}
static CUresult fake_device_pointer(CUdeviceptr *address, void *start, unsigned int flags) {
  CHECK(flags == 0);
  *address = (CUdeviceptr)(uintptr_t)start;
  return CUDA_SUCCESS;
}
static CUresult fake_wait(CUstream stream, CUdeviceptr address, cuuint32_t at_least,
                          unsigned int flags) {
  CHECK(stream != NULL && flags == 0 && PUMP_LOAD(&fake.capturing) == 0);
  if (PUMP_LOAD(&wait_error) != 0) return (CUresult)PUMP_LOAD(&wait_error);
  word = (const uint32_t *)(uintptr_t)address;
  value = at_least;
  PUMP_ADD(&waits, 1);
  return CUDA_SUCCESS;
}

/* Compares like the driver: with wrap-around. */
static bool is_open(void) {
  return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

static uint64_t forced(void) {
  return PUMP_LOAD(&pump_shm->shim_counters.gates_forced);
}

static CUcontext context_made(void) {
  CUcontext context = fake_context_create(0);
  pump_context_note(0, context);
  pump_executors_start(0, true);
  EVENTUALLY(PUMP_LOAD(&fake.events_alive) >= PUMP_MARKERS_FIRST);
  return context;
}

/* Returns a stream of a device on which the job yields. */
static CUstream yielding(void) {
  pump_real.cuMemHostRegister_v2 = fake_register;
  pump_real.cuMemHostGetDevicePointer_v2 = fake_device_pointer;
  pump_real.cuStreamWaitValue32_v2 = fake_wait;
  __atomic_store_n(&pump_reporting, 1, __ATOMIC_RELEASE);
  PUMP_STORE(&pump_shm->header.next_seq, 100);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 99);
  pump_threads_start();
  CUcontext context = context_made();
  pump_yield_set(0, UINT64_MAX);
  pump_markers_wake(0);
  EVENTUALLY(PUMP_LOAD(&registrations) == 1);
  return fake_stream_create(context);
}

static void gate(CUstream stream) {
  pump_progress_gate(pump_stream_index(stream, false), stream, false);
}

/* Waits for the first gate, because the context's word may not be registered yet. */
static void first_gate(CUstream stream) {
  EVENTUALLY((gate(stream), PUMP_LOAD(&waits) == 1));
}

static void launch(CUstream stream) {
  uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  PUMP_ADD(&((struct fake_stream *)(void *)stream)->issued, 1);
  pump_progress_issued(pump_stream_index(stream, false), stream, seq, 1000000000, 0);
}

/* Shows activity, so that only PUMP_GATE_MOST_NS ends a wait. */
static void stay_shut(unsigned int ms) {
  for (unsigned int i = 0; i < ms; i++) {
    PUMP_ADD(&pump_shm->header.activity, 1);
    CHECK(!is_open());
    harness_sleep_us(1000);
  }
}

SCENARIO(a_launch_waits_in_its_stream_until_its_memory_is_there) {
  CUstream stream = yielding();
  first_gate(stream);
  CHECK(value == 100);
  launch(stream);
  stay_shut(100);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 100);
  EVENTUALLY(is_open());
  gate(stream);
  CHECK(value == 101 && PUMP_LOAD(&waits) == 2);
  launch(stream);
  stay_shut(10);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 150); /* beyond the issued operations */
  EVENTUALLY(is_open());
  /* A new worker may report an older operation as ready than the last worker did. */
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 101);
  gate(stream);
  CHECK(value == 102 && !is_open());
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 102);
  EVENTUALLY(is_open());
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.gates) == 3 && forced() == 0);
  CHECK(PUMP_LOAD(&fake.records) == 2); /* a marker after each launch */
  CHECK(PUMP_LOAD(&registrations) == 1);
}

static void large_gate(CUstream stream) {
  PUMP_STORE(&pump_shm->header.worker_heartbeat_ns, pump_now_ns());
  pump_progress_gate(pump_stream_index(stream, false), stream, true);
}

/* Returns a stream of a job that does not yield, with the first gate of a large launch. */
static CUstream large_launches(void) {
  CUstream stream = yielding();
  pump_yield_set(0, 0);
  PUMP_STORE(&pump_gates_large, 1);
  pump_gates_adopt();
  EVENTUALLY((large_gate(stream), PUMP_LOAD(&waits) == 1));
  return stream;
}

SCENARIO(a_large_launch_waits_for_its_memory_while_a_worker_brings_it) {
  CUstream stream = large_launches();
  launch(stream);
  for (unsigned int i = 0; i < 50; i++) {
    PUMP_STORE(&pump_shm->header.worker_heartbeat_ns, pump_now_ns());
    stay_shut(1);
  }
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 100);
  EVENTUALLY(is_open());
  gate(stream); /* another launch */
  CHECK(PUMP_LOAD(&waits) == 1);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, UINT64_MAX); /* nothing is prefetched */
  large_gate(stream);
  CHECK(PUMP_LOAD(&waits) == 1 && forced() == 0);
}

SCENARIO(a_silent_worker_opens_the_gates_of_large_launches_and_gets_none) {
  CUstream stream = large_launches();
  launch(stream);
  PUMP_STORE(&pump_shm->header.worker_heartbeat_ns,
             pump_now_ns() - PUMP_GATE_SILENT_NS - 1);
  EVENTUALLY(is_open());
  pump_progress_gate(pump_stream_index(stream, false), stream, true);
  CHECK(PUMP_LOAD(&waits) == 1 && forced() == 0);
}

SCENARIO(gates_of_large_launches_that_are_forced_open_become_rare) {
  CUstream stream = large_launches();
  uint64_t begin_ns = pump_now_ns(), pauses[2];
  for (int i = 0; i < 2; i++) {
    launch(stream);
    EVENTUALLY(is_open()); /* nothing moves */
    CHECK(forced() == (uint64_t)i + 1);
    begin_ns = pump_now_ns();
    uint32_t before = PUMP_LOAD(&waits);
    EVENTUALLY((large_gate(stream), PUMP_LOAD(&waits) > before));
    pauses[i] = pump_now_ns() - begin_ns;
  }
  CHECK(pauses[0] > 900 * MS && pauses[0] < 1900 * MS && pauses[1] > 1900 * MS);
}

SCENARIO(gates_open_when_the_job_yields_no_longer) {
  CUstream stream = yielding();
  first_gate(stream);
  stay_shut(10);
  pump_yield_set(0, 0);
  EVENTUALLY(is_open());
  gate(stream);
  CHECK(PUMP_LOAD(&waits) == 1);
  pump_yield_set(0, pump_now_ns() + 400 * MS); /* without renewal */
  gate(stream);
  CHECK(PUMP_LOAD(&waits) == 2);
  launch(stream);
  gate(stream);
  uint64_t until_ns = pump_now_ns() + 800 * MS;
  while (!is_open()) {
    CHECK(pump_now_ns() < until_ns);
    PUMP_ADD(&pump_shm->header.activity, 1);
  }
  gate(stream);
  CHECK(PUMP_LOAD(&waits) == 3 && forced() == 0);
}

SCENARIO(gates_open_by_the_clock_where_nothing_moves_and_none_is_made_for_a_while) {
  CUstream stream = yielding();
  first_gate(stream);
  EVENTUALLY(is_open());
  CHECK(forced() == 1);
  uint64_t begin_ns = pump_now_ns();
  gate(stream);
  CHECK(PUMP_LOAD(&waits) == 1);
  launch(stream);
  EVENTUALLY((gate(stream), PUMP_LOAD(&waits) == 2));
  CHECK(pump_now_ns() - begin_ns > PUMP_GATE_PAUSE_NS / 2);
}

SCENARIO(no_gate_stays_shut_however_much_moves) {
  CUstream stream = yielding();
  first_gate(stream);
  uint64_t begin_ns = pump_now_ns();
  while (!is_open()) {
    PUMP_ADD(&pump_shm->header.activity, 1);
    CHECK(pump_now_ns() - begin_ns < 5 * (uint64_t)PUMP_GATE_MOST_NS);
    harness_sleep_us(100);
  }
  CHECK(forced() == 1 && pump_now_ns() - begin_ns > PUMP_GATE_MOST_NS / 2);
}

SCENARIO(no_gate_where_none_may_stand) {
  CUstream stream = yielding();
  first_gate(stream);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 1000);
  PUMP_STORE(&fake.capturing, 1);
  gate(stream);
  PUMP_STORE(&fake.capturing, 0);
  CHECK(PUMP_LOAD(&waits) == 1);
  pump_progress_chained(pump_stream_index(stream, false));
  gate(stream); /* a gate would separate such launches */
  CHECK(PUMP_LOAD(&waits) == 1);
  CUstream another = fake_stream_create(((struct fake_stream *)(void *)stream)->context);
  __atomic_store_n(&pump_reporting, 0, __ATOMIC_RELEASE);
  gate(another);
  CHECK(PUMP_LOAD(&waits) == 1);
  __atomic_store_n(&pump_reporting, 1, __ATOMIC_RELEASE);
  gate(another);
  CHECK(PUMP_LOAD(&waits) == 2);
  PUMP_STORE(&wait_error, CUDA_ERROR_NOT_SUPPORTED);
  gate(another);
  PUMP_STORE(&wait_error, 0);
  gate(another); /* no further attempt */
  CHECK(PUMP_LOAD(&waits) == 2);
}

SCENARIO(a_driver_that_registers_no_word_has_no_gates) {
  PUMP_STORE(&register_error, CUDA_ERROR_NOT_SUPPORTED);
  CUstream stream = yielding();
  harness_sleep_us(20000);
  gate(stream);
  pump_markers_wake(0);
  harness_sleep_us(20000);
  CHECK(PUMP_LOAD(&registrations) == 1 && PUMP_LOAD(&waits) == 0);
}

SCENARIO(a_word_of_an_earlier_life_of_its_context_is_registered_anew) {
  CUstream stream = yielding();
  first_gate(stream);
  const uint32_t *before = word;
  CUcontext context = ((struct fake_stream *)(void *)stream)->context;
  pump_executors_context_gone(context);
  gate(stream); /* nothing may be registered or waited for there */
  fake_context_destroy(context);
  EVENTUALLY(is_open()); /* although the launch never came */
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 99);
  context = context_made();
  pump_markers_wake(0);
  EVENTUALLY(PUMP_LOAD(&registrations) == 2);
  stream = fake_stream_create(context);
  CHECK(PUMP_LOAD(&waits) == 1);
  PUMP_ADD(&pump_shm->header.next_seq, 5);
  EVENTUALLY((gate(stream), PUMP_LOAD(&waits) == 2));
  CHECK(value == 105 && word == before);
}

SCENARIO(at_the_end_all_gates_open) {
  first_gate(yielding());
  pump_gates_stop();
  EVENTUALLY(is_open());
  pump_yield_set(0, pump_now_ns() + 1000 * (uint64_t)MS); /* the link thread still runs */
  CHECK(!pump_job_yields(0));
}

SCENARIO(a_forked_child_leaves_the_words_of_its_parent_alone) {
  CUstream stream = yielding();
  first_gate(stream);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pump_gates_fork_child();
    CHECK(pump_gates_devices == 0 && !pump_job_yields(0));
    pump_yield_set(0, 0);
    _exit(is_open() ? 1 : 0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  launch(stream);
  PUMP_STORE(&pump_shm->devices[0].ready_seq, 100);
  EVENTUALLY(is_open());
}
