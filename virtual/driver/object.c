/* object.c - the objects behind handles.
 *
 * Equal slots in chunks that are never given back, so that looking at the magic
 * number of a destroyed handle is safe. Under the driver's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define CHUNK_SLOTS 256

union slot {
  uint32_t magic;
  struct {
    uint64_t magic_of_free; /* VD_FREE_OBJECT */
    union slot *next;
  } free;
  uint64_t words[VD_OBJECT_BYTES / 8];
};

static union slot *free_slots;

void *vd_object_new(enum vd_magic magic) {
  if (free_slots == NULL) {
    union slot *chunk = calloc(CHUNK_SLOTS, sizeof *chunk);
    if (chunk == NULL) return NULL;
    for (size_t i = 0; i < CHUNK_SLOTS; i++) {
      chunk[i].free.next = free_slots;
      free_slots = &chunk[i];
    }
  }
  union slot *slot = free_slots;
  free_slots = slot->free.next;
  memset(slot, 0, sizeof *slot);
  slot->magic = (uint32_t)magic;
  return slot;
}

void vd_object_free(void *object) {
  union slot *slot = object;
  slot->free.magic_of_free = VD_FREE_OBJECT;
  slot->free.next = free_slots;
  free_slots = slot;
}

_Static_assert(sizeof(struct vd_context) <= VD_OBJECT_BYTES, "context");
_Static_assert(sizeof(struct vd_stream) <= VD_OBJECT_BYTES, "stream");
_Static_assert(sizeof(struct vd_event) <= VD_OBJECT_BYTES, "event");
_Static_assert(sizeof(struct vd_function) <= VD_OBJECT_BYTES, "function");
_Static_assert(sizeof(struct vd_module) <= VD_OBJECT_BYTES, "module");
_Static_assert(sizeof(struct vd_pool) <= VD_OBJECT_BYTES, "pool");
