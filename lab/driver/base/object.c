/* object.c - the objects that handles point to.
 *
 * Slots of equal size come from chunks that are never freed, so reading the magic number
 * of a destroyed handle is safe. The slot freed last is reused first: programs that keep
 * stale handles must expect that. With PUMP_VIRTUAL_LATE_HANDLES the slot freed first is
 * reused, and only while many are free, so a stale handle stays recognizable for a long
 * time. Under the driver's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define CHUNK_SLOTS 256
#define FREE_LEAST 2048

union slot {
  uint32_t magic;
  struct {
    uint64_t magic_of_free; /* VD_FREE_OBJECT */
    union slot *next;
  } free;
  uint64_t words[VD_OBJECT_BYTES / 8];
};

static union slot *first_free, *last_free;
static size_t free_count;

static bool reuses_handles_late(void) {
  static int known = -1;
  if (known < 0) known = getenv("PUMP_VIRTUAL_LATE_HANDLES") != NULL;
  return known != 0;
}

static void append_free_slot(union slot *slot) {
  slot->free.next = NULL;
  if (first_free == NULL)
    first_free = slot;
  else
    last_free->free.next = slot;
  last_free = slot;
  free_count++;
}

static void prepend_free_slot(union slot *slot) {
  slot->free.next = first_free;
  if (first_free == NULL) last_free = slot;
  first_free = slot;
  free_count++;
}

void *vd_object_new(enum vd_magic magic) {
  while (free_count <= (reuses_handles_late() ? FREE_LEAST : 0)) {
    union slot *chunk = calloc(CHUNK_SLOTS, sizeof *chunk);
    if (chunk == NULL) break;
    for (size_t i = 0; i < CHUNK_SLOTS; i++) append_free_slot(&chunk[i]);
  }
  union slot *slot = first_free;
  if (slot == NULL) return NULL;
  first_free = slot->free.next;
  free_count--;
  memset(slot, 0, sizeof *slot);
  slot->magic = (uint32_t)magic;
  return slot;
}

void vd_object_free(void *object) {
  union slot *slot = object;
  slot->free.magic_of_free = VD_FREE_OBJECT;
  if (reuses_handles_late())
    append_free_slot(slot);
  else
    prepend_free_slot(slot);
}
