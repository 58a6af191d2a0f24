/* allocator_blocks.c - tracks the blocks that the program's own allocator hands out, from
 * the allocator's reports.
 *
 * DESIGN. PyTorch's caching allocator reports each block that it hands out or takes back
 * to its profiler, through an exported C++ function of libc10.so. The library
 * libc10_cuda.so finds that function by name. So a function of the same name in a
 * preloaded library replaces it, records the block and calls the original. The mangled
 * name contains the parameter types, so a version with other types sends no reports.
 *
 * That interface is not documented, so each report is checked. A block must be inside a
 * converted range, in whole units of 512 bytes, and overlap no live block. A freed block
 * must have its original length. Adjacent ranges of mapped memory (expandable segments)
 * may share a block; then each range contains a part. After the first wrong report pump
 * logs one line, ignores all reports and learns extents from launches. Blocks outside
 * converted ranges are ignored.
 *
 * Reports are in order with the launches of their thread. A block is reported free when
 * the program releases it, but earlier operations may still use it. So such a block is
 * never discarded: DEAD only makes its memory the first to be evicted, and its contents
 * are kept (docs/decisions/0052-dead-blocks-of-others.md). A graph's launches also use
 * blocks that were freed during its capture, and a launch reports nothing about them.
 *
 * PyTorch makes three reports per launch. While the program is dormant, pump only stores
 * its live blocks in a table, which costs a third as much as the maps. When it becomes
 * active, the maps are built from the table, and blocks that do not fit are detected.
 */
#include "allocator_blocks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"
#include "shim/base/key_table.h"
#include "shim/driver/resolve.h"

#define C10_REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define C10_CUDA 1 /* c10::DeviceType::CUDA */

/* c10::Device; passed in one register, like any trivially copyable class. */
struct c10_device {
  int8_t type, index;
};
typedef void c10_report(void *address, long size_bytes, unsigned long allocated_bytes,
                        unsigned long reserved_bytes, struct c10_device device);
__attribute__((visibility("default"))) c10_report pump_c10_report __asm__(C10_REPORT);

bool pump_blocks_reported;
struct pump_block_map *pump_block_maps[PUMP_MAX_RANGES];

/* All of these change under the lock. */
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pump_block_map *spare; /* maps of ranges that have ended, for reuse */
static uint32_t slots_used;          /* slots from this one on never had a map */
static bool given_up;                /* ignore all reports until the process ends */
static bool settled;                 /* the maps are in use and the table is empty */
struct kept_block {
  uint64_t address;
  uint64_t size_bytes;
};
static struct kept_block kept_buckets[1u << 14];
static struct pump_table kept = PUMP_TABLE(kept_buckets);

void pump_blocks_reset(void) {
  const char *text = getenv("PUMP_BLOCK_EVENTS");
  pthread_mutex_init(&blocks_lock, NULL);
  given_up = text != NULL && strcmp(text, "0") == 0;
  PUMP_STORE(&pump_blocks_reported, false);
  settled = false;
  pump_table_reset(&kept);
  memset(pump_block_maps, 0, slots_used * sizeof(struct pump_block_map *));
  slots_used = 0;
  spare = NULL; /* maps of a forked parent stay allocated */
}

static struct pump_block_map *another_map(uint64_t length_bytes) {
  for (struct pump_block_map **link = &spare; *link != NULL; link = &(*link)->next) {
    struct pump_block_map *map = *link;
    if (!pump_block_map_renew(map, length_bytes)) continue;
    *link = map->next;
    return map;
  }
  return pump_block_map_new(length_bytes);
}

/* Returns the range's map, or NULL. `make`: create a missing map if memory allows. */
static struct pump_block_map *map_of(const struct pump_hit *hit, bool make) {
  struct pump_block_map **link = &pump_block_maps[hit->slot], *map = *link;
  if (map != NULL && map->generation == hit->generation) return map;
  if (!make) return NULL;
  if (map != NULL) {
    PUMP_STORE_RELEASE(&map->generation, 0);
    PUMP_STORE_RELEASE(link, NULL);
    map->next = spare;
    spare = map;
  }
  map = another_map(hit->length_bytes);
  if (map == NULL) return NULL;
  if (hit->slot >= slots_used) slots_used = hit->slot + 1;
  PUMP_STORE_RELEASE(&map->generation, hit->generation);
  PUMP_STORE_RELEASE(link, map);
  return map;
}

static void fall_back(const char *why) {
  static uint32_t said;
  given_up = true;
  PUMP_STORE(&pump_blocks_reported, false);
  pump_log_once(&said, PUMP_LOG_WARNING,
                "the allocator reports blocks that do not match its memory (%s): pump "
                "learns tensors from launches instead",
                why);
}

/* Notes a report in the range's map. Returns false if there is no map or the report does
 * not fit. `dead`: blocks to report as dead. The caller holds the lock. */
static bool note(const struct pump_hit *hit, uint64_t offset_bytes, int64_t size_bytes,
                 struct pump_block_span *dead) {
  struct pump_block_map *map = map_of(hit, size_bytes > 0);
  const char *why;
  if (map == NULL) return false;
  if (size_bytes > 0)
    why = pump_block_map_take(map, offset_bytes, (uint64_t)size_bytes);
  else
    why = pump_block_map_give(map, offset_bytes, -(uint64_t)size_bytes, dead);
  if (why != NULL)
    fall_back(why);
  else
    PUMP_STORE(&pump_blocks_reported, true);
  return why == NULL;
}

/* Returns whether the address is in a converted range. Excludes segments of the shim's
 * pool, which knows its own blocks. */
