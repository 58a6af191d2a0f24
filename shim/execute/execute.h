/* execute.h - the executors' interface. Executors carry out the worker's commands and
 * schedules, populate new ranges, and leave the driver before a context ends.
 *
 * Any application thread may call these functions under the recursion guard. They
 * preserve errno, the current context and the capture mode, and report no errors to the
 * program.
 */
#ifndef PUMP_EXECUTE_H
#define PUMP_EXECUTE_H

#include "shim/record/record.h"

/* ---- contexts of the program ----------------------------------------------------- */

/* Makes the executors of `context` leave the driver and destroy their streams and events.
 * Call it before the context is destroyed or reset. Waits at most for the running slices.
 * A later pump_context_note restarts them. */
void pump_executors_context_gone(CUcontext context);
/* Does the same for all known contexts of the device. Call it when one of them is about
 * to end but it is unknown which one. The others are registered again by their next
 * call. */
void pump_executors_device_gone(CUdevice device);

/* ---- executors ----------------------------------------------------------- */

/* Queues a new range for population by the device's in-threads. They populate it while
 * everything fits into the budget. Does not wait. */
void pump_populate_add(uint32_t slot, uint32_t generation);

/* Waits until no slice runs on the range in `slot`. Call it after the range was marked
 * dead, that is, after its generation changed in the table. Ignores queued commands. */
void pump_slot_wait(uint32_t slot);

/* Keeps executors off a range until pump_slot_open, which must follow each call: commands
 * for it end as STALE. Returns true if no executor is working on the range. */
bool pump_slot_close(uint32_t slot);
void pump_slot_open(uint32_t slot);

/* Wakes all executor threads of all devices. */
void pump_executors_wake_all(void);

/* Starts executors of `device` unless they run: the first in-thread, or with `full` the
 * usual number and the marker thread. Cheap if they already run. */
void pump_executors_start(uint32_t device, bool full);
/* Requests the same as `full`, for the link thread. The first in-thread, if it is
 * running, starts the others. Call it again until they run. */
void pump_executors_request(uint32_t device);

/* ---- prefetches ---------------------------------------------------------------------- */

/* Prefetches to the device or to the host, with the newest call that the driver has. */
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

/* Notes that the program created a stream of that priority. */
void pump_priority_note(int priority);
/* Creates a non-blocking stream in the current context, if possible with a priority that
 * the program does not use. */
CUresult pump_stream_make(CUstream *stream);

/* ---- schedules (schedule.c) ------------------------------------------------------ */

/* Compares the operation with the predicted one. Call it while header.armed is not 0. If
 * they differ, entries for this operation and all later ones become void. */
void pump_schedule_compare(const struct pump_issued *issued);

/* Wakes executors whose next entry has become ready, after operations executed or
 * transfers ended. */
void pump_schedule_wake(void);

/* ---- exit and fork ----------------------------------------------------------------- */

/* Ends all threads of all devices. Waits until `deadline_ns` and takes no lock. */
void pump_executors_stop(uint64_t deadline_ns);

void pump_executors_fork_child(void);
void pump_slot_fork_child(void);
void pump_populate_fork_child(void);

#endif
