/* fuzz_host.c - host memory from arbitrary files in /proc and in the memory controllers
 * of cgroups (memory/host_memory.c). A container runtime may replace these files.
 *
 * The input has the texts of the files below, separated by zero bytes. For any input, all
 * levels are inside the hierarchy, and the reported headroom is at most the smallest one.
 */
#include "fuzz_folder.h"
#include "shim/memory/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const names[] = {
    "proc/meminfo",
    "proc/self/cgroup",
    "cgroup/memory.max",
    "cgroup/memory.current",
    "cgroup/memory.stat",
    "cgroup/a/memory.max",
    "cgroup/a/memory.current",
    "cgroup/memory/memory.limit_in_bytes",
    "cgroup/memory/memory.usage_in_bytes",
    "cgroup/memory/b/memory.limit_in_bytes",
    "cgroup/memory/b/memory.usage_in_bytes",
    "cgroup/unified/memory.max",
};
#define NAMES (sizeof names / sizeof *names)

bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)said, (void)level, (void)format;
  return false;
}

const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name) {
  (void)text;
  return name;
}

static void make_folders(void) {
  static const char *const folders[] = {"proc",          "proc/self",     "cgroup",
                                        "cgroup/a",      "cgroup/memory", "cgroup/memory/b",
                                        "cgroup/unified"};
  static bool made;
  for (size_t i = 0; !made && i < sizeof folders / sizeof *folders; i++)
    must(mkdir(in_folder("%s", folders[i]), 0755) == 0);
  if (!made) setenv("PUMP_PROC_ROOT", in_folder("proc"), 1);
  if (!made) setenv("PUMP_CGROUP_ROOT", in_folder("cgroup"), 1);
  made = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  make_folders();
  for (size_t i = 0; i < NAMES; i++) {
    const uint8_t *end = bytes != 0 ? memchr(data, 0, bytes) : NULL;
    size_t length = end != NULL ? (size_t)(end - data) : bytes;
    close(folder_file(in_folder("%s", names[i]), data, length));
    if (end != NULL) length++;
    data += length;
    bytes -= length;
  }
  struct pump_host_memory memory;
  must(pump_host_memory_read(&memory) == 0);
  must(memory.level_count <= PUMP_HOST_LEVELS);
  const char *root = in_folder("cgroup");
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < memory.level_count; i++) {
    const struct pump_host_level *level = &memory.levels[i];
    must(memchr(level->cgroup, 0, sizeof level->cgroup) != NULL);
    must(level->cgroup[0] == '\0' || strncmp(level->cgroup, root, strlen(root)) == 0);
    must(strstr(level->cgroup, "..") == NULL);
    must(level->headroom_bytes <= level->total_bytes);
    if (level->headroom_bytes < least) least = level->headroom_bytes;
  }
  must(memory.headroom_bytes <= least);
  return 0;
}
