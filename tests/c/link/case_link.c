/* case_link.c - scenarios of hello, attach, death of the worker, and the next attach. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor_harness.h"
#include "fake_pumpd.h"

SCENARIO(attach_carries_ranges_devices_and_counters_over) {
  CUcontext context = fake_context_create(0);
  uint32_t slots[3] = {harness_allocate(0, 4), harness_allocate(0, 8),
                       harness_allocate(0, 16)};
  harness_free(slots[1]);
  PUMP_STORE(&pump_shm->ranges[slots[2]].last_use_seq[3], 77);
  PUMP_STORE(&pump_shm->header.next_seq, 500);
  PUMP_STORE(&pump_shm->header.issuers[1], 77);
  PUMP_STORE(&pump_shm->header.event_tail, 123);
  PUMP_STORE(&pump_shm->header.device_count, 1);
  PUMP_STORE(&pump_shm->shim_counters.extents_dropped, 9);
  pumpd_start();
  pump_threads_start();
  pump_context_note(0, context);
  uint32_t stream = pump_stream_index(fake_stream_create(context), false);
  pump_progress_issued(stream, NULL, 42, 1000000000, 0);
  pumpd_accept_and_attach(1);
  CHECK(pumpd.hello.magic == PUMP_HELLO_MAGIC &&
        pumpd.hello.abi_version == PUMP_ABI_VERSION);
  CHECK(pumpd.hello.client_pid == (uint32_t)getpid());
  CHECK(pumpd.hello.shm_bytes == sizeof(struct pump_shm));
  const struct pump_shm *seen = pumpd.shm;
  CHECK(seen->header.range_high == 3 && seen->header.device_count == 1);
  CHECK(seen->header.issuers[1] == 77);
  CHECK(seen->header.client_pid == (uint32_t)getpid());
  CHECK(seen->header.client_state == PUMP_CLIENT_RUNNING);
  CHECK(seen->ranges[slots[0]].range_kind == PUMP_RANGE_CONVERTED);
  CHECK(seen->ranges[slots[0]].length_bytes == 4 * PUMP_BLOCK_BYTES);
  CHECK(seen->ranges[slots[1]].range_kind == PUMP_RANGE_FREE);
  CHECK(seen->ranges[slots[1]].generation == 2);
  CHECK(seen->ranges[slots[2]].last_use_seq[3] == 77);
  CHECK(seen->devices[0].allocated_bytes == 28 * PUMP_BLOCK_BYTES);
  CHECK(seen->shim_counters.extents_dropped == 9);
  CHECK(seen->header.event_head == 123 + PUMP_EVENT_SLOTS);
  CHECK(seen->header.event_tail == seen->header.event_head);
  CHECK(PUMP_LOAD(&seen->header.next_seq) > 500);
  CHECK(PUMP_LOAD(&seen->progress[stream].issued_seq) == 42);
  CHECK(PUMP_LOAD(&seen->progress[stream].live) == 1);
  uint32_t later = harness_allocate(0, 2); /* now hooks write into pumpd's memory */
  CHECK(PUMP_LOAD(&seen->ranges[later].length_bytes) == 2 * PUMP_BLOCK_BYTES);
  pumpd_end();
}

SCENARIO(commands_of_the_daemon_are_carried_out_and_a_dead_worker_is_replaced) {
  CUcontext context = fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pump_context_note(0, context);
  uint32_t slot = harness_allocate(0, 16);
  pump_populate_add(slot, 1);
  pump_executors_start(0, true);
  /* Wait, so that only slices to the host are in the driver when they are counted. */
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) == 16 * PUMP_BLOCK_BYTES);
  pumpd_accept_and_attach(1);
  for (uint64_t life = 1; life <= 3; life++) {
    struct pump_command command = {.slot = slot,
                                   .generation = 1,
                                   .length_bytes = PUMP_BLOCK_BYTES,
                                   .observed_seq = UINT64_MAX,
                                   .ticket = life};
    CHECK(worker_submit(0, PUMP_TO_HOST, command));
    CHECK(worker_reap(0, PUMP_TO_HOST) == PUMP_RESULT_MOVED);
    /* A slice in flight when the worker dies must not end in the next mapping. */
    PUMP_STORE(&fake.hold, 1);
    CHECK(worker_submit(0, PUMP_TO_HOST, command));
    EVENTUALLY(PUMP_LOAD(&fake.running) == 1);
    pumpd_die();
    pumpd_accept_and_attach(life + 1);
    PUMP_STORE(&fake.hold, 0);
    EVENTUALLY(PUMP_LOAD(&fake.running) == 0);
    harness_sleep_us(5000);
    for (int i = 0; i < PUMP_SCHEDULE_TICKETS; i++)
      CHECK(PUMP_LOAD(&pumpd.shm->entry_ends[i].ticket) == 0);
    CHECK(PUMP_LOAD(&pumpd.shm->ranges[slot].generation) == 1);
  }
  pumpd_die();
  EVENTUALLY(pump_link_losses() == 4);
  harness_free(slot);
  pumpd_end();
}

