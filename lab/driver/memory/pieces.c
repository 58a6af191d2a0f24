/* pieces.c - the program's own allocations inside one of the driver's.
 *
 * DESIGN
 * A caching allocator divides one allocation of the driver into many of its own. A kernel
 * on a real GPU stays inside the allocator's block, and a pointer into memory that the
 * allocator has not handed out is stale. Three sources report such pieces, in this order:
 *
 *   blocks:   Stand-ins for CUDA's runtime report blocks of PyTorch's caching allocator
 *             and of cudaMallocAsync (lab/runtime/torch_blocks.c).
 *   pool:     `pump_pool_piece` of pump's own pool (shim/pool/pool.h), for programs that
 *             allocate through the driver API.
 *   mapping:  Adjacent mappings form one allocation.
 *
 * A freed block stays in the set until another block takes its memory: the kernels of a
 * CUDA graph use blocks that were freed during the capture. Under the driver's lock.
 */
#include <dlfcn.h>
#include <string.h>

#include "memory.h"

static struct vd_range_set blocks; /* a freed block's entry has memory NULL */
static bool replaying;

void vd_pieces_replay(bool graph) {
  replaying = graph;
}

/* Marks the allocations that contain a block, which may span adjacent mappings. Returns
 * the last one, or NULL. */
static struct vd_memory *mark(uint64_t address, uint64_t end) {
  struct vd_memory *memory, *last = NULL;
  while (address < end && (memory = vd_memory_at(address)) != NULL) {
    memory->has_blocks = true;
    address = memory->base + memory->reserved_bytes;
    last = memory;
  }
  return last;
}

/* For the stand-ins: an allocator hands out or takes back (length_bytes 0) a block. */
__attribute__((visibility("default"))) void pump_virtual_block(uint64_t address,
                                                               uint64_t length_bytes);
void pump_virtual_block(uint64_t address, uint64_t length_bytes) {
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) != VD_READY) return;
  vd_lock();
  struct vd_range_entry *entry = vd_range_entry(&blocks, address);
  if (length_bytes == 0) {
    if (entry != NULL && entry->base == address) entry->memory = NULL;
  } else {
    uint64_t end = address + length_bytes;
    struct vd_memory *memory = mark(address, end);
    if (memory != NULL)
      (void)vd_range_replace(&blocks, (struct vd_range_entry){address, end, memory});
  }
  vd_unlock();
}

/* Looks up pump_pool_piece once: it is loaded before this driver, or never. The look-up
 * is at the first launch, long after a stand-in for dlsym has found this library. */
int vd_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes) {
  static int (*piece)(uint64_t, uint64_t *, uint64_t *);
  static bool looked;
  if (!looked) {
    void *found = dlsym(RTLD_DEFAULT, "pump_pool_piece");
    memcpy(&piece, &found, sizeof found);
    looked = true;
  }
  return piece == NULL ? VD_PIECE_NONE : piece(address, base, length_bytes);
}

bool vd_memory_piece(const struct vd_memory *memory, uint64_t address, uint64_t *base,
                     uint64_t *end) {
  uint64_t length_bytes;
  const struct vd_range_entry *block =
      memory->has_blocks ? vd_range_entry(&blocks, address) : NULL;
  if (block != NULL && (block->memory != NULL || replaying)) {
    *base = block->base;
    *end = block->end;
    return true;
  }
  int piece = memory->kind == VD_MANAGED ? vd_pool_piece(address, base, &length_bytes)
                                         : VD_PIECE_NONE;
  if (piece != VD_PIECE_NONE) {
    *end = *base + length_bytes;
    return piece == VD_PIECE_LIVE && address < *end;
  }
  if (memory->has_blocks) return false;
  bool mapped = memory->kind == VD_MAPPED;
  *base = mapped ? vd_mapped_base(address) : memory->base;
  *end = mapped ? address + vd_mapped_bytes(address) : memory->base + memory->length_bytes;
  return address < *end;
}
