/* fuzz_ledger.c - arbitrary entries of the host ledger, which any user may write
 * (host_claims.c).
 *
 * The input has entries: four bytes (slot, flags, length) and then the contents. The
 * result must equal the result of a simple reader of each entry, and no sum may overflow.
 */
#include "fuzz_folder.h"
#include "shim/memory/claims_of_others.c"
#include "shim/memory/host_claims.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define ENTRIES_MOST 12

enum { LOCKED = 1, SUMMED = 2, LINKED = 4, PIPED = 8 };

struct pump_shm *pump_shm;

bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)said, (void)level, (void)format;
  return false;
}

const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name) {
  (void)text;
  return name;
}

bool pump_block_write_signals(struct pump_write_signals *signals) {
  (void)signals;
  return true;
}

void pump_restore_write_signals(const struct pump_write_signals *signals) {
  (void)signals;
}

bool pump_log_is_deferring(void) {
  return true;
}

bool pump_device_read_use(uint32_t device, struct pump_gpu_use *card) {
  (void)device, (void)card;
  return false;
}

#define JOB "51"

static const struct pump_host_memory host = {
    .level_count = 2, .levels = {{.id = 1}, {.id = (uint64_t)1 << 63 | 2}}};

static struct pump_claims wanted[PUMP_HOST_LEVELS];
static uint32_t cards_wanted, of_job_wanted;

static bool is_of_job(const uint8_t *content, size_t length) {
  struct claims_job job;
  if (length < CLAIMS_JOB_OFFSET + sizeof job) return false;
  memcpy(&job, content + CLAIMS_JOB_OFFSET, sizeof job);
  return job.magic == CLAIMS_JOB_MAGIC && job.check == claims_checksum_job(&job) &&
         job.job == pump_claims_job();
}

static void want_cards(const uint8_t *content, size_t length) {
  struct claims_gpus gpus;
  if (length < sizeof(struct claims_entry) + sizeof gpus) return;
  memcpy(&gpus, content + sizeof(struct claims_entry), sizeof gpus);
  if (gpus.magic != CLAIMS_GPUS_MAGIC || gpus.check != claims_checksum_gpus(&gpus)) return;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++)
    cards_wanted += gpus.gpus[i].found_bytes != 0;
}

static void want(const uint8_t *content, size_t length) {
  struct claims_entry entry;
  if (length < sizeof entry) return;
  memcpy(&entry, content, sizeof entry);
  if (entry.magic != CLAIMS_ENTRY_MAGIC || entry.check != claims_checksum_entry(&entry))
    return;
  if (entry.level_count > PUMP_HOST_LEVELS || entry.claimed_bytes == 0) return;
  of_job_wanted += is_of_job(content, length);
  for (uint32_t i = 0; i < host.level_count; i++)
    for (uint32_t k = 0; k < entry.level_count; k++)
      if (entry.levels[k].id == host.levels[i].id) {
        wanted[i].processes++;
        if (entry.levels[k].first_bytes > wanted[i].first_bytes)
          wanted[i].first_bytes = entry.levels[k].first_bytes;
        break;
      }
}

/* Writes one entry; returns a descriptor to close afterwards, -1 for none. */
static int put(uint8_t slot, uint8_t flags, uint8_t *content, size_t length) {
  const char *path = in_folder("%u/%u", (unsigned)geteuid(), slot);
  if ((flags & LINKED) != 0) {
    must(symlink("0", path) == 0);
    return -1;
  }
  if ((flags & PIPED) != 0) {
    must(mkfifo(path, 0644) == 0);
    return -1;
  }
  if ((flags & SUMMED) != 0 && length >= sizeof(struct claims_entry)) {
    struct claims_entry entry;
    memcpy(&entry, content, sizeof entry);
    entry.magic = CLAIMS_ENTRY_MAGIC;
    entry.check = claims_checksum_entry(&entry);
    memcpy(content, &entry, sizeof entry);
  }
  if ((flags & SUMMED) != 0 &&
      length >= sizeof(struct claims_entry) + sizeof(struct claims_gpus)) {
    struct claims_gpus gpus;
    memcpy(&gpus, content + sizeof(struct claims_entry), sizeof gpus);
    gpus.magic = CLAIMS_GPUS_MAGIC;
    gpus.check = claims_checksum_gpus(&gpus);
    memcpy(content + sizeof(struct claims_entry), &gpus, sizeof gpus);
  }
  if ((flags & SUMMED) != 0 && length >= CLAIMS_JOB_OFFSET + sizeof(struct claims_job)) {
    struct claims_job job;
    memcpy(&job, content + CLAIMS_JOB_OFFSET, sizeof job);
    job.magic = CLAIMS_JOB_MAGIC;
    job.check = claims_checksum_job(&job);
    memcpy(content + CLAIMS_JOB_OFFSET, &job, sizeof job);
  }
  int file = folder_file(path, content, length);
  if ((flags & LOCKED) != 0) {
    must(lock_whole(file) == 0);
    want(content, length);
    want_cards(content, length);
  }
  return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static uint8_t content[UINT16_MAX];
  struct input input = {data, bytes};
  int files[ENTRIES_MOST];
  uint8_t slots[ENTRIES_MOST];
  uint32_t count = 0;
  bool taken[CLAIMS_SLOTS] = {false};
  const char *own_folder = in_folder("%u", (unsigned)geteuid());
  if (mkdir(own_folder, 0755) == 0) {
    setenv("PUMP_LEDGER", folder_root, 1);
    setenv("PUMP_JOB", JOB, 1);
    must(pump_claims_start());
  }
  memset(wanted, 0, sizeof wanted);
  cards_wanted = of_job_wanted = 0;
  while (input.left > 0 && count < ENTRIES_MOST) {
    uint8_t head[4];
    take(&input, head, sizeof head);
    size_t length = (size_t)head[2] << 8 | head[3];
    take(&input, content, length);
    if (taken[head[0]]) continue;
    taken[head[0]] = true;
    slots[count] = head[0];
    files[count++] = put(head[0], head[1], content, length);
  }
  struct pump_claims claims[PUMP_HOST_LEVELS];
  struct pump_job_claims job;
  must(pump_claims_read(&host, claims, &job) == 0);
  must(job.claims.processes == of_job_wanted);
  must(job.claims.bytes <= UINT64_MAX / 4 && job.devices_bytes <= UINT64_MAX / 4);
  for (uint32_t i = 0; i < PUMP_HOST_LEVELS; i++) {
    must(claims[i].processes == wanted[i].processes);
    must(claims[i].first_bytes == wanted[i].first_bytes);
    must(claims[i].bytes <= UINT64_MAX / 4);
    must(claims[i].pending_bytes <= claims[i].bytes &&
         claims[i].active_bytes <= claims[i].bytes);
    must(claims[i].largest_bytes <= claims[i].bytes);
    must((claims[i].bytes != 0) == (claims[i].processes != 0));
  }
  struct pump_neighbours neighbours = {0};
  must(pump_claims_read_gpus(&neighbours) == 0);
  must(neighbours.count == cards_wanted);
  for (uint32_t i = 0; i < count; i++) {
    if (files[i] >= 0) close(files[i]);
    must(unlink(in_folder("%u/%u", (unsigned)geteuid(), slots[i])) == 0);
  }
  return 0;
}
