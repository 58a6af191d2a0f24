/* memory.h - allocations of every kind, and what is copied between them. */
#ifndef PUMP_VIRTUAL_MEMORY_H
#define PUMP_VIRTUAL_MEMORY_H

#include "lab/driver/timeline/timeline.h"

enum vd_memory_kind {
  VD_HOST_PINNED,
  VD_HOST_REGISTERED,
  VD_PLAIN, /* from here on the device's */
  VD_MANAGED,
  VD_MAPPED,  /* memory of cuMemCreate; `flags` is its access */
  VD_RESERVED /* addresses only */
};

/* An array as it was asked for. levels: of a mipmapped one, else 0. */
struct vd_array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  unsigned int levels;
};

/* Texels of an array, or of a level of one. */
struct vd_texels {
  uint64_t address;
  size_t texel_bytes, row_bytes, pitch, rows, slices;
};

/* One live allocation. */
struct vd_memory {
  uint64_t base;
  uint64_t length_bytes;   /* as asked for */
  uint64_t reserved_bytes; /* as taken from arena and card */
  enum vd_memory_kind kind;
  unsigned int flags;
  uint64_t id;
  struct vd_context *context;
  struct vd_pool *pool;
  void *physical;         /* of VD_MAPPED */
  struct vd_array *array; /* or NULL; owned */
  CUmemLocation preferred, last_prefetch;
  bool accessed_by_gpu, accessed_by_host;
  bool prefetched;
  bool freed;       /* by cuMemFreeAsync: gone when the stream gets there */
  bool sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as the program set it */
  bool has_blocks;  /* an allocator has cut blocks out of it (pieces.c) */
  /* Memory of allocation nodes (graph_memory.c): how many of them hold this address,
   * whether the card has given memory, whether it is allocated at present. */
  bool of_graph, backed, live;
  uint32_t holders;
};

struct vd_pool {
  uint32_t magic;
  bool is_default;
  uint64_t release_threshold, used_bytes, used_high_bytes;
  uint64_t most_bytes; /* CUmemPoolProps.maxSize; 0: as the card has */
  uint64_t settings[4];
};

/* Up to three dimensions; a plain copy has height = depth = 1. */
struct vd_copy {
  uint64_t destination, source;
  size_t width_bytes, height, depth;
  size_t destination_pitch, destination_slice, source_pitch, source_slice;
  CUarray destination_array, source_array; /* that they lie in; NULL: in none */
};

struct vd_set {
  uint64_t destination;
  size_t width, height, pitch; /* elements, rows, bytes */
  uint32_t value;
  uint32_t element_bytes; /* 1, 2 or 4 */
};

_Static_assert(sizeof(struct vd_copy) <= VD_ACTION_BYTES, "it is an action's");

/* ranges.c */
struct vd_memory *vd_range_find(const struct vd_range_set *set, uint64_t address);
struct vd_range_entry *vd_range_entry(const struct vd_range_set *set, uint64_t address);
uint64_t vd_range_gap(const struct vd_range_set *set, uint64_t length_bytes,
                      uint64_t alignment);
int vd_range_add(struct vd_range_set *set, struct vd_memory *memory);
bool vd_range_remove(struct vd_range_set *set, struct vd_memory *memory);
/* Adds an entry in place of all that it overlaps; -1: no memory. */
int vd_range_replace(struct vd_range_set *set, struct vd_range_entry entry);
struct vd_memory *vd_memory_at(uint64_t address); /* in any set of memory */

/* pieces.c */
/* The piece of pump's own pool that `address` lies in (shim/pool/pool.h): VD_PIECE_*. */
enum { VD_PIECE_NONE, VD_PIECE_FREE, VD_PIECE_LIVE };
int vd_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes);
/* What of `memory` is an allocation to the program, where `address` lies in it; false:
 * nothing is allocated there. */
bool vd_memory_piece(const struct vd_memory *memory, uint64_t address, uint64_t *base,
                     uint64_t *end);
/* Until the next call, blocks count as allocated after they were freed: a graph's kernels
 * are launched. */
void vd_pieces_replay(bool graph);

/* vmm.c: bytes from `address` on that are mapped without a gap and may be accessed, and
 * where that begins, which includes it */
uint64_t vd_mapped_bytes(uint64_t address);
uint64_t vd_mapped_base(uint64_t address);

/* memory.c, with the lock */
CUresult vd_memory_new(enum vd_memory_kind kind, uint64_t length_bytes,
                       struct vd_memory **out);
CUresult vd_graph_memory_new(uint64_t length_bytes, struct vd_memory **out);
uint64_t vd_memory_release(struct vd_memory *memory); /* without waiting */
/* gpu_plain_reserve(); on a shared card it first frees memory of killed processes if there
 * is too little */
int vd_plain_reserve_locked(uint64_t length_bytes, struct gpu_cost *cost);
void vd_memory_drop_context_locked(const struct vd_context *context);
uint32_t vd_memory_block(const struct vd_memory *memory, uint64_t address);

/* managed.c */
void vd_on_drop(void *context, uint32_t block);

/* copy.c. The two that run what a graph holds: nothing is captured, staged or waited
 * for. */
CUresult vd_copy_submit_locked(struct vd_stream *stream, const struct vd_copy *copy);
CUresult vd_set_submit_locked(struct vd_stream *stream, const struct vd_set *set);
CUresult vd_copy(CUstream handle, const struct vd_copy *copy, bool synchronous,
                 const char *what);
uint32_t vd_uses_of(uint64_t address, uint64_t length_bytes, uint16_t access,
                    struct gpu_use *use);

/* copy_nd.c */
CUresult vd_copy_of_3d_locked(const CUDA_MEMCPY3D *params, struct vd_copy *out);

/* array.c: where the texels of an array lie; false: no array */
bool vd_array_texels_locked(CUarray array, struct vd_texels *texels);

/* texture.c: the memory behind a texture or surface object; false: the word is none */
bool vd_texture_memory_locked(uint64_t word, uint64_t *address, uint64_t *length_bytes);

/* They are objects (base/object.c). */
_Static_assert(sizeof(struct vd_pool) <= VD_OBJECT_BYTES, "pool");

#endif
