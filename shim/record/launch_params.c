/* launch_params.c - reads a launch's arguments, with the layout that the driver reports.
 *
 * The driver reports the offset and size of each parameter since CUDA 12.4. Before, such
 * launches run on demand paging. Exactly these bytes are read through the program's
 * pointers. Each aligned 8-byte word is tested, which finds pointers in structures passed
 * by value. Arguments in one buffer carry their size. Bytes outside a layout are never
 * read.
 *
 * DESIGN. Layouts are stored by kernel handle in an open-addressing table. Readers take
 * no lock: an entry points to a layout that never changes after it is published and is
 * never freed, because a reader may still use it. After an unload, a handle may return
 * with another layout, so an unload increments `epoch`. A layout with an older epoch is
 * queried again, and reused if nothing changed. The number of stored layouts is bounded:
 * beyond MAX_KEPT (a program that keeps unloading and loading other kernels) each launch
 * queries its layout.
 *
 * A layout also holds the function's identity, which represents the function in
 * signatures. It is the same in the program's next run: a hash of the name, the layout,
 * and how many functions with that hash were launched before. Arguments in one buffer
 * need no layout, and the handle represents the function.
 */
#include <stdlib.h>
#include <string.h>

#include "record.h"

#define ENTRIES (1u << 15)
#define MAX_USED (ENTRIES / 4 * 3)
#define MAX_KEPT (1u << 17)
#define MAX_PARAMS 8192u     /* of four bytes each, they fill the largest buffer */
#define MAX_BYTES (1u << 20) /* far above the largest buffer */
#define NAMES 4096u          /* counters of functions, by name hash */

/* Position of a parameter in the parameter buffer. */
struct part {
  uint32_t offset, bytes;
};

struct layout {
  CUfunction function;
  struct layout *older; /* replaced layout, which a reader may still use */
  uint32_t epoch;       /* updated if a new query finds no change */
  uint32_t count;
  uint32_t parameter_bytes; /* size of the parameter buffer */
  uint32_t name;            /* hash of the function's name and of `parts` */
  uint32_t identity;
  struct part parts[];
};

/* Entries change from NULL to a layout, and then only to another layout of the same
 * handle. They change under params_lock. */
