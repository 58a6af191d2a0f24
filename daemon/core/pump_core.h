/* pump_core.h - the interface of libpump_core.so for Python (cffi reads it from here).
 *
 * The worker's side of the event ring: batches, sleep and wake-ups. Plain data in columns,
 * so that numpy reads it without a copy. Nothing here decides.
 */
#ifndef PUMP_CORE_H
#define PUMP_CORE_H

#include "pump_abi.h"

/* cffi: begin */

/* One drained batch, as columns. Row i of an operation owns the uses [use_begin[i],
 * use_begin[i+1]). ALLOC, FREE, SYNC, HINT, PARAMS, NAME and PROGRESS are rows as well. A
 * row's payload is payload_bytes[i] bytes of `payload`, starting at payload_begin[i]. */
struct pump_batch {
  uint32_t rows;
  uint32_t uses;
  uint32_t malformed;    /* skipped invalid records */
  uint32_t payload_used; /* bytes used in `payload` */
  uint64_t seq[4096];
  uint64_t time_ns[4096];
  uint64_t function[4096];
  uint64_t signature[4096];
  uint32_t stream[4096];
  uint32_t device[4096];
  uint16_t kind[4096];
  uint16_t dropped[4096]; /* uses that were not recorded: beyond PUMP_MAX_EXTENTS */
  uint32_t use_begin[4097];
  uint32_t payload_begin[4096];
  uint32_t payload_bytes[4096];
  /* Per use. The length of an ARGUMENT is 0 until pump_model_ingest estimates it. */
  uint32_t slot[65536];
  uint32_t generation[65536];
  uint32_t argument[65536];    /* ARGUMENT: the pointer's byte offset in the parameters */
  uint32_t block_units[65536]; /* ARGUMENT: to its allocator block's end; 0: unknown */
  uint64_t offset_bytes[65536];
  uint64_t length_bytes[65536];
  uint8_t access[65536];
  uint8_t payload[1048576];
};

/* Drains up to 4096 rows into `batch`. Returns the number of rows, or -EPROTO when the
 * ring's indices are inconsistent. In this case the head jumps to the tail, and the
 * caller resynchronises from the range table. */
int pump_core_drain(struct pump_shm *shm, struct pump_batch *batch);

/* Returns how many records wait in the event ring, clamped to its size. */
uint32_t pump_core_backlog(struct pump_shm *shm);

/* Skips all waiting records; returns how many. */
uint32_t pump_core_skip(struct pump_shm *shm);

/* Copies up to `max` live ranges consistently, by slot; returns how many. A range that
 * keeps changing is left out: a later event reports it. */
uint32_t pump_core_ranges(struct pump_shm *shm, uint32_t *slots, struct pump_range *copies,
                          uint32_t max);

/* Returns the activity counter. Read it before a tick and pass it to the next wait. */
uint64_t pump_core_activity(struct pump_shm *shm);

/* Spins for `spin_ns`, then sleeps until the shim rings or `timeout_ns` passes. Returns 1
 * at once when an event is ready or the activity counter differs from `seen_activity`, 0
 * after the timeout. */
int pump_core_wait(struct pump_shm *shm, uint64_t seen_activity, uint64_t spin_ns,
                   uint64_t timeout_ns);

/* Returns how long the next wait should spin, after a wait of `waited_ns`. */
uint64_t pump_core_spin_ns(uint64_t waited_ns);

/* Makes another thread's wait in this process return 1: the current or the next one. */
void pump_core_knock(struct pump_shm *shm);

/* Returns CLOCK_MONOTONIC, the clock of the shim's events. */
uint64_t pump_core_now_ns(void);

/* cffi: end */

#endif
