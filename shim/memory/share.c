/* share.c - computes this process's share of a GPU that others under pump use too.
 *
 * Free memory is not a good measure: the driver counts all that it keeps for managed
 * memory as used, even unused chunks (docs/decisions/0041-shares.md). So each process
 * publishes in the ledger (host_claims.c) what it needs on its GPUs. It takes the largest
 * share that leaves each other process its need, or as much as itself. All use the same
 * numbers, so together they take no more than the GPU has. If a process needs less, or
 * gives memory up, the others take that memory when they next read the ledger.
 *
 * Budgets that a user or a service has requested do not change; they bound the need that
 * their process publishes.
 *
 * PUMP_NEIGHBOURS=none: other processes cannot use this job's GPUs, which are virtual and
 * its own.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"

/* A smaller need counts only after this time, and after twice this time at the latest:
 * programs need less between two iterations. */
#define NEED_NS 8000000000u
/* Needs are published in this many steps of the GPU's memory, so that budgets do not
 * follow each allocation. */
#define STEPS 64

/* Only for the link thread. The largest needs of this period and of the one before it. */
static struct {
  uint64_t begin_ns, now_bytes[PUMP_MAX_DEVICES], before_bytes[PUMP_MAX_DEVICES];
} needs;
static struct pump_gpu_use published[PUMP_MAX_DEVICES];
static bool alone; /* other processes cannot use this job's GPUs */

void pump_share_start(void) {
  const char *text = getenv("PUMP_NEIGHBOURS");
  alone = text != NULL && strcmp(text, "none") == 0;
}

int pump_neighbours_read(struct pump_neighbours *neighbours) {
  neighbours->count = 0;
  return alone ? 0 : pump_claims_read_gpus(neighbours);
}

uint32_t pump_neighbours_count(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t *found_bytes) {
  uint32_t count = 0;
  *found_bytes = 0;
  for (uint32_t i = 0; i < neighbours->count; i++) {
    const struct pump_gpu_use *gpu = &neighbours->gpus[i];
    if (memcmp(gpu->uuid, uuid, sizeof gpu->uuid) != 0) continue;
    if (gpu->found_bytes > *found_bytes) *found_bytes = gpu->found_bytes;
    count++;
  }
  return count;
}

/* Returns what `gpu` takes if each process may have `level`; at most `most`, because
 * published numbers may be false. */
static uint64_t taken(const struct pump_gpu_use *gpu, uint64_t level, uint64_t most) {
  uint64_t bytes = gpu->need_bytes < level ? gpu->need_bytes : level;
  if (bytes < gpu->plain_bytes) bytes = gpu->plain_bytes;
  return bytes < most ? bytes : most;
}

static bool fits(const struct pump_neighbours *neighbours, const uint8_t uuid[16],
                 uint64_t level, uint64_t bytes) {
  uint64_t sum = level;
  for (uint32_t i = 0; i < neighbours->count && sum <= bytes; i++)
    if (memcmp(neighbours->gpus[i].uuid, uuid, 16) == 0)
      sum += taken(&neighbours->gpus[i], level, bytes);
  return sum <= bytes;
}

uint64_t pump_neighbours_share(const struct pump_neighbours *neighbours,
                               const uint8_t uuid[16], uint64_t bytes) {
  uint64_t share = 0;
  if (fits(neighbours, uuid, bytes, bytes)) return bytes;
  for (uint64_t step = 1ull << 62; step != 0; step /= 2)
    if (step <= bytes - share && fits(neighbours, uuid, share + step, bytes)) share += step;
  return share;
}

static uint64_t largest(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* Describes this process's devices for its ledger entry. */
static void describe(struct pump_gpu_use gpus[PUMP_MAX_DEVICES]) {
  uint64_t now_ns = pump_now_ns();
  bool next = now_ns - needs.begin_ns > NEED_NS;
  if (next) needs.begin_ns = now_ns;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct pump_gpu_use *gpu = &gpus[i];
    memset(gpu, 0, sizeof *gpu);
    if (!pump_device_read_use(i, gpu)) continue;
    uint64_t step = PUMP_LOAD(&pump_shm->devices[i].total_bytes) / STEPS + 1;
    if (next) {
      needs.before_bytes[i] = needs.now_bytes[i];
      needs.now_bytes[i] = 0;
    }
    needs.now_bytes[i] = largest(needs.now_bytes[i], gpu->need_bytes);
    gpu->need_bytes = largest(needs.now_bytes[i], needs.before_bytes[i]);
    gpu->need_bytes = (gpu->need_bytes + step - 1) / step * step;
  }
}

uint32_t pump_share_refresh(bool fresh) {
  if (alone || pump_shm == NULL) return 0;
  struct pump_gpu_use gpus[PUMP_MAX_DEVICES];
  describe(gpus);
  if (fresh) memset(published, 0, sizeof published); /* the entry is new */
  if (memcmp(published, gpus, sizeof gpus) != 0 &&
      pump_claims_publish(gpus, PUMP_MAX_DEVICES) == 0)
    memcpy(published, gpus, sizeof gpus);
  struct pump_neighbours neighbours;
  /* If entries cannot be read at the moment, their processes still count. */
  return pump_neighbours_read(&neighbours) == 0 ? pump_device_share(&neighbours) : 0;
}

void pump_share_fork_child(void) {
  memset(&needs, 0, sizeof needs);
  memset(published, 0, sizeof published);
}
