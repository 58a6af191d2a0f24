/* convert.h - plain allocations, which become managed memory if that helps (convert.c).
 *
 * All functions require the guard and a saved errno, unless noted otherwise.
 */
#ifndef PUMP_CONVERT_H
#define PUMP_CONVERT_H

#include "shim/execute/execute.h"

/* Replace cuMemAlloc, cuMemAllocPitch and cuMemFree. */
CUresult pump_allocate(CUdeviceptr *address, size_t bytes);
CUresult pump_allocate_pitch(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                             size_t height, unsigned int element_bytes);
CUresult pump_free(CUdeviceptr address);

/* Makes a range of managed memory of the program, on the current device. Counts it as
 * plain if the table is full. */
void pump_managed_track(CUdeviceptr address, size_t bytes);

/* Counts memory that the driver's own pools have handed out on the current device, after
 * the real call, unless the stream is being captured. */
void pump_plain_track(CUdeviceptr address, size_t bytes, CUstream stream);

/* Replaces cuMemFreeAsync; `real` is the driver's function with the hook's own name. */
CUresult pump_free_ordered(CUdeviceptr address, CUresult (*real)(CUdeviceptr, CUstream),
                           CUstream stream, bool per_thread);

/* Stops moving managed memory of the program: no further command for it is executed, as
 * if it had been freed, and it counts as plain. `pump_managed_return` undoes that if
 * `bytes` cover the whole allocation. */
void pump_managed_leave(CUdeviceptr address);
void pump_managed_return(CUdeviceptr address, size_t bytes);

/* Returns whether the GPU had no memory for an allocation that was not converted. */
bool pump_plain_refused(void);

/* ---- managed variables of the program's code (managed_variables.c) ---------------- */

/* Tracks a variable whose address the program has looked up, if it has a block or
 * more. */
void pump_variable_found(uint64_t base, uint64_t bytes);

/* Called around the real call that unloads code: all variables are removed before it, and
 * surviving variables are put back after it. */
struct pump_variables {
  uint32_t count, plain_count;
  struct pump_range_info ranges[PUMP_VARIABLES];
  struct pump_plain_info plains[PUMP_VARIABLES]; /* under READ_MOSTLY (hooks/advice.c) */
};
void pump_variables_remove(struct pump_variables *removed);
void pump_variables_restore(struct pump_variables *removed);
void pump_variables_reset(void);

/* ---- ends of contexts (context_end.c) ----------------------------------------------- */

/* A context that may be about to end, and the ranges that were removed for that. They are
 * removed before the real call, as with any free, because executors of another context of
 * the device may be moving them. They are put back if the context survives. */
struct pump_context_end {
  CUcontext context; /* NULL: no context ends */
  size_t count, capacity;
  struct pump_range_info *ranges;
};
/* Called before the real call, outside the guard. */
struct pump_context_end pump_context_ending(CUcontext context);
/* Called after it: if the context is `over`, the driver has freed its allocations. */
void pump_context_ended(struct pump_context_end *end, bool over);

/* Makes our threads leave all contexts of a device, before an unknown one ends. */
void pump_contexts_leave(CUdevice device);
/* Voids what threads remember of contexts and of streams in them. */
void pump_contexts_unlearn(void);

/* Returns the primary context if a release or reset may end it, else NULL. If the device
 * has an active primary context that is unknown, our threads leave its contexts. */
CUcontext pump_primary_ending(CUdevice device, bool reset);

#endif
