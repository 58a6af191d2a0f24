/* model_ranges.h - ranges and the blocks that they own. */
#ifndef PUMP_MODEL_RANGES_H
#define PUMP_MODEL_RANGES_H

#include <stdbool.h>

#include "model.h"

/* IN_PLACE_NO: blocks migrate. IN_PLACE_ASKED, IN_PLACE_ENDING: executors are setting or
 * withdrawing the advice; blocks still migrate. IN_PLACE_TRIAL, IN_PLACE_KEPT: kernels read
 * in place. IN_PLACE_NEVER: refused, or slower than migration. */
enum {
  IN_PLACE_NO,
  IN_PLACE_ASKED,
  IN_PLACE_TRIAL,
  IN_PLACE_KEPT,
  IN_PLACE_ENDING,
  IN_PLACE_NEVER
};

/* Whether kernels read a range in place. */
struct range_in_place {
  uint8_t state;     /* IN_PLACE_* */
  uint8_t large;     /* operations that lacked much of the range */
  uint8_t slower;    /* consecutive operations that were slower than migration */
  uint8_t unproven;  /* operations of a trial without a verdict */
  bool failed;       /* an executor could not set the advice */
  int32_t asked;     /* blocks, from the first, whose advice the executors have */
  int32_t answered;  /* blocks whose advice they have answered */
  uint64_t since_ns; /* when the newest advice was complete */
};

struct range {
  uint64_t base, length_bytes;
  int32_t first_block; /* NONE: there is no range */
  int32_t blocks;
  uint32_t generation;
  uint32_t device;
  uint64_t lead_bytes; /* from the start of the first block to the base */
  struct range_in_place in_place;
};

/* Gaps of up to this many blocks have a list per size, so that one is found at once; larger
 * gaps are searched [guessed]. */
#define GAP_SIZES 4096

struct ranges {
  struct range all[PUMP_MAX_RANGES]; /* by slot */
  int32_t block_end;                 /* first block number that was never used */
  int32_t gaps[GAP_SIZES + 1];       /* lists by size (idle_next); [0]: larger gaps */
};

struct model_span {
  uint64_t offset_bytes, length_bytes;
};
/* Returns the part of the range that these blocks cover. */
static inline struct model_span model_span(const struct range *range, int32_t first_block,
                                           int32_t blocks) {
  uint64_t begin = (uint64_t)(first_block - range->first_block) << 21;
  uint64_t end = begin + ((uint64_t)blocks << 21);
  begin = begin > range->lead_bytes ? begin - range->lead_bytes : 0;
  end -= range->lead_bytes;
  if (end > range->length_bytes) end = range->length_bytes;
  return (struct model_span){begin, end - begin};
}

/* Tracks a range, whose blocks begin in `state`; forgets the slot's previous range. Ignores
 * a range that cannot exist. */
void model_range_add(struct pump_model *m, uint32_t slot, const struct pump_range *found,
                     uint32_t state);
void model_range_remove(struct pump_model *m, uint32_t slot);

#endif
