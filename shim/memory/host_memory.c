/* host_memory.c - computes how many bytes of host memory this process may still take.
 *
 * Reads /proc/meminfo and the memory controller of every cgroup above this process. These
 * are version 1, version 2 or both at once (hybrid hosts mount v1 controllers next to an
 * empty v2 tree). This file decides nothing (limit.c does).
 *
 * The free memory of a level is limit - usage + inactive_file: the kernel reclaims page
 * cache that was not used recently before it kills a process. Otherwise a training job that
 * has just read its data set would look full. In a container the path of /proc/self/cgroup
 * may not exist under the mount, so every ancestor up to the mount's root is tried, and
 * missing directories are skipped.
 *
 * The reserve is for the program's own host memory and for other programs: 5 % of a
 * level's total, at least 512 MiB and at most 4 GiB.
 *
 * PUMP_PROC_ROOT and PUMP_CGROUP_ROOT replace /proc and /sys/fs/cgroup, only for tests.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"

#define PATH_BYTES 1024
#define TEXT_BYTES 8192
#define UNLIMITED ((uint64_t)1 << 62) /* v1 writes about 2^63 for "no limit" */

/* errno of a file that could not be opened because descriptors or memory are short.
 * Guarded, like everything in this file, by the lock of limit.c. */
static int shortage;

int pump_text_read(const char *path, char *text, size_t capacity) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -errno;
  size_t used = 0;
  ssize_t n;
  while (used < capacity - 1 && (n = read(file, text + used, capacity - 1 - used)) > 0)
    used += (size_t)n;
  close(file);
  text[used] = '\0';
  return used > 0 ? 0 : -ENODATA;
}

static bool read_text(const char *path, char text[TEXT_BYTES]) {
  int error = -pump_text_read(path, text, TEXT_BYTES);
  if (pump_is_shortage(error)) shortage = error;
  return error == 0;
}

/* Finds the number after `key` at the start of a line; returns false if there is none. */
static bool find_number(const char *text, const char *key, uint64_t *value) {
  size_t length = strlen(key);
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) != 0) continue;
    if (line[length] != ' ' && line[length] != ':') continue;
    const char *digits = line + length + 1;
    while (*digits == ' ') digits++;
    char *end;
    *value = strtoull(digits, &end, 10);
    return end != digits;
  }
  return false;
}

static bool join(char path[PATH_BYTES], const char *directory, const char *name) {
  int n = snprintf(path, PATH_BYTES, "%s/%s", directory, name);
  return n > 0 && n < PATH_BYTES;
}

/* Reads the number in a file; "max" reads as UNLIMITED. */
static bool read_number(const char *directory, const char *name, uint64_t *value) {
  char path[PATH_BYTES], text[TEXT_BYTES];
  if (!join(path, directory, name) || !read_text(path, text)) return false;
  if (strncmp(text, "max", 3) == 0) {
    *value = UNLIMITED;
    return true;
  }
  char *end;
  *value = strtoull(text, &end, 10);
  return end != text;
}

static uint64_t reserve_of(uint64_t total_bytes) {
  const uint64_t mib = 1u << 20;
  uint64_t reserve = total_bytes / 20;
  if (reserve < 512 * mib) reserve = 512 * mib;
  if (reserve > 4096 * mib) reserve = 4096 * mib;
  return reserve;
}

/* Returns an id that is the same in all processes of a machine, whatever paths their
 * containers use. The machine itself has id 0, or in a test its folder's id. */
static uint64_t id_of(const char *cgroup) {
  struct stat status;
  const char *folder = cgroup[0] == '\0' ? getenv("PUMP_PROC_ROOT") : cgroup;
  if (folder == NULL) return 0;
  if (stat(folder, &status) != 0) return UINT64_MAX;
  return (uint64_t)status.st_dev << 40 ^ (uint64_t)status.st_ino ^ (1ull << 63);
}

/* Adds a level. If the table is full, the level with the most headroom is left out. */
static void take_level(struct pump_host_memory *memory, uint64_t total, uint64_t left,
                       const char *cgroup) {
  uint64_t reserve = reserve_of(total);
  if (left > total) left = total; /* possible if a container has its own /proc/meminfo */
  uint64_t headroom = left > reserve ? left - reserve : 0;
  struct pump_host_level *level = &memory->levels[0];
  if (memory->level_count < PUMP_HOST_LEVELS) {
    level = &memory->levels[memory->level_count++];
  } else {
    for (uint32_t i = 1; i < PUMP_HOST_LEVELS; i++)
      if (memory->levels[i].headroom_bytes > level->headroom_bytes)
        level = &memory->levels[i];
    if (level->headroom_bytes <= headroom) return;
  }
  level->id = id_of(cgroup);
  level->headroom_bytes = headroom;
  level->total_bytes = total;
  level->reserve_bytes = reserve;
  snprintf(level->cgroup, sizeof level->cgroup, "%s", cgroup);
  if (headroom < memory->headroom_bytes) memory->headroom_bytes = headroom;
}

