/* observe_params.c - finds the pointers among a launch's arguments.
 *
 * The driver (12.4 and later) tells the size of each parameter of a kernel; exactly
 * that many bytes are read from where the program's pointer leads, and each aligned
 * 8-byte word among them is tested, so pointers inside structures passed by value
 * are found. Arguments given as one buffer carry their size. Never is a byte read
 * whose size is not known.
 *
 * DESIGN. Layouts are kept by kernel handle in an open-addressing table that is
 * read without a lock: an entry is a pointer to a layout that never changes after
 * it was published, and is never freed, because a reader may hold on to it. A
 * handle may come back with another layout after an unload, so an unload raises
 * `epoch`, and a layout of an older epoch is asked for again, reusing the old one
 * where nothing changed. What is kept is bounded: beyond MAX_KEPT layouts (a
 * program that unloads and loads other kernels without end) each launch asks.
 */
#include <stdlib.h>
#include <string.h>

#include "act.h"
#include "observe.h"
#include "pump_ring.h"

#define ENTRIES (1u << 15)
#define MAX_USED (ENTRIES / 4 * 3)
#define MAX_KEPT (1u << 17)
#define MAX_PARAMS 4096u

/* Parameters that can hold a pointer: 8 bytes and more. */
struct part {
  uint32_t index;
  uint32_t bytes;
};

struct layout {
  CUfunction function;
  struct layout *older; /* what it replaced: a reader may still be in there */
  uint32_t epoch;       /* raised when it was found unchanged */
  uint32_t count;
  struct part parts[];
};

/* Entries go from NULL to a layout and then only from layout to layout of the same
 * handle, under params_lock. */
static struct layout *layouts[ENTRIES];
static uint32_t entries_used, layouts_kept;
static uint32_t epoch = 1;
static pthread_mutex_t params_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t home(CUfunction function) {
  return (uint32_t)((uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15u >> 49);
}
_Static_assert(ENTRIES == 1u << (64 - 49), "home() yields an index");

/* The entry of the handle, or the empty one where it belongs. */
static struct layout **entry_of(CUfunction function) {
  for (uint32_t i = home(function);; i = (i + 1) & (ENTRIES - 1)) {
    struct layout *layout = PUMP_LOAD_ACQUIRE(&layouts[i]);
    if (layout == NULL || layout->function == function) return &layouts[i];
  }
}

/* A kernel handle of a library may be passed where a function is asked for. */
static CUresult ask(CUfunction function, size_t index, size_t *bytes) {
  size_t offset;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (PUMP_HAS(cuFuncGetParamInfo))
    result = pump_real.cuFuncGetParamInfo(function, index, &offset, bytes);
  if ((result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NOT_FOUND) &&
      PUMP_HAS(cuKernelGetParamInfo))
    result = pump_real.cuKernelGetParamInfo((CUkernel)function, index, &offset, bytes);
  return result;
}

/* Asks the driver. NULL when it does not tell, or out of memory. */
static struct layout *learn(CUfunction function, uint32_t now) {
  struct part parts[MAX_PARAMS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < MAX_PARAMS; i++) {
    size_t bytes;
    CUresult result = ask(function, i, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break; /* there are i of them */
    if (result != CUDA_SUCCESS) return NULL;
    if (bytes >= sizeof(uint64_t) && bytes <= UINT32_MAX)
      parts[count++] = (struct part){.index = i, .bytes = (uint32_t)bytes};
  }
  struct layout *layout = malloc(sizeof *layout + count * sizeof parts[0]);
  if (layout == NULL) return NULL;
  layout->function = function;
  layout->older = NULL;
  layout->epoch = now;
  layout->count = count;
  memcpy(layout->parts, parts, count * sizeof parts[0]);
  return layout;
}

static bool same(const struct layout *a, const struct layout *b) {
  return a->count == b->count &&
         memcmp(a->parts, b->parts, a->count * sizeof a->parts[0]) == 0;
}

/* Keeps `fresh` if there is room. Returns the layout to use; `*owned` is set when
 * the caller has to free it after use. */
static struct layout *keep(struct layout *fresh, bool *owned) {
  *owned = false;
  pthread_mutex_lock(&params_lock);
  struct layout **entry = entry_of(fresh->function), *known = *entry, *use = fresh;
  if (known != NULL && same(known, fresh)) {
    PUMP_STORE_RELEASE(&known->epoch, fresh->epoch);
    use = known;
  } else if (layouts_kept < MAX_KEPT && (known != NULL || entries_used < MAX_USED)) {
    layouts_kept++;
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
  struct pump_bracket bracket = pump_bracket_open();
  struct layout *fresh = learn(function, now);
  pump_bracket_close(bracket);
  return fresh == NULL ? NULL : keep(fresh, owned);
}

/* Every aligned word of `bytes` bytes; the memory itself need not be aligned. */
static void scan_bytes(struct pump_op *op, const void *memory, size_t bytes) {
  const char *at = memory;
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, at + i, sizeof word);
    pump_op_word(op, word);
  }
}

static void scan_extra(struct pump_op *op, void **extra) {
  const void *buffer = NULL;
  const size_t *bytes = NULL;
  for (int i = 0; i < 16 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[i + 1];
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = extra[i + 1];
  }
  if (buffer != NULL && bytes != NULL) scan_bytes(op, buffer, *bytes);
}

void pump_params_scan(struct pump_op *op, CUfunction function, void **params,
                      void **extra) {
  static uint32_t said;
  if (params == NULL) {
    if (extra != NULL) scan_extra(op, extra);
    return;
  }
  bool owned;
  struct layout *layout = layout_of(function, &owned);
  if (layout == NULL) {
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "the driver does not tell the parameters of a kernel (it does from CUDA "
                  "12.4 on): launches are left to demand paging");
    return;
  }
  for (uint32_t i = 0; i < layout->count; i++)
    scan_bytes(op, params[layout->parts[i].index], layout->parts[i].bytes);
  if (owned) free(layout);
}

void pump_params_forget(void) {
  PUMP_ADD(&epoch, 1);
}

/* Layouts of an earlier life (before a fork) stay allocated: they are few. */
void pump_params_reset(void) {
  pthread_mutex_init(&params_lock, NULL);
  memset(layouts, 0, sizeof layouts);
  entries_used = layouts_kept = 0;
}
