/* upcalls.c - calls from a lower folder to a higher one: see base/upcalls.h. */
#include "calls.h"

const struct gpu_hooks vd_hooks = {.start = vd_on_start,
                                   .finish = vd_on_finish,
                                   .drop = vd_on_drop,
                                   .move = vd_on_move,
                                   .stall = vd_on_stall};

const struct vd_upcalls vd_upcalls = {
    .stream_ends = vd_capture_forget_stream_locked,
    .capture_copy = vd_capture_copy_locked,
    .capture_set = vd_capture_set_locked,
    .capture_allocation = vd_capture_allocation_locked,
    .capture_free = vd_capture_free_locked,
    .graph_memory_free = vd_graph_memory_free_locked,
    .capture_kernel = vd_capture_kernel_locked,
};
