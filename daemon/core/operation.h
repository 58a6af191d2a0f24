/* operation.h - an operation of the client, as every part of the core receives it. */
#ifndef PUMP_OPERATION_H
#define PUMP_OPERATION_H

#include <stdint.h>

/* cffi: begin */

/* Blocks of an access that were discarded since their last use: the first block, the
 * blocks in between, the last block. Above the bits of PUMP_ACCESS_* [derived]. */
#define PUMP_FRESH_FIRST 0x100
#define PUMP_FRESH 0x200
#define PUMP_FRESH_LAST 0x400

/* A part of a range that an operation reaches. In a prediction `missing` is 0, or tells why
 * only the length is known: slot, generation and offset are then an earlier access's. */
struct pump_access {
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint32_t access; /* PUMP_ACCESS_* and PUMP_FRESH_* */
  uint32_t missing;
};

/* An issued operation. `accesses` belongs to the caller. */
struct pump_operation {
  uint64_t seq;
  uint64_t issued_ns;
  uint64_t function;  /* 0 for copies and memsets */
  uint64_t signature; /* of the launch, without addresses; 0: none, so the lengths of the
                         accesses identify it */
  uint32_t stream;
  uint32_t kind;    /* PUMP_EVENT_* */
  uint32_t dropped; /* accesses beyond PUMP_MAX_EXTENTS, which the record does not name */
  uint32_t count;
  const struct pump_access *accesses;
};

/* cffi: end */

#endif
