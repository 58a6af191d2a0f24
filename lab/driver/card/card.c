/* card.c - one virtual GPU for several processes (profile key shared=NAME).
 *
 * DESIGN
 * The model's state is in a file that all processes map; it holds indices, no pointers.
 * Each process is an owner in it (gpu_engine.h). Addresses, contents, handles, effects on
 * data and the driver's lock are private to a process. The GPU's lock is taken only under
 * that private lock, and is never held while a thread sleeps.
 *
 * All processes use CLOCK_MONOTONIC. Each call advances the model for all processes. If a
 * call starts work of other processes, they find notes about it when they next take the
 * lock. Waiting threads check at least every millisecond and the effects thread every 200
 * us, so no process has to wake another.
 *
 * A process may be killed at any moment. The GPU's lock is robust, and a journal undoes
 * an interrupted step (uvm_journal.h). A process is identified by its number, start time
 * and program. A process that finds another one gone makes the model drop all its work
 * and memory. It checks every LOOK_NS, before an allocation fails, and when a process
 * asks for the free memory. The link still carries the dead process's booked transfers,
 * some milliseconds at most.
 *
 * If a process is stopped (SIGSTOP) while it holds the lock, the others wait. A waiting
 * process reports that once, with the path of the shared file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <fcntl.h>

#include "card_state.h"

#define LOOK_NS 20000000ull
#define TIMEOUT_S 5

static struct {
  struct card *card;
  struct gpu_capacity capacity;
  char path[4096];
  char name[CARD_NAME_BYTES];
  uint32_t owner;
  uint64_t look_ns; /* time of the next check for dead owners */
  bool complained;
} own;

static struct gpu_engine *state_of(struct card *card) {
  return (struct gpu_engine *)(void *)((uint8_t *)card + CARD_STATE_OFFSET);
}

/* Returns a hash of all sizes: a process with other sizes or another build of the model
 * cannot use the file. */
static uint32_t shape(const struct gpu_capacity *capacity, uint64_t engine_bytes) {
  const uint64_t parts[] = {engine_bytes,
                            sizeof(struct card),
                            sizeof(struct uvm_profile),
                            sizeof(struct gpu_counters),
                            capacity->blocks,
                            capacity->streams,
                            capacity->events,
                            capacity->operations,
                            capacity->uses,
                            capacity->owners,
                            capacity->notes};
  uint64_t hash = 1469598103934665603ull; /* FNV-1a */
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    hash = (hash ^ parts[i]) * 1099511628211ull;
  return (uint32_t)(hash ^ hash >> 32);
}

bool vd_card_name_set(const char *name, size_t length) {
  if (length == 0 || length >= sizeof own.name || name[0] == '.') return false;
  for (size_t i = 0; i < length; i++) {
    char c = name[i];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '-' && c != '_' && c != '.') return false;
  }
  memcpy(own.name, name, length);
  own.name[length] = 0;
  return true;
}

const char *vd_card_name(void) {
  return own.name;
}

const struct card *card_of_process(void) {
  return own.card;
}

bool vd_card_wanted(void) {
  return own.name[0] != 0;
}

/* -- the lock -- */

static void lock_card(struct card *card) {
  int error;
  do {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TIMEOUT_S;
    error = pthread_mutex_timedlock(&card->lock, &until);
    if (error == ETIMEDOUT && !own.complained) {
      own.complained = true;
      vd_error(
          "shared card \"%s\": a process has held its lock for %d s; it may be stopped: %s",
          own.name, TIMEOUT_S, own.path);
    }
  } while (error == ETIMEDOUT);
  if (error == EOWNERDEAD) {
    pthread_mutex_consistent(&card->lock);
    own.look_ns = 0;
  }
}

uint32_t vd_card_reclaim_locked(void) {
  struct gpu_owner_info info;
  uint32_t found = 0;
  if (own.card == NULL) return 0;
  for (uint32_t i = 0; i < own.capacity.owners; i++) {
    if (i == own.owner || gpu_owner_get(vd.engine, i, &info) != GPU_OK) continue;
    if (card_process_is_alive(&own.card->processes[i])) continue;
    vd_log("shared card \"%s\": process %d ended, %.1f MiB are free again", own.name,
           own.card->processes[i].pid,
           (double)(info.plain_bytes + info.resident_bytes) / (1 << 20));
    own.card->processes[i].pid = 0;
    gpu_owner_leave(vd.engine, vd_now_ns(), &vd_hooks, i);
    own.card->died++;
    found++;
  }
  own.look_ns = vd_now_ns() + LOOK_NS;
  return found;
}

void vd_card_take(void) {
  lock_card(own.card);
  if (gpu_lock_taken(vd.engine, own.owner))
    vd_log("shared card \"%s\": rolled back an update of a killed process", own.name);
  if (vd_now_ns() >= own.look_ns) vd_card_reclaim_locked();
  gpu_notes_deliver(vd.engine, &vd_hooks);
}

