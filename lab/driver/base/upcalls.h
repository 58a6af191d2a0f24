/* upcalls.h - calls from a lower folder to a higher one, for work that only the higher
 * folder can do. calls/upcalls.c fills the tables, which never change. */
#ifndef PUMP_VIRTUAL_UPCALLS_H
#define PUMP_VIRTUAL_UPCALLS_H

#include <stdbool.h>

#include "driver_types.h"
#include "lab/gpu/gpu_engine.h"

struct vd_copy;
struct vd_kernel_call;
struct vd_memory;
struct vd_set;
struct vd_stream;

/* Called by the model as time advances. */
extern const struct gpu_hooks vd_hooks;

extern const struct vd_upcalls {
  /* timeline -> graph: a stream is destroyed, which ends its part in a capture. */
  void (*stream_ends)(struct vd_stream *stream);
  /* memory, code -> graph: if the stream captures, makes the work a node and sets
   * *captured. */
  CUresult (*capture_copy)(struct vd_stream *stream, const struct vd_copy *copy,
                           bool *captured);
  CUresult (*capture_set)(struct vd_stream *stream, const struct vd_set *set,
                          bool *captured);
  CUresult (*capture_allocation)(struct vd_stream *stream, size_t length_bytes,
                                 CUdeviceptr *out);
  CUresult (*capture_free)(struct vd_stream *stream, CUdeviceptr address);
  CUresult (*capture_kernel)(struct vd_stream *stream, const struct vd_kernel_call *call,
                             const CUlaunchConfig *config, bool *captured);
  /* memory -> graph: the program frees memory of an allocation node. */
  CUresult (*graph_memory_free)(struct vd_memory *memory);
} vd_upcalls;

#endif