/* Adds the limit of one directory, of either version; does nothing if no limit is set. */
static void take_directory(struct pump_host_memory *memory, const char *directory) {
  static const char *const names[2][3] = {
      {"memory.max", "memory.current", "inactive_file"},
      {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
  };
  for (int version = 0; version < 2; version++) {
    uint64_t limit, usage, reclaimable = 0;
    if (!read_number(directory, names[version][0], &limit)) continue;
    if (limit >= UNLIMITED) continue;
    if (!read_number(directory, names[version][1], &usage)) continue;
    char path[PATH_BYTES], text[TEXT_BYTES];
    if (join(path, directory, "memory.stat") && read_text(path, text))
      find_number(text, names[version][2], &reclaimable);
    if (reclaimable > usage) reclaimable = usage;
    usage -= reclaimable;
    take_level(memory, limit, limit > usage ? limit - usage : 0, directory);
  }
}

/* Adds every level of one hierarchy, from the process's own group up to the mount. */
static void take_hierarchy(struct pump_host_memory *memory, const char *mount,
                           const char *group) {
  char directory[PATH_BYTES];
  int n = snprintf(directory, sizeof directory, "%s%s", mount, group);
  if (n < 0 || n >= (int)sizeof directory || strstr(group, "..") != NULL)
    n = snprintf(directory, sizeof directory, "%s", mount);
  if (n < 0 || n >= (int)sizeof directory) return;
  size_t least = strlen(mount), length = (size_t)n;
  while (length > least && directory[length - 1] == '/') directory[--length] = '\0';
  for (;;) {
    take_directory(memory, directory);
    if (length <= least) return;
    while (length > least && directory[length - 1] != '/') length--;
    while (length > least && directory[length - 1] == '/') length--;
    directory[length] = '\0';
  }
}

/* Returns whether `list` of controllers, separated by commas, includes memory. */
static bool names_memory(const char *list, size_t length) {
  static const char word[] = "memory";
  size_t size = sizeof word - 1;
  for (const char *at = list; at + size <= list + length;) {
    const char *end = memchr(at, ',', (size_t)(list + length - at));
    size_t part = end != NULL ? (size_t)(end - at) : (size_t)(list + length - at);
    if (part == size && memcmp(at, word, size) == 0) return true;
    if (end == NULL) return false;
    at = end + 1;
  }
  return false;
}

/* Adds all levels. `text` is /proc/self/cgroup: lines of "id:controllers:path". */
static void take_cgroups(struct pump_host_memory *memory, const char *root, char *text) {
  char mount[PATH_BYTES], *next = NULL;
  for (char *line = strtok_r(text, "\n", &next); line != NULL;
       line = strtok_r(NULL, "\n", &next)) {
    char *controllers = strchr(line, ':');
    if (controllers == NULL) continue;
    char *group = strchr(++controllers, ':');
    if (group == NULL) continue;
    size_t length = (size_t)(group++ - controllers);
    if (length == 0) {
      take_hierarchy(memory, root, group);
      if (join(mount, root, "unified")) take_hierarchy(memory, mount, group);
    } else if (names_memory(controllers, length)) {
      if (join(mount, root, "memory")) take_hierarchy(memory, mount, group);
    }
  }
}

int pump_host_memory_read(struct pump_host_memory *memory) {
  shortage = 0;
  memory->level_count = 0;
  memory->headroom_bytes = UINT64_MAX;
  const char *proc = getenv("PUMP_PROC_ROOT"), *cgroup = getenv("PUMP_CGROUP_ROOT");
  if (proc == NULL) proc = "/proc";
  if (cgroup == NULL) cgroup = "/sys/fs/cgroup";
  char path[PATH_BYTES], text[TEXT_BYTES];
  uint64_t total_kib, available_kib;
  if (join(path, proc, "meminfo") && read_text(path, text) &&
      find_number(text, "MemTotal", &total_kib) &&
      find_number(text, "MemAvailable", &available_kib))
    take_level(memory, total_kib << 10, available_kib << 10, "");
  if (join(path, proc, "self/cgroup") && read_text(path, text))
    take_cgroups(memory, cgroup, text);
  if (memory->level_count == 0 && shortage == 0) {
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "%s: meminfo has no MemAvailable, so pump cannot protect host memory; "
                  "set pump-run --limit",
                  PUMP_QUOTED(proc));
  }
  return -shortage;
}