SCENARIO(a_budget_that_a_worker_asks_for_is_adopted_at_its_ring) {
  CUcontext context = fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pump_context_note(0, context);
  pump_populate_add(harness_allocate(0, 1), 1);
  pumpd_accept_and_attach(1);
  struct pump_device *device = &pumpd.shm->devices[0];
  CHECK(PUMP_LOAD(&pump_executors_of(0)->full) == 0);
  uint64_t begin_ns = pump_now_ns();
  for (uint64_t blocks = 1; blocks <= 12; blocks++) {
    PUMP_STORE(&device->asked_budget_bytes, blocks * PUMP_BLOCK_BYTES);
    CHECK(send(pumpd.connection, "b", 1, MSG_NOSIGNAL) == 1);
    EVENTUALLY(PUMP_LOAD(&device->adopted_budget_bytes) == blocks * PUMP_BLOCK_BYTES);
  }
  /* Without the wake-up, the link polls every half second. */
  CHECK(pump_now_ns() - begin_ns < 3000000000u);
  EVENTUALLY(PUMP_LOAD(&pump_executors_of(0)->full) == 1);
  CHECK(PUMP_LOAD(&device->budget_bytes) == 12 * PUMP_BLOCK_BYTES);
  pumpd_die();
  pumpd_accept_and_attach(2); /* the next worker requests nothing, so the budget stays */
  device = &pumpd.shm->devices[0];
  CHECK(PUMP_LOAD(&device->budget_bytes) == 12 * PUMP_BLOCK_BYTES);
  CHECK(device->asked_budget_bytes == 0 && device->adopted_budget_bytes == 0);
  pumpd_die();
  pumpd.asked_bytes = 5 * PUMP_BLOCK_BYTES;
  pumpd_accept_and_attach(3); /* the request written before the attach takes effect */
  device = &pumpd.shm->devices[0];
  EVENTUALLY(PUMP_LOAD(&device->budget_bytes) == pumpd.asked_bytes);
  pumpd_end();
}

SCENARIO(a_pumpd_of_another_version_is_named_once) {
  fake_context_create(0);
  pumpd_start();
  pumpd.abi_version = PUMP_ABI_VERSION + 1;
  pumpd.status = PUMP_WELCOME_VERSION;
  pump_threads_start();
  pumpd_accept();
  /* The client has closed the connection. */
  EVENTUALLY(recv(pumpd.connection, &pumpd.hello, 1, MSG_DONTWAIT) == 0);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0);
  pumpd_end();
}

#define STRANGER_USER 12345
#define OWN_USER 12346

/* Listens as another user: the kernel reports to clients who called listen last. */
static void pumpd_listen_as(uid_t user) {
  CHECK(syscall(SYS_setresuid, -1, user, -1) == 0); /* affects only this thread */
  CHECK(listen(pumpd.listener, 8) == 0);
  CHECK(syscall(SYS_setresuid, -1, 0, -1) == 0);
}

/* Checks that a client connects and leaves `times` times without sending anything. */
static void pumpd_is_told_nothing(int times) {
  for (int attempt = 0; attempt < times; attempt++) {
    struct pollfd ready = {.fd = pumpd.listener, .events = POLLIN};
    CHECK(poll(&ready, 1, 10000) == 1);
    pumpd.connection = accept4(pumpd.listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(recv(pumpd.connection, &pumpd.hello, sizeof pumpd.hello, 0) == 0);
    pumpd_die();
  }
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0);
}

