/* pump_core.h - what libpump_core.so offers to Python (read by cffi from here).
 *
 * The worker's side of the rings: batches in, commands out, sleep and wake-ups. Plain data
 * in columns, so that numpy reads it without a copy. Nothing here decides.
 */
#ifndef PUMP_CORE_H
#define PUMP_CORE_H

#include "pump_abi.h"

/* cffi: begin */

/* One drained batch, as columns. Row i of an operation owns the uses
 * [use_begin[i], use_begin[i+1]). ALLOC, FREE, SYNC, HINT, PARAMS, NAME and PROGRESS
 * are rows as well. A row's payload is payload_bytes[i] bytes of `payload` from
 * payload_begin[i] on. */
struct pump_batch {
  uint32_t rows;
  uint32_t uses;
  uint32_t malformed;    /* records that made no sense and were passed over */
  uint32_t payload_used; /* bytes of `payload` */
  uint64_t seq[4096];
  uint64_t time_ns[4096];
  uint64_t function[4096];
  uint64_t signature[4096];
  uint32_t stream[4096];
  uint32_t device[4096];
  uint16_t kind[4096];
  uint16_t dropped[4096]; /* uses that are not recorded: beyond PUMP_MAX_EXTENTS */
  uint32_t use_begin[4097];
  uint32_t payload_begin[4096];
  uint32_t payload_bytes[4096];
  /* per use; an ARGUMENT has length 0 until pump_model_ingest has worked it out */
  uint32_t slot[65536];
  uint32_t generation[65536];
  uint32_t argument[65536]; /* ARGUMENT: byte offset of the pointer in the parameters */
  uint32_t
      block_units[65536]; /* ARGUMENT: to the end of the allocator's block; 0: unknown */
  uint64_t offset_bytes[65536];
  uint64_t length_bytes[65536];
  uint8_t access[65536];
  uint8_t payload[1048576];
};

/* A reaped command. */
struct pump_outcome {
  uint64_t ticket;
  uint32_t result;
  uint32_t duration_us;
};

/* Drains up to 4096 rows into `batch`. Returns the number of rows, or -EPROTO
 * when the ring's indices make no sense: then the head jumps to the tail and
 * the caller resynchronises from the range table. */
int pump_core_drain(struct pump_shm *shm, struct pump_batch *batch);

/* Records waiting in the event ring (clamped to its size). */
uint32_t pump_core_backlog(struct pump_shm *shm);

/* Jumps over everything that waits; returns how many records were passed over. */
uint32_t pump_core_skip(struct pump_shm *shm);

/* Consistent copies of all live ranges, by slot; returns how many of at most `max`. One
 * that keeps changing is left out: an event reports it later. */
uint32_t pump_core_ranges(struct pump_shm *shm, uint32_t *slots, struct pump_range *copies,
                          uint32_t max);

/* Hands commands to the executors of (device, direction) and wakes them once. Returns
 * how many found room in the ring, or -EINVAL for a device or direction out of bounds. */
int pump_core_submit(struct pump_shm *shm, uint32_t device, uint32_t direction,
                     const struct pump_command *commands, uint32_t count);

/* Collects finished commands of (device, direction) into `out`; returns how
 * many, or -EINVAL. `*cursor` is the caller's position and starts at 0. */
int pump_core_reap(struct pump_shm *shm, uint32_t device, uint32_t direction,
                   uint64_t *cursor, struct pump_outcome *out, uint32_t max);

/* Value of the activity counter: read it before a tick, pass it to the next wait. */
uint64_t pump_core_activity(struct pump_shm *shm);

/* Spins for `spin_ns`, then sleeps until the shim rings or `timeout_ns` passes.
 * Returns 1 at once when an event is ready or the activity counter has moved on
 * from `seen_activity`, 0 after the timeout. */
int pump_core_wait(struct pump_shm *shm, uint64_t seen_activity, uint64_t spin_ns,
                   uint64_t timeout_ns);

/* How long the next wait is to spin, after one that took `waited_ns`. */
uint64_t pump_core_spin_ns(uint64_t waited_ns);

/* Lets a wait that another thread of this process is in, or its next one, return 1. */
void pump_core_knock(struct pump_shm *shm);

/* CLOCK_MONOTONIC, as the shim's events carry it. */
uint64_t pump_core_now_ns(void);

/* cffi: end */

#endif
