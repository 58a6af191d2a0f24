/* rules.c - decides which allocations stay device memory: by size, by calling library,
 * and by a library's earlier requests. It also decides which libraries see which memory
 * is managed. It allocates nothing and hooks nothing.
 *
 * PUMP_KEEP_DEVICE is a list separated by commas, as pump-run writes it:
 *   `below=BYTES`     Allocations of fewer bytes.
 *   `library=NAME`    Allocations by libraries whose file name begins with NAME.
 *   `ipc`             Allocations by a library that has requested a handle that converted
 *                     memory cannot have, up to an allowance that each handle renews.
 *   `stream-ordered`  Allocations in stream order: the driver's own pools serve them.
 *   `vmm`             Memory of virtual memory management calls: the driver serves them.
 *
 * DESIGN. With a shared libcudart the caller of the driver is always cudart, so pump
 * searches the stack for the library. It looks at no more than FRAMES return addresses,
 * and only for allocations of whole blocks. The unwinder is the C library's. It loads
 * libgcc_s at the first walk, which CUDA programs have loaded long before.
 *
 * The addresses of the libraries are cached, and valid while the loader's counts of loads
 * and unloads do not change. The cache is read and written inside dl_iterate_phdr, which
 * holds the loader's own lock. If the cache had its own lock, a thread in a library's
 * constructor could wait for that lock while its holder waits for the loader.
 */
#include "rules.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/glibc.h"
#include "shim/base/settings.h"
#include "shim/driver/driver.h"

#define FRAMES 24
#define NAMES 16
#define NAME_BYTES 64
#define SPANS 32
#define ALLOWANCE_FACTOR 4             /* times the refused bytes */
#define ALLOWANCE_LEAST_BYTES 67108864 /* 64 MiB */

/* Libraries that register device memory with network cards, which fails for managed
 * memory. They have another path for managed memory (UCX, Open MPI and libfabric query
 * IS_MANAGED). libucm is not one of them: it queries only on behalf of libuct. */
static const char *const transports[] = {"libuct",      "libucp",    "libucs",    "libmpi",
                                         "libopen-pal", "libfabric", "libibverbs"};

#define USE_KEPT 1u    /* its allocations stay device memory */
#define USE_MANAGED 2u /* sees which memory is managed */
#define USE_LEARNED 4u /* like USE_KEPT, within the allowance */

struct span {
  uintptr_t begin, end;
  uint32_t uses;
};

/* Written by pump_rules_reset, and later only inside dl_iterate_phdr. */
static struct {
  uint64_t below_bytes;
  bool ipc, stream_ordered, vmm;
  uint32_t name_count, learned_count;
  char names[NAMES][NAME_BYTES];
  uintptr_t learned[NAMES]; /* start addresses of libraries */
  /* Bytes that learned libraries may still allocate as device memory, and the value that
   * each handle resets them to; atomic. */
  uint64_t allowance_bytes, allowance_full_bytes;
  unsigned long long loads, unloads;
  bool current; /* the spans match these counts */
  uint32_t span_count;
  struct span spans[SPANS];
} rules;

/* ---- configuration -------------------------------------------------------- */

static void add_name(const char *name, size_t length) {
  if (rules.name_count == NAMES || length == 0 || length >= NAME_BYTES) return;
  memcpy(rules.names[rules.name_count], name, length);
  rules.names[rules.name_count++][length] = '\0';
}

static bool is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && strncmp(text, word, length) == 0;
}

static bool add_rule(const char *text, size_t length) {
  static const char below[] = "below=", library[] = "library=";
  if (strncmp(text, below, sizeof below - 1) == 0) {
    char *end;
    uint64_t bytes = strtoull(text + sizeof below - 1, &end, 10);
    if (end != text + length || length < sizeof below) return false;
    rules.below_bytes = bytes;
    return true;
  }
  if (strncmp(text, library, sizeof library - 1) == 0) {
    if (length < sizeof library || length - (sizeof library - 1) >= NAME_BYTES)
      return false;
    add_name(text + sizeof library - 1, length - (sizeof library - 1));
    return true;
  }
  bool ipc = is_word(text, length, "ipc");
  bool ordered = is_word(text, length, "stream-ordered");
  bool vmm = is_word(text, length, "vmm");
  rules.ipc |= ipc;
  rules.stream_ordered |= ordered;
  rules.vmm |= vmm;
  return length == 0 || ipc || ordered || vmm;
}