void vd_card_give(void) {
  struct gpu_memory memory;
  gpu_memory_get(vd.engine, &memory);
  uint64_t bytes = memory.plain_bytes + memory.resident_bytes;
  if (bytes > own.card->peak_bytes) own.card->peak_bytes = bytes;
  gpu_lock_given(vd.engine);
  pthread_mutex_unlock(&own.card->lock);
}

/* -- joining -- */

static int make_room(int file, uint32_t part) {
  uint64_t offset_bytes, length_bytes;
  gpu_engine_part(&own.capacity, part, &offset_bytes, &length_bytes);
  int error =
      posix_fallocate(file, (off_t)(CARD_STATE_OFFSET + offset_bytes), (off_t)length_bytes);
  if (error == 0) return 0;
  vd_error("shared card: cannot allocate %.0f MiB in %s (%s); set PUMP_VIRTUAL_CARDS to "
           "another folder",
           (double)length_bytes / (1 << 20), own.path, strerror(error));
  return -1;
}

static struct card *map(int file, uint64_t bytes) {
  struct card *card = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (card == MAP_FAILED) {
    vd_error("shared card: cannot map %s: %s", own.path, strerror(errno));
    return NULL;
  }
  madvise(card, bytes, MADV_DONTFORK);
  return card;
}

/* Creates the state in a new, empty, locked file. */
static struct card *make(int file, uint64_t engine_bytes) {
  uint64_t bytes = CARD_STATE_OFFSET + engine_bytes;
  if (ftruncate(file, (off_t)bytes) != 0 ||
      posix_fallocate(file, 0, CARD_STATE_OFFSET) != 0) {
    vd_error("shared card: cannot create %s: %s", own.path, strerror(errno));
    return NULL;
  }
  if (make_room(file, own.capacity.owners) != 0) return NULL;
  struct card *card = map(file, bytes);
  if (card == NULL) return NULL;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&card->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (gpu_engine_create(state_of(card), engine_bytes, &own.capacity, &vd.profile, 0,
                        vd_now_ns()) == NULL) {
    vd_error("profile \"%s\": cannot build the model of the GPU", vd.profile.name);
    munmap(card, bytes);
    return NULL;
  }
  card->version = CARD_VERSION;
  card->capacity_hash = shape(&own.capacity, engine_bytes);
  card->bytes = bytes;
  card->pid_namespace = card_pid_namespace();
  memcpy(card->profile_name, vd.profile.name, sizeof card->profile_name);
  memcpy(card->profile_hash, vd.profile_hash, sizeof vd.profile_hash);
  __atomic_store_n(&card->magic, CARD_MAGIC, __ATOMIC_RELEASE);
  return card;
}

/* Maps only the first page of a locked file; unmap it with that length. */
static const struct card *look(int file) {
  off_t bytes = lseek(file, 0, SEEK_END);
  if (bytes < (off_t)CARD_STATE_OFFSET) return NULL;
  const struct card *card = mmap(NULL, sizeof *card, PROT_READ, MAP_SHARED, file, 0);
  if (card == MAP_FAILED) return NULL;
  if (card->magic == CARD_MAGIC && (off_t)card->bytes == bytes) return card;
  munmap((void *)(uintptr_t)card, sizeof *card);
  return NULL;
}

static int32_t living_process(const struct card *card) {
  for (uint32_t i = 0; i < GPU_MAX_OWNERS; i++)
    if (card_process_is_alive(&card->processes[i])) return card->processes[i].pid;
  return 0;
}

enum found { FOUND_USABLE, FOUND_UNUSED, FOUND_OTHER };

static enum found find_state(int file, uint64_t engine_bytes) {
  const struct card *card = look(file);
  if (card == NULL) return FOUND_UNUSED;
  enum found found = FOUND_OTHER;
  if (card->version != CARD_VERSION || card->pid_namespace != card_pid_namespace()) {
    vd_error("shared card \"%s\": %s is from another version of pump or another container; "
             "choose another name, or remove the file once no process uses it",
             own.name, own.path);
  } else if (living_process(card) == 0) {
    found = FOUND_UNUSED;
  } else if (strcmp(card->profile_hash, vd.profile_hash) != 0) {
    vd_error("shared card \"%s\": process %d uses profile \"%s\" (%s), this process has "
             "\"%s\" (%s); give both the same profile and settings, or another name",
             own.name, living_process(card), card->profile_name, card->profile_hash,
             vd.profile.name, vd.profile_hash);
  } else if (card->capacity_hash != shape(&own.capacity, engine_bytes)) {
    vd_error("shared card \"%s\": process %d uses another build of pump", own.name,
             living_process(card));
  } else {
    found = FOUND_USABLE;
  }
  munmap((void *)(uintptr_t)card, sizeof *card);
  return found;
}

