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

/* The card had no room for an allocation that was not converted. */
bool pump_plain_refused(void);

#endif