static bool is_segment(uint64_t address, struct pump_hit *hit) {
  return pump_range_lookup(address, hit) && hit->pool == NULL &&
         hit->kind == PUMP_RANGE_CONVERTED;
}

static void report_dead(const struct pump_hit *hit, const struct pump_block_span *dead) {
  if (dead->length_bytes == 0 || pump_reports_nothing()) return;
  PUMP_ADD(&pump_shm->shim_counters.block_dead_bytes, dead->length_bytes);
  pump_event_block(PUMP_EVENT_DEAD, hit->slot, dead->offset_bytes, dead->length_bytes);
}

/* Notes a report in each range of the block; see note(). The caller holds the lock. */
static bool note_parts(uint64_t address, int64_t size_bytes) {
  struct pump_hit hit;
  bool out = size_bytes > 0, noted = false;
  uint64_t left = out ? (uint64_t)size_bytes : -(uint64_t)size_bytes, begin = address;
  while (left != 0 && is_segment(address, &hit)) {
    struct pump_block_span dead = {0, 0};
    uint64_t offset = address - hit.base, part = hit.length_bytes - offset;
    if (!hit.by_handle || part > left) part = left;
    noted = note(&hit, offset, out ? (int64_t)part : -(int64_t)part, &dead);
    if (!noted) return false;
    if (address != begin) PUMP_STORE(&pump_block_maps[hit.slot]->continues, out);
    report_dead(&hit, &dead);
    address += part;
    left -= part;
  }
  return noted;
}

/* ---- while dormant: a table ----------------------------------------------------- */

/* Notes a report in the table; see note(). Returns false for the free of an unknown
 * block, which was handed out before pump followed reports or outside converted ranges. */
static bool keep(uint64_t address, int64_t size_bytes) {
  uint64_t *bucket = pump_table_bucket(&kept, pump_table_search(&kept, address));
  struct kept_block *block = (struct kept_block *)(void *)bucket;
  bool known = *bucket != 0, out = size_bytes > 0;
  if (!out && !known) return false;
  if (out && !known) {
    *block = (struct kept_block){address, (uint64_t)size_bytes};
    kept.used++;
    return true;
  }
  bool right = !out && block->size_bytes == -(uint64_t)size_bytes;
  if (right)
    pump_table_take_out(&kept, block);
  else
    fall_back(out ? "a new block overlaps a live one"
                  : "a block is freed with a different length");
  return right;
}

static bool is_full(void) {
  return kept.used >= kept.buckets / 4 * 3;
}

/* Builds the maps from the table, which then stays empty. The caller holds the lock. */
static void settle(void) {
  settled = true;
  for (uint32_t i = 0; kept.used != 0 && i < kept.buckets; i++) {
    const struct kept_block *block = &kept_buckets[i];
    if (block->address != 0 && !given_up)
      note_parts(block->address, (int64_t)block->size_bytes);
  }
  pump_table_reset(&kept);
}

void pump_blocks_settle(void) {
  pthread_mutex_lock(&blocks_lock);
  if (!settled) settle();
  pthread_mutex_unlock(&blocks_lock);
}

/* ---- reports ---------------------------------------------------------------------- */

/* Notes a report in the table or the maps; see note(). The caller holds the lock. */
static bool take_in(uint64_t address, int64_t size_bytes) {
  if (given_up) return false;
  if (!settled && (!pump_reports_nothing() || is_full())) settle();
  if (!settled) return keep(address, size_bytes);
  return note_parts(address, size_bytes);
}

void pump_blocks_event(uint64_t address, int64_t size_bytes) {
  if (size_bytes == 0 || address < PUMP_LOAD(&pump_range_bounds.low) ||
      address >= PUMP_LOAD(&pump_range_bounds.end))
    return;
  pthread_mutex_lock(&blocks_lock);
  if (take_in(address, size_bytes)) PUMP_ADD(&pump_shm->shim_counters.block_events, 1);
  pthread_mutex_unlock(&blocks_lock);
}

/* ---- the function that PyTorch calls ------------------------------------------ */

/* Returns the function that this one hides, or NULL. A library from dlopen may not be in
 * the global search order: then looks it up from `caller`, one of its users. */
static c10_report *find_original(const void *caller) {
  Dl_info info;
  c10_report *function = NULL;
  char *pending = pump_dl_begin();
  void *found = pump_real_dlsym(RTLD_NEXT, C10_REPORT);
  if (found == NULL && dladdr(caller, &info) != 0) {
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
      found = pump_real_dlsym(library, C10_REPORT);
      dlclose(library);
    }
  }
  pump_dl_end(pending);
  memcpy(&function, &found, sizeof function);
  return function == pump_c10_report ? NULL : function;
}

static c10_report *original(const void *caller) {
  static c10_report *function;
  static bool looked;
  if (PUMP_LIKELY(PUMP_LOAD_ACQUIRE(&looked))) return PUMP_LOAD(&function);
  int saved = errno;
  c10_report *found = find_original(caller);
  PUMP_STORE(&function, found);
  PUMP_STORE_RELEASE(&looked, true);
  errno = saved;
  return found;
}

void pump_c10_report(void *address, long size_bytes, unsigned long allocated_bytes,
                     unsigned long reserved_bytes, struct c10_device device) {
  c10_report *real = original(__builtin_return_address(0));
  if (real != NULL) real(address, size_bytes, allocated_bytes, reserved_bytes, device);
  if (device.type != C10_CUDA || pump_inert()) return;
  int saved = errno;
  pump_enter();
  pump_blocks_event((uint64_t)(uintptr_t)address, size_bytes);
  pump_leave();
  errno = saved;
}
