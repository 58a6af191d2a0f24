/* convert.h - plain allocations, which become managed memory where that helps (convert.c).
 *
 * All in the guard, errno saved.
 */
#ifndef PUMP_CONVERT_H
#define PUMP_CONVERT_H

#include "shim/execute/execute.h"

/* In place of cuMemAlloc, cuMemAllocPitch and cuMemFree. */
CUresult pump_allocate(CUdeviceptr *address, size_t bytes);
CUresult pump_allocate_pitch(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                             size_t height, unsigned int element_bytes);
CUresult pump_free(CUdeviceptr address);

/* Managed memory of the program's own, on the current device, becomes a range, or counts as
 * plain where there is no room for one. */
void pump_managed_track(CUdeviceptr address, size_t bytes);

/* Memory that the driver's own pools have handed out on the current device, after the real
 * call: it counts, unless the stream is being captured. */
void pump_plain_track(CUdeviceptr address, size_t bytes, CUstream stream);

/* In place of cuMemFreeAsync; `real` is the driver's function of the hook's own name. */
CUresult pump_free_ordered(CUdeviceptr address, CUresult (*real)(CUdeviceptr, CUstream),
                           CUstream stream, bool per_thread);

/* Managed memory of the program's that pump is to leave where it is: from the call on no
 * command for it is carried out, as if it had been freed, and it counts as plain. The
 * second function undoes that; `bytes` are all of it. */
void pump_managed_leave(CUdeviceptr address);
void pump_managed_return(CUdeviceptr address, size_t bytes);

/* The card had no room for an allocation that was not converted. */
bool pump_plain_refused(void);

/* ---- managed variables of the program's code (managed_variables.c) ---------------- */

/* The program has learned the address of a variable; smaller ones than a block are left. */
void pump_variable_found(uint64_t base, uint64_t bytes);

/* Around the real call that unloads code: takes all variables out before it, and puts those
 * back behind it that live on. */
struct pump_variables {
  uint32_t count, plain_count;
  struct pump_range_info ranges[PUMP_VARIABLES];
  struct pump_plain_info plains[PUMP_VARIABLES]; /* under READ_MOSTLY (hooks/advice.c) */
};
void pump_variables_hold(struct pump_variables *held);
void pump_variables_settle(struct pump_variables *held);
void pump_variables_reset(void);

/* ---- ends of contexts (context_end.c) ----------------------------------------------- */

/* A context that may be about to end, and what was taken out of the range table for
 * that: before the real call, as with any free, for executors of another context of
 * the device may be moving it. Given back should the context live on. */
struct pump_context_end {
  CUcontext context; /* NULL: none ends */
  size_t count, room;
  struct pump_range_info *ranges;
};
/* Before the real call; not in the guard. */
struct pump_context_end pump_context_ending(CUcontext context);
/* After it: the driver has freed what was allocated there, if the context is `over`. */
void pump_context_ended(struct pump_context_end *end, bool over);

/* Before a context of the device ends, and which one is unknown: our threads leave all. */
void pump_contexts_leave(CUdevice device);
/* What threads remember of contexts and of streams in them is void. */
void pump_contexts_unlearn(void);

/* The primary context if a release or a reset of it may end it, else NULL; our threads
 * leave the contexts of a device that has an active one which pump does not know. */
CUcontext pump_primary_ending(CUdevice device, bool reset);

#endif