static struct layout *layouts[ENTRIES];
static uint32_t entries_used, layouts_kept;
static uint16_t named[NAMES]; /* under params_lock */
static uint32_t epoch = 1;
static pthread_mutex_t params_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t home(CUfunction function) {
  return (uint32_t)((uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15u >> 49);
}
_Static_assert(ENTRIES == 1u << (64 - 49), "home() yields an index");

/* Returns the entry of the handle, or the empty entry for it. */
static struct layout **entry_of(CUfunction function) {
  for (uint32_t i = home(function);; i = (i + 1) & (ENTRIES - 1)) {
    struct layout *layout = PUMP_LOAD_ACQUIRE(&layouts[i]);
    if (layout == NULL || layout->function == function) return &layouts[i];
  }
}

static struct layout *resized(struct layout *layout, uint32_t capacity) {
  struct layout *grown =
      realloc(layout, sizeof *layout + capacity * sizeof layout->parts[0]);
  if (grown == NULL) free(layout);
  return grown;
}

static uint64_t name_of(CUfunction function) {
  const char *name = NULL;
  uint64_t hash = 0;
  if (pump_function_name(function, &name) != CUDA_SUCCESS || name == NULL) return 0;
  for (; *name != 0; name++) hash = pump_mix(hash + (unsigned char)*name);
  return hash;
}

/* Queries the layout from the driver. Returns NULL if the driver refuses, its answer is
 * implausible, or memory is short. */
static struct layout *learn(CUfunction function, uint32_t now) {
  struct layout *layout = NULL;
  uint32_t capacity = 0;
  for (uint32_t i = 0; i < MAX_PARAMS; i++) {
    if (i == capacity) {
      capacity = capacity == 0 ? 16 : 2 * capacity;
      layout = resized(layout, capacity);
      if (layout == NULL) return NULL;
      if (i == 0) *layout = (struct layout){.function = function, .epoch = now};
    }
    size_t offset = 0, bytes = 0;
    CUresult result = pump_function_parameter(function, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break; /* there are i parameters */
    if (result != CUDA_SUCCESS || offset > MAX_BYTES || bytes > MAX_BYTES) {
      free(layout);
      return NULL;
    }
    layout->parts[layout->count++] =
        (struct part){.offset = (uint32_t)offset, .bytes = (uint32_t)bytes};
    if (offset + bytes > layout->parameter_bytes)
      layout->parameter_bytes = (uint32_t)(offset + bytes);
  }
  uint64_t hash = name_of(function);
  for (uint32_t i = 0; i < layout->count; i++)
    hash =
        pump_mix(hash + ((uint64_t)layout->parts[i].offset << 32 | layout->parts[i].bytes));
  layout->name = layout->identity = (uint32_t)hash;
  return resized(layout, layout->count);
}

static bool same(const struct layout *a, const struct layout *b) {
  return a->count == b->count && a->name == b->name &&
         memcmp(a->parts, b->parts, a->count * sizeof a->parts[0]) == 0;
}

/* Stores `fresh` if there is space. Returns the layout to use. `*owned`: the caller must
 * free it after use. */
static struct layout *keep(struct layout *fresh, bool *owned) {
  *owned = false;
  pthread_mutex_lock(&params_lock);
  struct layout **entry = entry_of(fresh->function), *known = *entry, *use = fresh;
  if (known != NULL && same(known, fresh)) {
    PUMP_STORE_RELEASE(&known->epoch, fresh->epoch);
    use = known;
  } else if (layouts_kept < MAX_KEPT && (known != NULL || entries_used < MAX_USED)) {
    layouts_kept++;
    fresh->identity =
        (uint32_t)pump_mix(fresh->name + ((uint64_t)named[fresh->name % NAMES]++ << 32));
    if (known == NULL) entries_used++;
    fresh->older = known;
    PUMP_STORE_RELEASE(entry, fresh);
  } else {
    *owned = true;
  }
  pthread_mutex_unlock(&params_lock);
  if (use != fresh) free(fresh);
  return use;
}

static struct layout *layout_of(CUfunction function, bool *owned) {
  uint32_t now = PUMP_LOAD_ACQUIRE(&epoch);
  struct layout *known = PUMP_LOAD_ACQUIRE(entry_of(function));
  *owned = false;
  if (PUMP_LIKELY(known != NULL && PUMP_LOAD_ACQUIRE(&known->epoch) == now)) return known;
  struct pump_driver_scope scope = pump_driver_scope_open();
  struct layout *fresh = learn(function, now);
  pump_driver_scope_close(scope);
  return fresh == NULL ? NULL : keep(fresh, owned);
}

/* Returns the identity of a function with an unknown layout. */
static uint32_t unnamed(CUfunction function) {
  return (uint32_t)pump_mix((uint64_t)(uintptr_t)function);
}

/* ---- saved parameters ------------------------------------------------------ */

/* Parameters with their own layout, because the handle's layout may change. */
struct pump_saved {
  uint32_t count, parameter_bytes;
  uint32_t identity;
  struct part parts[]; /* followed by `parameter_bytes` of buffer */
};

static size_t saved_bytes(uint32_t count, size_t parameter_bytes) {
  return sizeof(struct pump_saved) + count * sizeof(struct part) + parameter_bytes;
}

size_t pump_params_saved_bytes(const struct pump_saved *saved) {
  return saved_bytes(saved->count, saved->parameter_bytes);
}

static char *saved_buffer(const struct pump_saved *saved) {
  return (char *)(uintptr_t)&saved->parts[saved->count];
}

static struct pump_saved *new_saved(uint32_t count, size_t parameter_bytes,
                                    uint32_t identity) {
  struct pump_saved *saved = calloc(1, saved_bytes(count, parameter_bytes));
  if (saved == NULL) return NULL;
  saved->count = count;
  saved->parameter_bytes = (uint32_t)parameter_bytes;
  saved->identity = identity;
  return saved;
}

/* Returns the one buffer with all parameters, or NULL. */
static const void *buffer_of(void **extra, size_t *bytes) {
  const void *buffer = NULL;
  const size_t *size = NULL;
  for (int i = 0; i < 16 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = extra[i + 1];
  }
  *bytes = size == NULL ? 0 : *size;
  return *bytes == 0 ? NULL : buffer;
}

static void say_nothing_known(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "the parameters of a kernel are unknown (this driver is older than CUDA "
                "12.4): its launches run on demand paging");
}

struct pump_saved *pump_params_save(const struct pump_launch *launch) {
  struct pump_saved *saved;
  if (launch->params != NULL) {
    bool owned;
    struct layout *layout = layout_of(launch->function, &owned);
    if (layout == NULL) {
      say_nothing_known();
      return new_saved(0, 0, unnamed(launch->function));
    }
    saved = new_saved(layout->count, layout->parameter_bytes, layout->identity);
    for (uint32_t i = 0; saved != NULL && i < layout->count; i++) {
      saved->parts[i] = layout->parts[i];
      memcpy(saved_buffer(saved) + layout->parts[i].offset, launch->params[i],
             layout->parts[i].bytes);
    }
    if (owned) free(layout);
    return saved;
  }
  size_t bytes = 0;
  const void *buffer = launch->extra == NULL ? NULL : buffer_of(launch->extra, &bytes);
  if (buffer == NULL || bytes > MAX_BYTES)
    return new_saved(0, 0, unnamed(launch->function));
  saved = new_saved(1, bytes, unnamed(launch->function));
  if (saved == NULL) return NULL;
  saved->parts[0] = (struct part){0, (uint32_t)bytes};
  memcpy(saved_buffer(saved), buffer, bytes);
  return saved;
}

static void scan_saved(struct pump_scan *words, const struct pump_saved *saved) {
  pump_scan_begin(words, saved->parameter_bytes, saved->identity);
  for (uint32_t i = 0; i < saved->count; i++)
    pump_scan_add(words, saved_buffer(saved) + saved->parts[i].offset,
                  saved->parts[i].bytes, saved->parts[i].offset);
}

void pump_params_scan(struct pump_scan *words, const struct pump_launch *launch) {
  if (launch->saved != NULL) {
    scan_saved(words, launch->saved);
  } else if (launch->params != NULL) {
    bool owned;
    struct layout *layout = layout_of(launch->function, &owned);
    if (layout != NULL)
      pump_scan_begin(words, layout->parameter_bytes, layout->identity);
    else
      pump_scan_begin(words, 0, unnamed(launch->function));
    for (uint32_t i = 0; layout != NULL && i < layout->count; i++)
      pump_scan_add(words, launch->params[i], layout->parts[i].bytes,
                    layout->parts[i].offset);
    if (layout == NULL) {
      words->dropped = 1;
      say_nothing_known();
    }
    if (owned) free(layout);
  } else {
    size_t bytes = 0;
    const void *buffer = launch->extra == NULL ? NULL : buffer_of(launch->extra, &bytes);
    pump_scan_begin(words, bytes, unnamed(launch->function));
    if (buffer != NULL) pump_scan_add(words, buffer, bytes, 0);
  }
}

/* Copies a parameter, cut to the space left. */
static void copy_part(void *buffer, size_t capacity, size_t offset, const void *memory,
                      size_t bytes) {
  if (offset >= capacity) return;
  memcpy((char *)buffer + offset, memory,
         bytes < capacity - offset ? bytes : capacity - offset);
}

size_t pump_params_copy(const struct pump_launch *launch, void *buffer, size_t capacity) {
  size_t bytes = 0;
  memset(buffer, 0, capacity);
  if (launch->saved != NULL) {
    bytes = launch->saved->parameter_bytes;
    copy_part(buffer, capacity, 0, saved_buffer(launch->saved), bytes);
  } else if (launch->params != NULL) {
    bool owned;
    struct layout *layout = layout_of(launch->function, &owned);
    if (layout == NULL) return 0;
    for (uint32_t i = 0; i < layout->count; i++)
      copy_part(buffer, capacity, layout->parts[i].offset, launch->params[i],
                layout->parts[i].bytes);
    bytes = layout->parameter_bytes;
    if (owned) free(layout);
  } else if (launch->extra != NULL) {
    const void *from = buffer_of(launch->extra, &bytes);
    if (from != NULL) copy_part(buffer, capacity, 0, from, bytes);
  }
  return bytes;
}

void pump_params_forget(void) {
  PUMP_ADD(&epoch, 1);
  pump_launched_forget();
}

uint32_t pump_params_epoch(void) {
  return PUMP_LOAD_ACQUIRE(&epoch);
}

/* Empties the table after a fork. The few layouts of the parent stay allocated. */
void pump_params_reset(void) {
  pthread_mutex_init(&params_lock, NULL);
  memset(layouts, 0, sizeof layouts);
  memset(named, 0, sizeof named);
  entries_used = layouts_kept = 0;
}
