/* claims_of_others.c - reads other processes' claims of host memory and their use of
 * GPUs.
 *
 * Any user can write anything into an entry. So reads are bounded and checked, and
 * entries need not even be files. host_claims.h has the format, host_claims.c the design.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host_claims.h"

#define NAMES_MOST 512 /* of a user's folder; if there are more, all slots are tried */
#define USERS_MOST 8192
#define DEVICES_MOST 64                /* of a job; further ones do not raise its limit */
#define DEVICE_BYTES_MOST (1ull << 50) /* so that false entries cannot overflow the sum */

/* Reads an open entry. Tries again, because its owner may be writing it. */
static bool read_sound(int file, struct claims_entry *entry) {
  for (int tries = 0; tries < 3; tries++)
    if (pread(file, entry, sizeof *entry, 0) == (ssize_t)sizeof *entry &&
        entry->magic == CLAIMS_ENTRY_MAGIC && entry->level_count <= PUMP_HOST_LEVELS &&
        entry->check == claims_checksum_entry(entry))
      return true;
  return false;
}

static bool read_sound_gpus(int file, struct claims_gpus *gpus) {
  for (int tries = 0; tries < 3; tries++)
    if (pread(file, gpus, sizeof *gpus, sizeof(struct claims_entry)) ==
            (ssize_t)sizeof *gpus &&
        gpus->magic == CLAIMS_GPUS_MAGIC && gpus->check == claims_checksum_gpus(gpus))
      return true;
  return false;
}

static bool read_sound_job(int file, struct claims_job *job) {
  for (int tries = 0; tries < 3; tries++)
    if (pread(file, job, sizeof *job, CLAIMS_JOB_OFFSET) == (ssize_t)sizeof *job &&
        job->magic == CLAIMS_JOB_MAGIC && job->check == claims_checksum_job(job))
      return true;
  return false;
}

static void add(struct pump_claims *c, const struct claims_entry *entry,
                uint64_t first_bytes, uid_t user) {
  uint64_t most = UINT64_MAX / 4 - c->bytes; /* false entries must not overflow sums */
  uint64_t bytes = entry->claimed_bytes < most ? entry->claimed_bytes : most;
  uint64_t pending = entry->pending_bytes < bytes ? entry->pending_bytes : bytes;
  c->bytes += bytes;
  c->pending_bytes += pending;
  if (entry->active) c->active_bytes += bytes;
  if (first_bytes > c->first_bytes) c->first_bytes = first_bytes;
  if (bytes > c->largest_bytes) {
    c->largest_bytes = bytes;
    c->largest_pid = entry->pid;
    c->largest_user = user;
    c->largest_is_near = entry->pid_namespace == claims_own_namespace();
  }
  c->processes++;
}

static void count(const struct claims_entry *entry, uid_t user,
                  const struct pump_host_memory *host,
                  struct pump_claims claims[PUMP_HOST_LEVELS]) {
  for (uint32_t i = 0; i < host->level_count; i++)
    for (uint32_t k = 0; k < entry->level_count; k++) {
      if (entry->levels[k].id != host->levels[i].id) continue;
      add(&claims[i], entry, entry->levels[k].first_bytes, user);
      break;
    }
}

/* The distinct GPUs that the processes of this job use. */
struct job_devices {
  uint32_t count;
  struct claims_device seen[DEVICES_MOST];
};

/* Adds the devices that are new; returns the bytes of their memory. */
static uint64_t add_devices(struct job_devices *to,
                            const struct claims_device devices[PUMP_MAX_DEVICES]) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    uint32_t at = 0;
    if (devices[i].total_bytes == 0) continue;
    while (at < to->count && memcmp(to->seen[at].uuid, devices[i].uuid, 16) != 0) at++;
    if (at < to->count || at == DEVICES_MOST) continue;
    to->seen[to->count++] = devices[i];
    bytes += devices[i].total_bytes < DEVICE_BYTES_MOST ? devices[i].total_bytes
                                                        : DEVICE_BYTES_MOST;
  }
  return bytes;
}

/* Parameters of a visit to the entries of others: sum claims, or collect GPUs. */
struct visit {
  const struct pump_host_memory *host;
  struct pump_claims *claims; /* NULL: collect GPUs */
  struct pump_job_claims *job;
  struct job_devices *devices; /* of this job */
  struct pump_neighbours *neighbours;
};

/* Adds the claim of an entry of this job. Any user may know a job's number, so only
 * entries of this user count. */
static void visit_job(const struct visit *visit, const struct claims_entry *entry, int file,
                      uid_t user) {
  struct claims_job job;
  if (pump_claims_job() == 0 || user != geteuid() || !read_sound_job(file, &job) ||
      job.job != pump_claims_job())
    return;
  add(&visit->job->claims, entry, job.first_bytes, user);
  visit->job->devices_bytes += add_devices(visit->devices, job.devices);
}

