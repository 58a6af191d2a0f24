/* cudart.h - declarations shared by the files of the stand-in for libcudart.
 *
 *   cudart_error.c:     The thread's last error, names and texts.
 *   cudart_register.c:  Fat binaries, kernels and variables that programs register.
 *   cudart_launch.c:    Launches, attributes of kernels.
 *   cudart_memory.c:    Memory, pools, memsets.
 *   cudart_copy.c:      Copies of contiguous bytes, variables.
 *   cudart_copy_nd.c:   Copies of rows and slices, also of arrays.
 *   cudart_array.c:     Arrays, texture and surface objects.
 *   cudart_device.c:    Devices.
 *   cudart_stream.c:    Streams, events, capture.
 *   cudart_graph.c:     Graphs: structure, execution, memory, user objects.
 *   cudart_node.c:      Graph nodes: kernels, copies, memsets, host functions.
 *   torch_blocks.c:     Blocks of PyTorch's caching allocator.
 */
#ifndef PUMP_CUDART_H
#define PUMP_CUDART_H

#include "runtime.h"

/* Stores `error` as the thread's last error unless it is cudaSuccess; returns it. */
cudaError_t rt_keep(cudaError_t error);

#define RT_API(name, parameters) RT_FUNCTION(cudaError_t, name, parameters)

/* Defines a function and its twin for per-thread default streams. `value` is the result
 * of both; `driver` points to the matching functions. */
#define RT_TWINS(suffix, name, parameters, value)                                          \
  RT_API(name, parameters) {                                                               \
    const struct rt_driver *driver = &rt_driver;                                           \
    return rt_keep(value);                                                                 \
  }                                                                                        \
  RT_API(name##suffix, parameters) {                                                       \
    const struct rt_driver *driver = &rt_per_thread;                                       \
    return rt_keep(value);                                                                 \
  }

/* Defines a function that forwards to one function of the driver; also with a twin. */
#define RT_FORWARD(name, parameters, symbol, arguments)                                    \
  RT_API(name, parameters) {                                                               \
    cudaError_t error = rt_enter();                                                        \
    if (error == cudaSuccess) error = rt_driver.symbol arguments;                          \
    return rt_keep(error);                                                                 \
  }
#define RT_FORWARD_TWINS(suffix, name, parameters, symbol, arguments)                      \
  RT_TWINS(suffix, name, parameters, rt_enter() ?: driver->symbol arguments)

/* Finds the driver's kernel for a host function's address or a kernel handle. */
cudaError_t rt_kernel_of(const void *function, CUkernel *out);
/* Returns the host function of such a kernel, or the handle itself if there is none. */
void *rt_function_of(CUkernel kernel);
/* Returns an array's descriptor and the size of a texel; enters the context. */
cudaError_t rt_array_shape(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *shape,
                           size_t *texel_bytes);
/* Converts a 3D copy to the driver's form and checks it. rt_box_as_parms() converts back.
 */
cudaError_t rt_box_of(const struct cudaMemcpy3DParms *given, CUDA_MEMCPY3D *out);
cudaError_t rt_box_as_parms(const CUDA_MEMCPY3D *box, struct cudaMemcpy3DParms *out);
/* Returns the driver's address of a registered variable; `length_bytes` may be NULL. */
cudaError_t rt_variable_of(const void *variable, CUdeviceptr *out, size_t *length_bytes);
/* Returns the address of `length_bytes` in a variable, with checks; enters the context. */
cudaError_t rt_symbol_address(const void *variable, size_t offset, size_t length_bytes,
                              void **out);

static inline CUdeviceptr rt_address(const void *pointer) {
  return (CUdeviceptr)(uintptr_t)pointer;
}
static inline void *rt_pointer(CUdeviceptr address) {
  return (void *)(uintptr_t)address;
}

#endif
