/* extents.h - learns how many bytes a kernel uses after each of its pointers.
 *
 * A caching allocator requests segments from the driver and hands out tensors inside
 * them. So a launch shows the beginnings of its tensors, but not their ends. This module
 * estimates an end for each pointer from integer parameters, by-value pointer tables,
 * copies, and the beginnings of other tensors. It is deterministic, without I/O, clock or
 * threads. Its memory is bounded: 14 MiB, touched on demand, and up to 12 MiB of starts.
 * Not thread-safe: one learner per worker. extents.c describes the rule, docs/extents.md
 * its scores.
 *
 * Words: a segment is one live range (slot, generation). A start is the offset of a known
 * tensor in its segment. An argument is the byte offset of a pointer in the launch's
 * parameter buffer. A signature is the caller's hash of everything in a launch except its
 * live pointers.
 */
#ifndef PUMP_EXTENTS_H
#define PUMP_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */

/* Parameters beyond this many bytes are ignored [guessed]. */
#define PUMP_EXTENTS_PARAMETER_BYTES 8192

struct pump_extents;

/* One pointer of a launch into a live range. */
struct pump_pointer {
  uint32_t slot;
  uint32_t generation;
  uint32_t argument;     /* byte offset of the word in the parameter buffer */
  uint32_t block_units;  /* 512-byte units to the end of the allocator's block, including
                            the pointer's unit; 0: unknown */
  uint64_t offset_bytes; /* from the range's base */
};

/* Returns NULL when memory is short. */
struct pump_extents *pump_extents_new(void);
void pump_extents_delete(struct pump_extents *learner);

/* Adds a range in `slot`; forgets the slot's previous range. Ignores slots beyond the
 * range table. */
void pump_extents_segment(struct pump_extents *learner, uint32_t slot, uint32_t generation,
                          uint64_t base, uint64_t length_bytes);
void pump_extents_segment_gone(struct pump_extents *learner, uint32_t slot);

/* Sets the mangled name of a kernel handle: `bytes`, without a final zero. It may come
 * late or never. Another name for a known handle drops all knowledge about it. */
void pump_extents_name(struct pump_extents *learner, uint64_t function, const char *name,
                       uint32_t bytes);

/* Provides the parameter buffer of the launch with this signature, shortly before the
 * launch itself is reported. May be repeated; lost ones only cost knowledge. */
void pump_extents_params(struct pump_extents *learner, uint64_t function,
                         uint64_t signature, const uint32_t grid[3],
                         const uint32_t block[3], const uint8_t *parameters,
                         uint32_t bytes);

/* Learns from a kernel launch with all its distinct pointers into live ranges. Fills in
 * the estimated length after each pointer, at most up to its range's end. 0: unused,
 * unknown range, or beyond PUMP_MAX_EXTENTS. Returns how many lengths are not 0. */
uint32_t pump_extents_kernel(struct pump_extents *learner, uint64_t function,
                             uint64_t signature, uint32_t count,
                             const struct pump_pointer *pointers, uint64_t *length_bytes);

/* Learns from a copy or memset, which has an exact length. */
void pump_extents_bytes(struct pump_extents *learner, uint32_t slot, uint32_t generation,
                        uint64_t offset_bytes, uint64_t length_bytes);

/* cffi: end */

/* Returns whether the name of a kernel handle tells that it reads rows named by an index,
 * so that it reads each byte few times. */
bool pump_extents_gathers(struct pump_extents *learner, uint64_t function);

#endif
