/* memory.h - allocations of every kind, and copies between them. */
#ifndef PUMP_VIRTUAL_MEMORY_H
#define PUMP_VIRTUAL_MEMORY_H

#include "lab/driver/timeline/timeline.h"

enum vd_memory_kind {
  VD_HOST_PINNED,
  VD_HOST_REGISTERED,
  VD_PLAIN, /* this kind and all below are device memory */
  VD_MANAGED,
  VD_MAPPED,  /* memory of cuMemCreate; `flags` is its access */
  VD_RESERVED /* addresses only */
};

/* An array as requested. levels: 0 unless it is mipmapped. */
struct vd_array {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  unsigned int levels;
};

/* Texels of an array, or of one mipmap level. */
struct vd_texels {
  uint64_t address;
  size_t texel_bytes, row_bytes, pitch, rows, slices;
};

/* One live allocation. */
struct vd_memory {
  uint64_t base;
  uint64_t length_bytes;   /* as requested */
  uint64_t reserved_bytes; /* taken from the arena and the GPU */
  enum vd_memory_kind kind;
  unsigned int flags;
  uint64_t id;
  struct vd_context *context;
  struct vd_pool *pool;
  void *physical;         /* of VD_MAPPED */
  struct vd_array *array; /* NULL, or owned */
  CUmemLocation preferred, last_prefetch;
  bool accessed_by_gpu, accessed_by_host;
  bool prefetched;
  bool freed;       /* by cuMemFreeAsync: released when the stream reaches the free */
  bool sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as set by the program */
  bool has_blocks;  /* an allocator has divided it into blocks (pieces.c) */
  /* Memory of allocation nodes (graph_memory.c). holders: how many nodes hold this
   * address. backed: the GPU has given memory. live: it is allocated now. */
  bool of_graph, backed, live;
  uint32_t holders;
};

struct vd_pool {
  uint32_t magic;
  bool is_default;
  uint64_t release_threshold, used_bytes, used_high_bytes;
  uint64_t most_bytes; /* CUmemPoolProps.maxSize; 0: the GPU's memory */
  uint64_t settings[4];
};

/* A copy in up to three dimensions; a plain copy has height = depth = 1. */
struct vd_copy {
  uint64_t destination, source;
  size_t width_bytes, height, depth;
  size_t destination_pitch, destination_slice, source_pitch, source_slice;
  CUarray destination_array, source_array; /* arrays that contain the ends, or NULL */
};

struct vd_set {
  uint64_t destination;
  size_t width, height, pitch; /* elements, rows, bytes */
  uint32_t value;
  uint32_t element_bytes; /* size of an element: 1, 2 or 4 */
};

_Static_assert(sizeof(struct vd_copy) <= VD_ACTION_BYTES, "it is an action's");

/* ranges.c */
struct vd_memory *vd_range_find(const struct vd_range_set *set, uint64_t address);
struct vd_range_entry *vd_range_entry(const struct vd_range_set *set, uint64_t address);
uint64_t vd_range_gap(const struct vd_range_set *set, uint64_t length_bytes,
                      uint64_t alignment);
int vd_range_add(struct vd_range_set *set, struct vd_memory *memory);
bool vd_range_remove(struct vd_range_set *set, struct vd_memory *memory);
/* Adds an entry and removes all that it overlaps; -1: out of memory. */
int vd_range_replace(struct vd_range_set *set, struct vd_range_entry entry);
struct vd_memory *vd_memory_at(uint64_t address); /* searches all sets of memory */

/* pieces.c */
/* Finds the piece of pump's pool at `address` (shim/pool/pool.h): VD_PIECE_*. */
enum { VD_PIECE_NONE, VD_PIECE_FREE, VD_PIECE_LIVE };
int vd_pool_piece(uint64_t address, uint64_t *base, uint64_t *length_bytes);
/* Finds the part of `memory` at `address` that is one allocation to the program; false:
 * nothing is allocated there. */
bool vd_memory_piece(const struct vd_memory *memory, uint64_t address, uint64_t *base,
                     uint64_t *end);
/* Counts freed blocks as allocated until the next call, for the kernels of a graph. */
void vd_pieces_replay(bool graph);

/* vmm.c: returns the accessible mapped bytes from `address` to the first gap.
 * vd_mapped_base() returns the start of the gapless range that contains `address`. */
uint64_t vd_mapped_bytes(uint64_t address);
uint64_t vd_mapped_base(uint64_t address);

/* memory.c; call these with the lock */
CUresult vd_memory_new(enum vd_memory_kind kind, uint64_t length_bytes,
                       struct vd_memory **out);
CUresult vd_graph_memory_new(uint64_t length_bytes, struct vd_memory **out);
uint64_t vd_memory_release(struct vd_memory *memory); /* does not wait */
/* gpu_plain_reserve(); if memory is short, frees memory of killed processes first */
int vd_plain_reserve_locked(uint64_t length_bytes, struct gpu_cost *cost);
void vd_memory_drop_context_locked(const struct vd_context *context);
uint32_t vd_memory_block(const struct vd_memory *memory, uint64_t address);

/* managed.c */
void vd_on_drop(void *context, uint32_t block);

/* copy.c. The first two run the work of a graph, without capture, staging or waits. */
CUresult vd_copy_submit_locked(struct vd_stream *stream, const struct vd_copy *copy);
CUresult vd_set_submit_locked(struct vd_stream *stream, const struct vd_set *set);
CUresult vd_copy(CUstream handle, const struct vd_copy *copy, bool synchronous,
                 const char *what);
uint32_t vd_uses_of(uint64_t address, uint64_t length_bytes, uint16_t access,
                    struct gpu_use *use);

/* copy_nd.c */
CUresult vd_copy_of_3d_locked(const CUDA_MEMCPY3D *params, struct vd_copy *out);

/* array.c: finds the texels of an array; false: not an array */
bool vd_array_texels_locked(CUarray array, struct vd_texels *texels);

/* texture.c: finds the memory of a texture or surface object; false: none */
bool vd_texture_memory_locked(uint64_t word, uint64_t *address, uint64_t *length_bytes);

/* Pools are objects (base/object.c). */
_Static_assert(sizeof(struct vd_pool) <= VD_OBJECT_BYTES, "pool");

#endif