SCENARIO(a_pumpd_of_another_user_is_named_once_and_told_nothing) {
  fake_context_create(0);
  pumpd_start();
  pumpd_listen_as(STRANGER_USER);
  pump_threads_start();
  pumpd_is_told_nothing(3);
  pumpd_listen_as(0);
  pumpd_accept_and_attach(1);
  pumpd_end();
}

/* Moves the socket into the folder that the test has made for that user. */
static void pumpd_move_to_folder_of(uid_t user) {
  char path[sizeof pumpd.path];
  snprintf(path, sizeof path, "%s/socket", getenv("FOLDER"));
  CHECK(rename(pumpd.path, path) == 0 && chmod(path, 0666) == 0);
  CHECK(chown(path, user, (gid_t)-1) == 0);
  strcpy(pumpd.path, path);
  setenv("PUMP_SOCKET", path, 1);
}

/* In a user namespace without a map all users have the same number, this process's too. */
static void become_unmapped(void) {
  CHECK(setresuid(OWN_USER, OWN_USER, OWN_USER) == 0);
  CHECK(unshare(CLONE_NEWUSER) == 0 && geteuid() == 65534);
}

SCENARIO(in_a_user_namespace_a_pumpd_of_another_user_is_told_nothing) {
  fake_context_create(0);
  pumpd_start();
  pumpd_move_to_folder_of(STRANGER_USER);
  pumpd_listen_as(STRANGER_USER);
  become_unmapped();
  pump_threads_start();
  pumpd_is_told_nothing(2);
  pumpd_end();
}

SCENARIO(in_a_user_namespace_the_pumpd_of_the_own_closed_folder_is_trusted) {
  fake_context_create(0);
  pumpd_start();
  pumpd_move_to_folder_of(OWN_USER);
  pumpd_listen_as(OWN_USER);
  become_unmapped();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  pumpd_end();
}

SCENARIO(memory_that_is_not_as_agreed_is_not_attached) {
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  for (int fault = 0; fault < 4; fault++) {
    pumpd.seals = fault == 0 ? 0 : fault == 1 ? F_SEAL_GROW : F_SEAL_SHRINK | F_SEAL_GROW;
    pumpd.size = fault == 2 ? sizeof(struct pump_shm) - 4096 : sizeof(struct pump_shm);
    pumpd.magic = fault == 3 ? 1 : PUMP_ABI_MAGIC;
    pumpd_accept();
    char byte;
    EVENTUALLY(recv(pumpd.connection, &byte, 1, MSG_DONTWAIT) == 0);
    pumpd_die();
    CHECK(PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0);
  }
  pumpd.magic = PUMP_ABI_MAGIC;
  pumpd_accept_and_attach(1);
  pumpd_end();
}

SCENARIO(a_worker_that_stops_beating_is_left_for_a_new_one) {
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  uint64_t begin_ns = pump_now_ns();
  while (pump_now_ns() - begin_ns < 3500000000u) { /* while it beats, it stays */
    PUMP_STORE(&pumpd.shm->header.worker_heartbeat_ns, pump_now_ns());
    CHECK(pump_link_losses() == 0);
    harness_sleep_us(100000);
  }
  EVENTUALLY(pump_link_losses() == 1); /* silent, but its socket is still open */
  CHECK(pump_now_ns() - begin_ns > 6000000000u);
  int old = pumpd.connection;
  pumpd_accept_and_attach(2);
  close(old);
  pumpd_end();
}

SCENARIO(a_worker_that_has_not_begun_is_waited_for_while_its_socket_is_open) {
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  harness_sleep_us(4000000); /* longer than between two beats */
  CHECK(pump_link_losses() == 0);
  pumpd_die();
  EVENTUALLY(pump_link_losses() == 1);
  pumpd_accept_and_attach(2);
  pumpd_end();
}