void pump_rules_reset(void) {
  memset(&rules, 0, sizeof rules);
  const char *text = pump_setting("PUMP_KEEP_DEVICE");
  while (text != NULL && *text != '\0') {
    size_t length = strcspn(text, ",");
    if (!add_rule(text, length)) {
      char rule[PUMP_QUOTED_BYTES];
      snprintf(rule, sizeof rule, "%.*s", (int)length, text);
      pump_log(PUMP_LOG_WARNING,
               "PUMP_KEEP_DEVICE: ignoring unknown rule %s; rules are below=BYTES, "
               "library=NAME, ipc, stream-ordered and vmm (set by pump-run --keep-device)",
               PUMP_QUOTED(rule));
    }
    text += length + (text[length] == ',');
  }
}

/* ---- addresses of libraries ----------------------------------------------- */

static struct span span_of(const struct dl_phdr_info *info) {
  struct span span = {UINTPTR_MAX, 0, 0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD) continue;
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (begin < span.begin) span.begin = begin;
    if (begin + part->p_memsz > span.end) span.end = begin + part->p_memsz;
  }
  return span;
}

static const char *file_name(const struct dl_phdr_info *info) {
  const char *path = info->dlpi_name == NULL ? "" : info->dlpi_name;
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static bool begins_with(const char *name, const char *prefix) {
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

static uint32_t uses_of(const char *name, const struct span *span) {
  uint32_t uses = 0;
  for (uint32_t i = 0; i < rules.name_count; i++)
    if (begins_with(name, rules.names[i])) uses |= USE_KEPT;
  for (uint32_t i = 0; i < rules.learned_count; i++)
    if (rules.learned[i] == span->begin) uses |= USE_LEARNED;
  for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
    if (begins_with(name, transports[i])) uses |= USE_MANAGED;
  return uses;
}

struct visit {
  bool begun;
  uint32_t count;
  struct span spans[SPANS];
};

/* Collects the spans of libraries that have uses; stops at once if the cache is valid. */
static int visit_object(struct dl_phdr_info *info, size_t size, void *data) {
  struct visit *visit = data;
  (void)size;
  if (!visit->begun) {
    visit->begun = true;
    bool current =
        rules.current && rules.loads == info->dlpi_adds && rules.unloads == info->dlpi_subs;
    if (!current) {
      rules.span_count = 0;
      rules.loads = info->dlpi_adds;
      rules.unloads = info->dlpi_subs;
      rules.current = true;
    }
    visit->count = rules.span_count;
    memcpy(visit->spans, rules.spans, rules.span_count * sizeof rules.spans[0]);
    if (current) return 1;
  }
  struct span span = span_of(info);
  span.uses = uses_of(file_name(info), &span);
  if (rules.span_count < SPANS && span.uses != 0) {
    rules.spans[rules.span_count++] = span;
    visit->spans[visit->count++] = span;
  }
  return 0;
}

static bool within(const struct span *span, const void *address) {
  return (uintptr_t)address >= span->begin && (uintptr_t)address < span->end;
}

/* Returns which uses of `use` the libraries on the stack have. */
static uint32_t uses_of_callers(uint32_t use) {
  struct visit visit = {.begun = false};
  void *frames[FRAMES];
  uint32_t spans = 0, found = 0;
  dl_iterate_phdr(visit_object, &visit);
  for (uint32_t s = 0; s < visit.count; s++)
    if (visit.spans[s].uses & use) visit.spans[spans++] = visit.spans[s];
  if (spans == 0) return 0;
  int count = backtrace(frames, FRAMES);
  for (int i = 0; i < count; i++)
    for (uint32_t s = 0; s < spans; s++)
      if (within(&visit.spans[s], frames[i])) found |= visit.spans[s].uses & use;
  return found;
}

bool pump_rule_keeps_caller(void) {
  return uses_of_callers(USE_KEPT | USE_LEARNED) != 0;
}

bool pump_rule_sees_managed(void) {
  return uses_of_callers(USE_MANAGED) != 0;
}

/* Takes `bytes` of the allowance; false if less is left. */
static bool take_allowance(uint64_t bytes) {
  uint64_t left = __atomic_load_n(&rules.allowance_bytes, __ATOMIC_RELAXED);
  do {
    if (left < bytes) return false;
  } while (!__atomic_compare_exchange_n(&rules.allowance_bytes, &left, left - bytes, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return true;
}

void pump_rule_handle_given(void) {
  uint64_t full = __atomic_load_n(&rules.allowance_full_bytes, __ATOMIC_RELAXED);
  if (full != 0) __atomic_store_n(&rules.allowance_bytes, full, __ATOMIC_RELAXED);
}

bool pump_rule_stream_ordered(void) {
  return rules.stream_ordered;
}

bool pump_rule_by_size(size_t bytes) {
  return bytes < rules.below_bytes;
}

enum pump_rule pump_rule_for(size_t bytes) {
  if (pump_rule_by_size(bytes)) return PUMP_RULE_SIZE;
  if (rules.name_count == 0 && __atomic_load_n(&rules.learned_count, __ATOMIC_RELAXED) == 0)
    return PUMP_RULE_NONE;
  uint32_t uses = uses_of_callers(USE_KEPT | USE_LEARNED);
  if (uses & USE_KEPT) return PUMP_RULE_LIBRARY;
  return uses != 0 && take_allowance(bytes) ? PUMP_RULE_LIBRARY : PUMP_RULE_NONE;
}

bool pump_rule_mapped(void) {
  return rules.vmm || pump_rule_for(SIZE_MAX) == PUMP_RULE_LIBRARY;
}

/* ---- the calling library ------------------------------------------------------------ */

/* Returns whether the file may be between the calling library and us on the stack. */
static bool is_runtime(const char *name) {
  static const char *const between[] = {"libpump.", "libcuda.", "libcudart.", "libc.",
                                        "libc-2."};
  for (size_t i = 0; i < sizeof between / sizeof between[0]; i++)
    if (begins_with(name, between[i])) return true;
  return false;
}

struct search {
  void *frames[FRAMES];
  int frame_count;
  int nearest; /* nearest matching frame yet */
  bool first, learn, learned;
  struct span span;
  char name[NAME_BYTES];
};

/* Finds the object with the frame nearest to us; called once for each object. */
static int search_object(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  (void)size;
  const char *name = file_name(info);
  struct span span = span_of(info);
  bool program = search->first && name[0] == '\0';
  search->first = false;
  if (is_runtime(name) || (name[0] == '\0' && !program)) return 0;
  for (int i = 0; i < search->nearest; i++) {
    if (!within(&span, search->frames[i])) continue;
    search->nearest = i;
    search->span = span;
    strncpy(search->name, program ? "the program" : name, sizeof search->name - 1);
  }
  return 0;
}

static struct search search_caller(void) {
  struct search search = {.first = true, .name = "the program"};
  search.frame_count = backtrace(search.frames, FRAMES);
  search.nearest = search.frame_count;
  dl_iterate_phdr(search_object, &search);
  return search;
}

void pump_rule_caller(char *name, size_t capacity) {
  struct search search = search_caller();
  if (capacity != 0) snprintf(name, capacity, "%s", search.name);
}

/* Records the calling library. Called once, inside the loader's lock. */
static int learn(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  (void)info, (void)size;
  for (uint32_t i = 0; i < rules.learned_count; i++)
    if (rules.learned[i] == search->span.begin) search->learned = true;
  if (search->learned || rules.learned_count == NAMES) return 1;
  rules.learned[rules.learned_count] = search->span.begin;
  __atomic_store_n(&rules.learned_count, rules.learned_count + 1, __ATOMIC_RELAXED);
  rules.current = false;
  search->learned = true;
  return 1;
}

uint64_t pump_rule_learn_caller(uint64_t refused_bytes) {
  if (!rules.ipc) return 0;
  struct search search = search_caller();
  if (search.nearest == search.frame_count) return 0;
  dl_iterate_phdr(learn, &search);
  if (!search.learned) return 0;
  uint64_t full = __atomic_load_n(&rules.allowance_full_bytes, __ATOMIC_RELAXED);
  uint64_t bytes = refused_bytes * ALLOWANCE_FACTOR;
  if (bytes < ALLOWANCE_LEAST_BYTES) bytes = ALLOWANCE_LEAST_BYTES;
  if (bytes > full) __atomic_store_n(&rules.allowance_full_bytes, bytes, __ATOMIC_RELAXED);
  pump_rule_handle_given();
  return bytes > full ? bytes : full;
}
