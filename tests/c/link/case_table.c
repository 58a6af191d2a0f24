/* case_table.c - scenarios of the link thread's own descriptor table. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor_harness.h"
#include "fake_pumpd.h"

#define NUMBERS 1024

/* ---- the link's close(), controlled by the test -------------------------------------- */

enum { PAUSE_NOT, PAUSE_NEXT, PAUSE_NOW, PAUSE_OVER };
static uint32_t pause_state; /* state of the link's next close() */

int __real_close(int number);
int __wrap_close(int number);

int __wrap_close(int number) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  uint32_t next = PAUSE_NEXT;
  if (strcmp(name, "pump-link") == 0 &&
      __atomic_compare_exchange_n(&pause_state, &next, PAUSE_NOW, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_RELAXED))
    EVENTUALLY(PUMP_LOAD_ACQUIRE(&pause_state) == PAUSE_OVER);
  return __real_close(number);
}

static void numbers_in_use(bool used[NUMBERS]) {
  for (int i = 0; i < NUMBERS; i++) used[i] = fcntl(i, F_GETFD) >= 0;
}

static ino_t inode_of(int number) {
  struct stat status;
  return fstat(number, &status) == 0 ? status.st_ino : 0;
}

/* ---- scenarios ---------------------------------------------------------------------- */

SCENARIO(a_close_of_the_link_never_hits_a_descriptor_of_the_program) {
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  int number = link_socket(), own[2];
  CHECK(number >= 900 && pipe(own) == 0);
  PUMP_STORE_RELEASE(&pause_state, PAUSE_NEXT);
  pumpd_die(); /* the link has checked the number's owner, and is about to close it */
  EVENTUALLY(PUMP_LOAD_ACQUIRE(&pause_state) == PAUSE_NOW);
  CHECK(dup2(own[0], number) == number);
  PUMP_STORE_RELEASE(&pause_state, PAUSE_OVER);
  pumpd_accept_and_attach(2);
  CHECK(inode_of(number) == inode_of(own[0]));
  pumpd_end();
}

SCENARIO(the_program_sees_no_descriptor_of_the_link) {
  bool before[NUMBERS], after[NUMBERS];
  fake_context_create(0);
  pumpd_start();
  numbers_in_use(before);
  pump_threads_start();
  pumpd_accept_and_attach(1);
  pumpd_die();
  pumpd_accept_and_attach(2);
  CHECK(link_socket() >= 900);
  before[pumpd.connection] = true;
  numbers_in_use(after);
  CHECK(memcmp(before, after, sizeof before) == 0);
  pumpd_end();
}

SCENARIO(what_the_program_closes_ends_for_its_readers_although_the_link_lives) {
  int ends[4][2];
  const int high[2] = {300, 700};
  CHECK(pipe(ends[0]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends[1]) == 0);
  for (int i = 0; i < 2; i++) {
    CHECK(pipe(ends[2 + i]) == 0 && dup2(ends[2 + i][1], high[i]) == high[i]);
    CHECK(close(ends[2 + i][1]) == 0);
    ends[2 + i][1] = high[i];
  }
  fake_context_create(0);
  pumpd_start();
  pump_threads_start();
  pumpd_accept_and_attach(1);
  for (int i = 0; i < 4; i++) {
    struct pollfd end = {.fd = ends[i][0], .events = POLLIN};
    CHECK(poll(&end, 1, 0) == 0);
    CHECK(close(ends[i][1]) == 0 && poll(&end, 1, 2000) == 1 && (end.revents & POLLHUP));
  }
  pumpd_end();
}

SCENARIO(a_program_that_has_used_up_its_descriptors_is_attached_nonetheless) {
  const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
  fake_context_create(0);
  pumpd_start();
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  int last[2] = {-1, -1};
  for (int number; (number = dup(pumpd.listener)) >= 0;) {
    last[0] = last[1];
    last[1] = number;
  }
  close(last[0]); /* two free numbers for pumpd: connection and memory */
  close(last[1]);
  pump_threads_start();
  pumpd_accept_and_attach(1);
  pumpd_end();
}

struct owner {
  int first, source[2];
};
static uint32_t closing;

/* Closes and reuses numbers of its own, like a program that knows only these. */
static void *close_and_fill(void *argument) {
  const struct owner *owner = argument;
  const ino_t inodes[2] = {inode_of(owner->source[0]), inode_of(owner->source[1])};
  for (uint32_t turn = 0; PUMP_LOAD_ACQUIRE(&closing) != 0; turn++) {
    int number = owner->first + (int)(turn % 60);
    CHECK(dup2(owner->source[turn & 1], number) == number);
    CHECK(inode_of(number) == inodes[turn & 1]);
    if (turn % 3 == 0) CHECK(close(number) == 0 && fcntl(number, F_GETFD) < 0);
  }
  return NULL;
}

SCENARIO(all_numbers_stay_the_programs_own_while_workers_come_and_go) {
  static const int first[3] = {100, 500, 895};
  struct owner owners[3];
  pthread_t threads[3];
  fake_context_create(0);
  pumpd_start();
  closing = 1;
  for (int i = 0; i < 3; i++) {
    owners[i].first = first[i];
    CHECK(pipe(owners[i].source) == 0);
    CHECK(pthread_create(&threads[i], NULL, close_and_fill, &owners[i]) == 0);
  }
  pump_threads_start();
  for (uint64_t life = 1; life <= 5; life++) {
    pumpd_accept_and_attach(life);
    pumpd_die();
  }
  PUMP_STORE_RELEASE(&closing, 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  CHECK(pump_link_losses() <= 5);
  pumpd_end();
}