/* Finds or creates the state in a locked file. *retry: an unused file was removed. */
static struct card *find(int file, uint64_t engine_bytes, bool *retry) {
  off_t bytes = lseek(file, 0, SEEK_END);
  *retry = false;
  if (bytes == 0) {
    card_remove_stale(own.path);
    return make(file, engine_bytes);
  }
  enum found found = find_state(file, engine_bytes);
  if (found == FOUND_USABLE) return map(file, CARD_STATE_OFFSET + engine_bytes);
  if (found == FOUND_OTHER) return NULL;
  *retry = unlink(own.path) == 0;
  if (!*retry) vd_error("shared card: cannot remove %s: %s", own.path, strerror(errno));
  return NULL;
}

static CUresult join_as_owner(int file, struct card *card) {
  own.card = card;
  vd.engine = state_of(card);
  own.owner = own.capacity.owners; /* none yet */
  own.look_ns = 0;
  vd_card_take();
  int owner = gpu_owner_join(vd.engine);
  if (owner >= 0 && make_room(file, (uint32_t)owner) != 0) {
    gpu_owner_leave(vd.engine, vd_now_ns(), &vd_hooks, (uint32_t)owner);
    owner = -1;
  } else if (owner < 0) {
    vd_error("shared card \"%s\": %u processes already share it, the maximum", own.name,
             own.capacity.owners);
  } else {
    card_process_self(&card->processes[owner]);
    card->joined++;
  }
  vd_card_give();
  if (owner < 0) {
    own.card = NULL;
    vd.engine = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  own.owner = (uint32_t)owner;
  return CUDA_SUCCESS;
}

CUresult vd_card_join(const struct gpu_capacity *capacity) {
  own.capacity = *capacity;
  own.capacity.owners = GPU_MAX_OWNERS;
  own.capacity.blocks = capacity->blocks * GPU_MAX_OWNERS;
  size_t engine_bytes = gpu_engine_bytes(&own.capacity);
  if (engine_bytes == 0 || card_path(own.name, own.path, sizeof own.path) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (;;) {
    int file = card_open(own.path);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    bool retry;
    struct card *card = find(file, engine_bytes, &retry);
    CUresult result = card == NULL ? CUDA_ERROR_INVALID_DEVICE : join_as_owner(file, card);
    if (!retry && result != CUDA_SUCCESS && card != NULL) munmap(card, card->bytes);
    card_close(file);
    if (retry) continue;
    if (result != CUDA_SUCCESS) return result;
    vd.shared = true;
    vd.owner = own.owner;
    vd.first_block = own.owner * capacity->blocks;
    vd_log("shared card \"%s\": owner %u", own.name, own.owner);
    return CUDA_SUCCESS;
  }
}

/* -- leaving -- */

static bool no_owner_left(void) {
  struct gpu_owner_info info;
  for (uint32_t i = 0; i < own.capacity.owners; i++)
    if (gpu_owner_get(vd.engine, i, &info) == GPU_OK) return false;
  return true;
}

/* Leaves the shared GPU. Both locks are held, and the process keeps its own: a thread
 * that is still in the driver waits for it forever. */
void vd_card_leave_locked(void) {
  own.card->processes[own.owner].pid = 0;
  gpu_owner_leave(vd.engine, vd_now_ns(), NULL, own.owner);
  vd_card_reclaim_locked();
  bool last = no_owner_left();
  vd_card_give();
  if (!last) return;
  int file = card_open_existing(own.path);
  if (file < 0) return;
  const struct card *card = look(file);
  /* Another process may have joined since, or a new file may have the same name. */
  if (card != NULL && living_process(card) == 0) unlink(own.path);
  if (card != NULL) munmap((void *)(uintptr_t)card, sizeof *card);
  card_close(file);
}

/* -- numbers for the report -- */

void vd_card_figures_locked(struct vd_card_figures *out) {
  struct gpu_owner_info info;
  vd_card_reclaim_locked(); /* the last check may be some milliseconds old */
  *out = (struct vd_card_figures){.name = own.name,
                                  .joined = own.card->joined,
                                  .died = own.card->died,
                                  .peak_bytes = own.card->peak_bytes,
                                  .check = gpu_check(vd.engine)};
  gpu_memory_get(vd.engine, &out->memory);
  gpu_counters_get(vd.engine, &out->counters);
  for (uint32_t i = 0; i < own.capacity.owners; i++)
    out->processes += gpu_owner_get(vd.engine, i, &info) == GPU_OK;
}

void vd_card_own_locked(struct gpu_owner_info *out) {
  if (gpu_owner_get(vd.engine, own.owner, out) != GPU_OK) *out = (struct gpu_owner_info){0};
}
