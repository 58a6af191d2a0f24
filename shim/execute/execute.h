/* execute.h - what executors offer to the rooms above: they carry out the worker's commands
 * and schedules, populate new ranges, and leave the driver before a context ends.
 *
 * Every function may be called from any application thread under the recursion guard,
 * leaves errno, the current context and the capture mode as it found them, and reports no
 * error of its own to the program.
 */
#ifndef PUMP_EXECUTE_H
#define PUMP_EXECUTE_H

#include "shim/record/record.h"

/* ---- contexts of the program ----------------------------------------------------- */

/* Before `context` is destroyed or reset: its executors leave the driver and
 * destroy their streams and events (bounded: at most the running slices). A
 * later pump_context_seen starts them again. */
void pump_executors_context_gone(CUcontext context);
/* The same of each known context of the device: one of them ends, and which is unknown.
 * Those that live on are seen again with their next call. */
void pump_executors_device_gone(CUdevice device);

/* ---- executors ----------------------------------------------------------- */

/* A new range that shall become resident: queued for the in-threads of its
 * device, carried out while everything fits into the budget. Never waits. */
void pump_populate(uint32_t slot, uint32_t generation);

/* After the range in `slot` was marked dead (its generation has changed in the
 * table): returns once no slice runs on it. Queued commands are not waited for. */
void pump_slot_wait(uint32_t slot);

/* Keeps executors off a range, as long as it is not opened again: commands for it
 * end as STALE. true: none is working on it. Each call needs one of pump_slot_open. */
bool pump_slot_close(uint32_t slot);
void pump_slot_open(uint32_t slot);

/* Wakes the threads of all devices that have any. */
void pump_executors_wake_all(void);

/* Starts executors of `device` unless they run: the first in-thread, or with `full`
 * the usual number and the marker thread. Cheap when they do. */
void pump_executors_need(uint32_t device, bool full);
/* The same with `full` for the link thread: the first in-thread, if there is one, does it.
 * To be called again until it is done. */
void pump_executors_ask(uint32_t device);

/* ---- prefetches ---------------------------------------------------------------------- */

/* Prefetches to the device, or to the host, by whichever call the driver has. */
static inline CUresult pump_prefetch(uint32_t device, bool to_gpu, uint64_t address,
                                     uint64_t length_bytes, CUstream stream) {
  CUdevice number = (CUdevice)device;
  if (PUMP_HAS(cuMemPrefetchAsync_v2)) {
    CUmemLocation location = {.type = to_gpu ? CU_MEM_LOCATION_TYPE_DEVICE
                                             : CU_MEM_LOCATION_TYPE_HOST,
                              .id = to_gpu ? number : 0};
    return pump_real.cuMemPrefetchAsync_v2(address, length_bytes, location, 0, stream);
  }
  return pump_real.cuMemPrefetchAsync(address, length_bytes,
                                      to_gpu ? number : CU_DEVICE_CPU, stream);
}

/* ---- streams (own_streams.c) ------------------------------------------------------- */

/* The program has made a stream of that priority (own_streams.c). */
void pump_priority_used(int priority);
/* A non-blocking stream of our own in the current context, of a priority that the program
 * does not use if there is one. */
CUresult pump_stream_make(CUstream *stream);

/* ---- schedules (schedule.c) -----------------------------------------------------------
 */

/* While header.armed is not 0: compares the operation with the predicted one. If they
 * differ, entries for this operation and all behind it are void. */
void pump_schedule_compare(const struct pump_issued *issued);

/* Operations have executed, bytes have left or arrivals ended: wakes executors whose next
 * entry may go. */
void pump_schedule_wake(void);

/* ---- life -------------------------------------------------------------------------- */

/* Ends all threads of all sets; waits until `deadline_ns`. Takes no lock. */
void pump_executors_stop(uint64_t deadline_ns);

void pump_executors_fork_child(void);
void pump_slot_fork_child(void);
void pump_populate_fork_child(void);

#endif
