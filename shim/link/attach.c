/* attach.c - maps the worker's memfd over the region in which all threads work.
 *
 * This file uses no socket (connect.c does). Only the link thread calls it.
 *
 * DESIGN. The region keeps one address while the process lives. An attach, under
 * pump_range_lock, copies the state (ranges, devices, counters) into the memfd. Then
 * mmap(MAP_FIXED) puts the memfd in place of the old memory. Hooks write to the region
 * without a lock, even during the copy, so:
 *   `next_seq`, the next operation's number, jumps ahead by SEQ_MARGIN. So a number that a
 *   hook has drawn from the old memory after the copy is not drawn again.
 *   The event ring continues one full turn ahead. So a late write to a record that was
 *   reserved in the old memory cannot look current (pump_ring.h).
 *   Ranges and progress are written again from private memory after the change.
 *   Executors do not touch the schedules during the change (pump_mapping_close). Each
 *   new ring has another value of `wakes`, so no thread falls asleep on the old value.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "link.h"
#include "shim/execute/execute.h"

#define SEQ_MARGIN (1u << 20)

/* Maps the memfd somewhere. Returns NULL with the error of the mapping, or with EPROTO if
 * it is not as agreed. */
static struct pump_shm *map_memory(int memory) {
  const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
  int seals = fcntl(memory, F_GET_SEALS);
  errno = EPROTO;
  struct stat st;
  /* Without seals the other side could truncate it and kill the job by SIGBUS. */
  if (seals < 0 || (seals & needed) != needed) return NULL;
  if (fstat(memory, &st) != 0 || st.st_size != (off_t)sizeof(struct pump_shm)) return NULL;
  struct pump_shm *shm =
      mmap(NULL, sizeof *shm, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (shm == MAP_FAILED) return NULL;
  madvise(shm, sizeof *shm, MADV_DONTFORK);
  const struct pump_header *header = &shm->header;
  if (PUMP_LOAD_ACQUIRE(&header->magic) == PUMP_ABI_MAGIC &&
      header->abi_version == PUMP_ABI_VERSION &&
      header->header_bytes == sizeof(struct pump_header) &&
      header->shm_bytes == sizeof(struct pump_shm))
    return shm;
  munmap(shm, sizeof *shm);
  errno = EPROTO;
  return NULL;
}

/* Copies word by word, because hooks may be writing the old mapping. */
static void copy_words(void *to, const void *from, size_t bytes) {
  uint64_t *t = to;
  const uint64_t *f = from;
  for (size_t i = 0; i < bytes / sizeof *t; i++) PUMP_STORE(&t[i], PUMP_LOAD(&f[i]));
}

/* Copies ranges, devices, progress and counters to the new shared memory. Requires
 * pump_range_lock and a closed mapping, so that no executor uses it. */
static void copy_state(struct pump_shm *to, const struct pump_shm *from) {
  uint64_t high = PUMP_LOAD(&from->header.range_high);
  if (high > PUMP_MAX_RANGES) high = PUMP_MAX_RANGES;
  copy_words(to->ranges, from->ranges, high * sizeof to->ranges[0]);
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    copy_words(&to->devices[d], &from->devices[d],
               offsetof(struct pump_device, asked_budget_bytes));
  copy_words(to->progress, from->progress, sizeof to->progress);
  copy_words(&to->shim_counters, &from->shim_counters, sizeof to->shim_counters);
  for (int d = 0; d < PUMP_MAX_DEVICES; d++)
    for (int r = 0; r < PUMP_DIRECTIONS; r++)
      PUMP_STORE(&to->executors[d][r].wakes, PUMP_LOAD(&from->executors[d][r].wakes) + 1);
  struct pump_header *header = &to->header;
  PUMP_STORE(&header->client_pid, (uint32_t)getpid());
  PUMP_STORE(&header->client_state, PUMP_CLIENT_RUNNING);
  PUMP_STORE(&header->device_count, PUMP_LOAD(&from->header.device_count));
  PUMP_STORE(&header->recording, pump_recording);
  PUMP_STORE(&header->range_version, PUMP_LOAD(&from->header.range_version) + 1);
  PUMP_STORE(&header->range_high, high);
  for (uint32_t i = 0; i < PUMP_ISSUERS; i++) /* no thread may register twice */
    PUMP_STORE(&header->issuers[i], PUMP_LOAD(&from->header.issuers[i]));
  uint64_t tail = PUMP_LOAD(&from->header.event_tail) + PUMP_EVENT_SLOTS;
  PUMP_STORE(&header->event_head, tail);
  PUMP_STORE(&header->event_tail, tail);
  PUMP_STORE(&header->next_seq, PUMP_LOAD(&from->header.next_seq) + SEQ_MARGIN);
  PUMP_ADD(&to->shim_counters.attaches, 1);
}

static void restore_region(const struct pump_shm *state) {
  void *region = mmap(pump_shm, sizeof *pump_shm, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (region != MAP_FAILED) copy_words(region, state, sizeof *state);
}

bool pump_attach(int memory) {
  struct pump_shm *fresh = map_memory(memory);
  if (fresh == NULL) return false;
  pthread_mutex_lock(&pump_range_lock);
  pump_mapping_close();
  pump_executors_wake_all();
  copy_state(fresh, pump_shm);
  /* Now the region is the memfd. Its old contents are gone, but the threads that write to
   * it do not notice. */
  bool mapped = mmap(pump_shm, sizeof *pump_shm, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, memory, 0) != MAP_FAILED;
  int error = errno;
  if (!mapped) /* the kernel may have removed the old pages already: map new ones */
    restore_region(fresh);
  madvise(pump_shm, sizeof *pump_shm, MADV_DONTFORK);
  pump_range_republish();
  pump_progress_republish();
  pump_metadata_void();
  pump_mapping_open();
  pthread_mutex_unlock(&pump_range_lock);
  munmap(fresh, sizeof *fresh);
  if (mapped) pump_worker_notify();
  errno = error;
  return mapped;
}
