/* copy_extents.h - extents of copies and memsets (copy_extents.c). Each function that
 * takes an operation initializes it. Both sides may be any memory: only live ranges have
 * extents.
 */
#ifndef PUMP_COPY_EXTENTS_H
#define PUMP_COPY_EXTENTS_H

#include "record.h"

/* One side of a copy. Address 0: an array. */
struct pump_side {
  uint64_t address, pitch, slice_bytes;
};

struct pump_box {
  uint64_t width_bytes, height, depth;
  struct pump_side from, to;
  bool at_most; /* lengths are upper bounds, because array elements have an unknown size */
};

/* Returns the bytes from a side's first byte to its last. Returns 0 for an empty side, an
 * array, or on overflow. */
uint64_t pump_side_bytes(const struct pump_side *side, const struct pump_box *box);

/* Converts the program's structure. NULL becomes an empty box: the driver refuses it. */
struct pump_box pump_box_2d(const CUDA_MEMCPY2D *copy);
struct pump_box pump_box_3d(const CUDA_MEMCPY3D *copy);
struct pump_box pump_box_peer(const CUDA_MEMCPY3D_PEER *copy);
struct pump_box pump_box_of_operands(const CUDA_MEMCPY3D_BATCH_OP *copy);
/* Address 0: an array. */
struct pump_box pump_box_of_bytes(uint64_t to, uint64_t from, uint64_t bytes);

void pump_box_extents(struct pump_op *op, const struct pump_box *box);
void pump_copy_extents(struct pump_op *op, uint64_t to, uint64_t from, size_t bytes);
void pump_copy_extents_3d(struct pump_op *op, const CUDA_MEMCPY3D *copy);
void pump_set_extents(struct pump_op *op, uint64_t to, uint64_t pitch, uint64_t row_bytes,
                      uint64_t height);

#endif
