/* allocator_blocks.c - blocks that a program's own allocator hands out inside its segments,
 * from the allocator's own reports.
 *
 * DESIGN. PyTorch's caching allocator reports to its profiler each block that it hands out
 * or takes back, through an exported C++ function of libc10.so. libc10_cuda.so finds that
 * by name, so our function of the same name, in a preloaded library, takes its place. It
 * records the block and calls the original. The mangled name has the parameters' types: a
 * version with others has another name, and then nothing comes here.
 *
 * That interface is not documented, so a report has to fit what is known: in a
 * range that we have converted, in whole units of 512 bytes, inside that range, beside all
 * live blocks; and what is freed was handed out with that length. Ranges that the program
 * has mapped side by side (expandable segments) may share a block: then each has its part.
 * The first report that does not ends it: one line, and extents are learned from then on.
 * Blocks outside of converted ranges are ignored.
 *
 * Reports come in order with the launches of their thread. A block is reported free when
 * the program gave it up; what was issued before may still run there. So no such block may
 * be discarded: DEAD only names the memory that leaves first, and its contents are kept
 * (docs/decisions/0052-dead-blocks-of-others.md). A graph's launches also use blocks that
 * were freed while it was captured; nothing is reported of them at a launch.
 *
 * A dormant program reports nothing, and PyTorch makes three reports for a launch:
 * until it becomes active the live blocks stand in a table, at a third of the price of the
 * maps, which are made of it then. What does not fit there is found out at that time.
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

/* c10::Device; passed in one register, as a class without constructors for copying is. */
struct c10_device {
  int8_t type, index;
};
typedef void c10_report(void *address, long size_bytes, unsigned long allocated_bytes,
                        unsigned long reserved_bytes, struct c10_device device);
__attribute__((visibility("default"))) c10_report pump_c10_report __asm__(C10_REPORT);

bool pump_blocks_reported;
struct pump_block_map *pump_block_maps[PUMP_MAX_RANGES];

/* All of this changes under the lock. */
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pump_block_map *spare; /* of ranges that have ended, to be used again */
static uint32_t slots_used;          /* slots from here on never had a map */
static bool given_up;                /* no report counts, until the process ends */
static bool settled;                 /* the maps are in use, and the table is empty */
struct kept_block {
  uint64_t address;
  uint64_t size_bytes;
};
static struct kept_block kept_places[1u << 14];
static struct pump_table kept = PUMP_TABLE(kept_places);

void pump_blocks_reset(void) {
  const char *text = getenv("PUMP_BLOCK_EVENTS");
  pthread_mutex_init(&blocks_lock, NULL);
  given_up = text != NULL && strcmp(text, "0") == 0;
  PUMP_STORE(&pump_blocks_reported, false);
  settled = false;
  pump_table_reset(&kept);
  memset(pump_block_maps, 0, slots_used * sizeof(struct pump_block_map *));
  slots_used = 0;
  spare = NULL; /* a forked parent's stay with its copies */
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

/* The map of the range that was hit; NULL: it has none. `make`: unless memory is short. */
static struct pump_block_map *map_of(const struct pump_hit *hit, bool make) {
  struct pump_block_map **place = &pump_block_maps[hit->slot], *map = *place;
  if (map != NULL && map->generation == hit->generation) return map;
  if (!make) return NULL;
  if (map != NULL) {
    PUMP_STORE_RELEASE(&map->generation, 0);
    PUMP_STORE_RELEASE(place, NULL);
    map->next = spare;
    spare = map;
  }
  map = another_map(hit->length_bytes);
  if (map == NULL) return NULL;
  if (hit->slot >= slots_used) slots_used = hit->slot + 1;
  PUMP_STORE_RELEASE(&map->generation, hit->generation);
  PUMP_STORE_RELEASE(place, map);
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

/* Under the lock. false: the range has no map, or the report does not fit. `dead`: what to
 * report. */
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

/* Whether the address lies in a converted range that is no segment of our pool: that knows
 * its own blocks. */
static bool is_segment(uint64_t address, struct pump_hit *hit) {
  return pump_range_lookup(address, hit) && hit->pool == NULL &&
         hit->kind == PUMP_RANGE_CONVERTED;
}

static void report_dead(const struct pump_hit *hit, const struct pump_block_span *dead) {
  if (dead->length_bytes == 0 || pump_dormant()) return;
  PUMP_ADD(&pump_shm->shim_counters.block_dead_bytes, dead->length_bytes);
  pump_event_block(PUMP_EVENT_DEAD, hit->slot, dead->offset_bytes, dead->length_bytes);
}

/* Under the lock; as note(). A block in several ranges is noted in each. */
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

/* ---- dormant: a table ----------------------------------------------------------- */

/* Under the lock. false as of note(): a block that the table does not know was handed out
 * before reports were followed, or does not lie in a converted range. */
static bool keep(uint64_t address, int64_t size_bytes) {
  uint64_t *place = pump_table_place(&kept, pump_table_search(&kept, address));
  struct kept_block *block = (struct kept_block *)(void *)place;
  bool known = *place != 0, out = size_bytes > 0;
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
  return kept.used >= kept.places / 4 * 3;
}

/* Under the lock: makes the maps of the table, which stays empty from here on. */
static void settle(void) {
  settled = true;
  for (uint32_t i = 0; kept.used != 0 && i < kept.places; i++) {
    const struct kept_block *block = &kept_places[i];
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

/* ---- an event ------------------------------------------------------------------- */

/* Under the lock; as note(). */
static bool take_in(uint64_t address, int64_t size_bytes) {
  if (given_up) return false;
  if (!settled && (!pump_dormant() || is_full())) settle();
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

/* The function that ours hides, or NULL. A library that was opened for itself is not behind
 * us in the global order: so it is looked for as `caller`, one of its users, would. */
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