SCENARIO(a_descriptor_that_the_program_took_over_is_left_alone) {
  fake_context_create(0);
  pumpd_start();
  harness_refuse(SYS_close_range, ENOSYS); /* no descriptor table of our own */
  pump_threads_start();
  pumpd_accept_and_attach(1);
  int number = link_socket();
  CHECK(number >= 900 && (fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
  int own[2];
  CHECK(pipe(own) == 0);
  CHECK(dup2(own[0], number) == number); /* closes ours, as daemonize() does */
  pumpd_die();
  pumpd_accept_and_attach(2);
  struct stat mine, theirs;
  CHECK(fstat(own[0], &mine) == 0 && fstat(number, &theirs) == 0);
  CHECK(mine.st_ino == theirs.st_ino);
  CHECK(write(own[1], "x", 1) == 1);
  char byte = 0;
  CHECK(read(number, &byte, 1) == 1 && byte == 'x'); /* pump has not read from it */
  close(number);
  pumpd_die();
  pumpd_accept_and_attach(3);
  pumpd_end();
}

SCENARIO(without_a_daemon_the_job_goes_on_and_says_so_once) {
  CUcontext context = fake_context_create(0);
  setenv("PUMP_SOCKET", "/nonexistent/pumpd.sock", 1);
  pump_threads_start();
  pump_context_note(0, context);
  uint32_t slot = harness_allocate(0, 4);
  pump_populate_add(slot, 1);
  pump_executors_start(0, true);
  EVENTUALLY(PUMP_LOAD(&pump_shm->shim_counters.populate_bytes) == 4 * PUMP_BLOCK_BYTES);
  harness_sleep_us(4000000);
}

SCENARIO(a_socket_that_may_not_be_reached_is_named_with_the_reason) {
  fake_context_create(0);
  pumpd_start();
  pumpd_move_to_folder_of(0);
  CHECK(setresuid(OWN_USER, OWN_USER, OWN_USER) == 0);
  pump_threads_start();
  harness_sleep_us(4000000);
}

SCENARIO(memory_for_which_there_is_no_address_space_is_named_with_its_remedy) {
  fake_context_create(0);
  pumpd_start();
  pumpd.no_room = true;
  pump_threads_start();
  pumpd_accept();
  EVENTUALLY(recv(pumpd.connection, &pumpd.hello, 1, MSG_DONTWAIT) == 0);
  CHECK(PUMP_LOAD(&pump_shm->shim_counters.attaches) == 0);
  pumpd_end();
}

SCENARIO(a_daemon_that_never_answers_holds_no_thread_up) {
  fake_context_create(0);
  pumpd_start();
  uint64_t begin_ns = pump_now_ns();
  pump_threads_start();
  struct pollfd ready = {.fd = pumpd.listener, .events = POLLIN};
  CHECK(poll(&ready, 1, 5000) == 1);
  pumpd.connection = accept4(pumpd.listener, NULL, NULL, SOCK_CLOEXEC);
  harness_free(harness_allocate(0, 1));
  CHECK(pump_now_ns() - begin_ns < 1000000000u);
  pumpd_end();
} /* and exit is prompt */

static void fork_while_attached(void) {
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  /* The attach is counted before it is complete. A child forked in between would have the
   * mapping, but pump is off there. */
  pthread_mutex_lock(&pump_range_lock);
  pthread_mutex_unlock(&pump_range_lock);
  int number = link_socket();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pump_threads_fork_child();
    unsigned char resident;
    int gone = mincore(pump_shm, 4096, &resident) != 0 && errno == ENOMEM;
    _exit(gone && fcntl(number, F_GETFD) < 0 ? 7 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  CHECK(link_socket() == number); /* the parent keeps its own socket */
  CHECK(pump_link_losses() == 0);
  pumpd_end();
}

SCENARIO(a_forked_child_gives_the_socket_and_the_mapping_up) {
  fork_while_attached();
}

SCENARIO(a_forked_child_closes_its_copy_of_a_socket_among_the_programs) {
  harness_refuse(SYS_close_range, EPERM);
  fork_while_attached();
}

SCENARIO(a_recorded_start_does_not_wait_where_nothing_listens) {
  fake_context_create(0);
  setenv("PUMP_SOCKET", "/nonexistent/pumpd.sock", 1);
  PUMP_STORE(&pump_shm->header.recording, 1);
  uint64_t begin_ns = pump_now_ns();
  pump_threads_start();
  CHECK(pump_link_unheard() && pump_now_ns() - begin_ns < PUMP_RECORDER_NS);
}

SCENARIO(a_pumpd_that_listens_and_is_slow_is_waited_for) {
  fake_context_create(0);
  pumpd_start();
  PUMP_STORE(&pump_shm->header.recording, 1);
  uint64_t begin_ns = pump_now_ns();
  pump_threads_start(); /* its connection is never accepted */
  CHECK(!pump_link_unheard() && pump_now_ns() - begin_ns >= PUMP_RECORDER_NS);
  pumpd_end();
}

/* Returns the time from the worker's death to the client's next hello. */
static uint64_t pause_ns(uint64_t attaches) {
  uint64_t begin_ns = pump_now_ns();
  pumpd_die();
  pumpd_accept_and_attach(attaches);
  return pump_now_ns() - begin_ns;
}

SCENARIO(workers_that_die_young_are_asked_for_ever_more_rarely) {
  const uint64_t ms = 1000000, slack = 400 * ms; /* for sanitizers and a busy machine */
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  for (uint64_t life = 2, least = 50 * ms; life <= 7; life++, least *= 2) {
    uint64_t pause = pause_ns(life);
    CHECK(pause >= least && pause < least + slack);
  }
  uint64_t begin_ns = pump_now_ns();
  while (pump_now_ns() - begin_ns < 5100 * ms) { /* this worker serves for long */
    PUMP_STORE(&pumpd.shm->header.worker_heartbeat_ns, pump_now_ns());
    harness_sleep_us(100000);
  }
  CHECK(pump_link_losses() == 6);
  CHECK(pause_ns(8) < 50 * ms + slack);
  pumpd_end();
}

/* Hooks and executors keep working while one worker after another dies. */
static uint32_t hammering;
static void *hammer(void *context) {
  pump_real.cuCtxSetCurrent(context);
  uint64_t last = 0;
  while (__atomic_load_n(&hammering, __ATOMIC_ACQUIRE) != 0) {
    uint64_t seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
    CHECK(seq > last); /* numbers never decrease */
    last = seq;
    pump_progress_issued(pump_stream_index(NULL, true), NULL, seq, pump_now_ns(), 0);
    pump_progress_stream_synced(pump_stream_index(NULL, true), seq);
    uint64_t position;
    if (pump_event_reserve(pump_shm, 1, &position)) pump_event_publish(pump_shm, position);
    uint32_t slot = harness_allocate(0, 1);
    pump_populate_add(slot, 1);
    pump_executors_start(0, true);
    harness_sleep_us(200);
    harness_free(slot);
  }
  return NULL;
}

SCENARIO(workers_may_die_at_any_moment_under_load) {
  CUcontext context = fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pump_context_note(0, context);
  PUMP_STORE(&fake.prefetch_us, 50);
  uint32_t slot = harness_allocate(0, 256);
  pthread_t threads[2];
  hammering = 1;
  for (int i = 0; i < 2; i++)
    CHECK(pthread_create(&threads[i], NULL, hammer, context) == 0);
  for (uint64_t life = 1; life <= 8; life++) {
    pumpd_accept_and_attach(life);
    uint32_t answered = 0;
    for (uint32_t i = 0; i < 200; i++) {
      struct pump_command command = {.ticket = i,
                                     .slot = slot,
                                     .generation = 1,
                                     .offset_bytes = i * PUMP_BLOCK_BYTES,
                                     .length_bytes = PUMP_BLOCK_BYTES,
                                     .observed_seq = UINT64_MAX};
      worker_submit(0, i & 1, command);
      uint64_t ticket;
      int result = worker_try_reap(0, i & 1, &ticket);
      CHECK(result == -1 || (result == PUMP_RESULT_MOVED && ticket <= i));
      answered += result == PUMP_RESULT_MOVED;
      if (answered > 20 && harness_random() % 16 == 0) break;
      harness_sleep_us(harness_random() % 100);
    }
    uint64_t ticket; /* on a busy machine none may have arrived yet */
    if (answered == 0) EVENTUALLY(worker_try_reap(0, 0, &ticket) == PUMP_RESULT_MOVED);
    pumpd_die();
  }
  __atomic_store_n(&hammering, 0, __ATOMIC_RELEASE);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  harness_free(slot);
  pumpd_end();
}
