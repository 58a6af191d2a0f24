/* extents.h - learns which bytes behind a kernel's pointers are used.
 *
 * A caching allocator asks the driver for segments and hands out tensors inside
 * them, so a launch shows where its tensors begin, not where they end. This
 * module estimates an end for each pointer, from integer parameters, by-value
 * pointer tables, copies and the places where other tensors begin. It does no
 * I/O, reads no clock, starts no thread, keeps bounded memory (11 MiB, touched
 * as it is needed, and up to 12 MiB of starts) and answers the same calls always
 * in the same way. Not thread-safe: one learner per worker. The rule is described in
 * extents.c, its scores in docs/extents.md.
 *
 * Words: a segment is one live range (slot, generation); a start is an offset in
 * it at which a tensor was seen to begin; an argument is the byte offset of a
 * pointer in the launch's parameter buffer; a signature is the caller's hash of
 * everything in a launch but its live pointers.
 */
#ifndef PUMP_EXTENTS_H
#define PUMP_EXTENTS_H

#include <stdint.h>

/* cffi: begin */

/* Parameters beyond this many bytes are ignored. */
#define PUMP_EXTENTS_PARAMETER_BYTES 8192

struct pump_extents;

/* One pointer of a launch: into which live range, and which parameter it is. */
struct pump_pointer {
  uint32_t slot;
  uint32_t generation;
  uint32_t argument;     /* byte offset of the word in the parameter buffer */
  uint32_t block_units;  /* to the end of the allocator's block, in 512 bytes, the one that
                            the pointer stands in included; 0: not known */
  uint64_t offset_bytes; /* from the range's base */
};

/* NULL when memory is short. */
struct pump_extents *pump_extents_new(void);
void pump_extents_delete(struct pump_extents *learner);

/* A range appeared in `slot`; what was in that slot before is forgotten. Slots
 * beyond the range table are passed over. */
void pump_extents_segment(struct pump_extents *learner, uint32_t slot, uint32_t generation,
                          uint64_t base, uint64_t length_bytes);
void pump_extents_segment_gone(struct pump_extents *learner, uint32_t slot);

/* The mangled name of a kernel handle; `bytes` without a final zero. It may come
 * late or never. Another name for a known handle: what was learned is dropped. */
void pump_extents_name(struct pump_extents *learner, uint64_t function, const char *name,
                       uint32_t bytes);

/* The parameter buffer of the launch with this signature, shortly before the
 * launch itself is reported. May be repeated; lost ones only cost knowledge. */
void pump_extents_params(struct pump_extents *learner, uint64_t function,
                         uint64_t signature, const uint32_t grid[3],
                         const uint32_t block[3], const uint8_t *parameters,
                         uint32_t bytes);

/* A kernel launch with all its distinct pointers into live ranges. Fills the
 * estimated length behind each (never beyond its range; 0: not used, or the
 * range is not known here), learns, and returns how many are not 0. Pointers
 * beyond PUMP_MAX_EXTENTS get 0. */
uint32_t pump_extents_kernel(struct pump_extents *learner, uint64_t function,
                             uint64_t signature, uint32_t count,
                             const struct pump_pointer *pointers, uint64_t *length_bytes);

/* Learns from a copy or memset, whose length is exact. */
void pump_extents_bytes(struct pump_extents *learner, uint32_t slot, uint32_t generation,
                        uint64_t offset_bytes, uint64_t length_bytes);

/* cffi: end */

#endif