static void visit_claims(const struct visit *visit, int file, uid_t user) {
  struct claims_entry entry;
  if (!read_sound(file, &entry) || entry.claimed_bytes == 0 || !claims_entry_is_alive(file))
    return;
  count(&entry, user, visit->host, visit->claims);
  visit_job(visit, &entry, file, user);
}

static void visit_gpus(const struct visit *visit, int file) {
  struct claims_gpus gpus;
  struct pump_neighbours *to = visit->neighbours;
  if (!read_sound_gpus(file, &gpus) || !claims_entry_is_alive(file)) return;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES && to->count < PUMP_NEIGHBOURS_MOST; i++)
    if (gpus.gpus[i].found_bytes != 0) to->gpus[to->count++] = gpus.gpus[i];
}

/* Visits one entry. Returns -errno only if descriptors or memory are short, else 0. */
static int visit_entry(int where, int slot, uid_t user, const struct claims_location *mine,
                       const struct visit *visit) {
  char name[16];
  snprintf(name, sizeof name, "%d", slot);
  int file = openat(where, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return pump_is_shortage(errno) ? -errno : 0;
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == user &&
      !(mine->path[0] != '\0' && claims_is_at(mine, &status))) {
    if (visit->claims != NULL)
      visit_claims(visit, file, user);
    else
      visit_gpus(visit, file);
  }
  close(file);
  return 0;
}

/* Parses a canonical decimal number of at most `most`; false for any other name. */
static bool is_number(const char *name, unsigned long most, unsigned long *number) {
  char *end;
  if (name[0] < '0' || name[0] > '9' || (name[0] == '0' && name[1] != '\0')) return false;
  errno = 0;
  *number = strtoul(name, &end, 10);
  return errno == 0 && *end == '\0' && *number <= most;
}

/* Finds the slots to read: those with a file, or all if the folder has too many names. */
static void find_slots(DIR *files, bool slots[CLAIMS_SLOTS]) {
  const struct dirent *each;
  unsigned long slot;
  memset(slots, 0, CLAIMS_SLOTS * sizeof *slots);
  for (int left = NAMES_MOST; (each = readdir(files)) != NULL; left--) {
    if (left == 0) {
      memset(slots, 1, CLAIMS_SLOTS * sizeof *slots);
      return;
    }
    if (is_number(each->d_name, CLAIMS_SLOTS - 1, &slot)) slots[slot] = true;
  }
}

static int visit_user(int where, const char *name, uid_t user,
                      const struct claims_location *mine, const struct visit *visit) {
  int number =
      openat(where, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (number < 0) return pump_is_shortage(errno) ? -errno : 0;
  struct stat status;
  DIR *files =
      fstat(number, &status) == 0 && status.st_uid == user ? fdopendir(number) : NULL;
  if (files == NULL) {
    int error = errno;
    close(number);
    return pump_is_shortage(error) ? -error : 0;
  }
  bool slots[CLAIMS_SLOTS];
  int error = 0;
  find_slots(files, slots);
  for (int slot = 0; slot < CLAIMS_SLOTS && error == 0; slot++)
    if (slots[slot]) error = visit_entry(number, slot, user, mine, visit);
  closedir(files);
  return error;
}

static int visit_all(const struct visit *visit) {
  const char *where = claims_folder();
  if (where == NULL) return 0;
  DIR *users = opendir(where);
  if (users == NULL) return -errno;
  const struct dirent *each;
  const struct claims_location mine = claims_own_location();
  int error = 0, left = USERS_MOST;
  while (error == 0 && (each = readdir(users)) != NULL) {
    unsigned long user;
    if (!is_number(each->d_name, (uid_t)-2, &user)) continue;
    error = left-- > 0 ? visit_user(dirfd(users), each->d_name, (uid_t)user, &mine, visit)
                       : -E2BIG;
  }
  closedir(users);
  return error;
}

int pump_claims_read(const struct pump_host_memory *host,
                     struct pump_claims claims[PUMP_HOST_LEVELS],
                     struct pump_job_claims *job) {
  struct claims_device own[PUMP_MAX_DEVICES];
  struct job_devices devices = {0};
  memset(claims, 0, PUMP_HOST_LEVELS * sizeof *claims);
  memset(job, 0, sizeof *job);
  claims_own_devices(own);
  add_devices(&devices, own);
  return visit_all(
      &(struct visit){.host = host, .claims = claims, .job = job, .devices = &devices});
}

int pump_claims_read_gpus(struct pump_neighbours *neighbours) {
  return visit_all(&(struct visit){.neighbours = neighbours});
}
