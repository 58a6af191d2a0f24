/* cudart.h - what the files of the stand-in for libcudart share.
 *
 *   cudart_error.c     the thread's last error, names and texts
 *   cudart_register.c  fat binaries, kernels and variables that programs register
 *   cudart_launch.c    launches, what is known of a kernel
 *   cudart_memory.c    memory, pools, sets
 *   cudart_copy.c      copies of bytes in a row, variables
 *   cudart_copy_nd.c   copies of rows and slices, also of arrays
 *   cudart_array.c     arrays, texture and surface objects
 *   cudart_device.c    devices
 *   cudart_stream.c    streams, events, capture
 *   cudart_graph.c     graphs: shape, execution, memory, objects
 *   cudart_node.c      what their nodes do
 *   torch_blocks.c     blocks of PyTorch's caching allocator
 */
#ifndef PUMP_CUDART_H
#define PUMP_CUDART_H

#include "runtime.h"

/* Keeps `error` as the thread's last one, if it is one; returns it. */
cudaError_t rt_keep(cudaError_t error);

#define RT_API(name, parameters) RT_FUNCTION(cudaError_t, name, parameters)

/* A function and its twin for per-thread default streams: `value` is the result of either,
 * by what `driver` points at. */
#define RT_TWINS(suffix, name, parameters, value)                                          \
  RT_API(name, parameters) {                                                               \
    const struct rt_driver *driver = &rt_driver;                                           \
    return rt_keep(value);                                                                 \
  }                                                                                        \
  RT_API(name##suffix, parameters) {                                                       \
    const struct rt_driver *driver = &rt_per_thread;                                       \
    return rt_keep(value);                                                                 \
  }

/* A function whose work one function of the driver does; with a twin. */
#define RT_FORWARD(name, parameters, symbol, arguments)                                    \
  RT_API(name, parameters) {                                                               \
    cudaError_t error = rt_enter();                                                        \
    if (error == cudaSuccess) error = rt_driver.symbol arguments;                          \
    return rt_keep(error);                                                                 \
  }
#define RT_FORWARD_TWINS(suffix, name, parameters, symbol, arguments)                      \
  RT_TWINS(suffix, name, parameters, rt_enter() ?: driver->symbol arguments)

/* The driver's kernel of what the program holds: the address of a host function or a
 * handle that it was given. */
cudaError_t rt_kernel_of(const void *function, CUkernel *out);
/* The host function of such a kernel; the handle itself where it has none. */
void *rt_function_of(CUkernel kernel);
/* What an array is made of, and how long a texel is; enters the context. */
cudaError_t rt_array_shape(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *shape,
                           size_t *texel_bytes);
/* A copy of a box, checked, as the driver describes it; and back. */
cudaError_t rt_box_of(const struct cudaMemcpy3DParms *given, CUDA_MEMCPY3D *out);
cudaError_t rt_box_told(const CUDA_MEMCPY3D *box, struct cudaMemcpy3DParms *out);
/* The driver's address of a registered variable; `length_bytes` may be NULL. */
cudaError_t rt_variable_of(const void *variable, CUdeviceptr *out, size_t *length_bytes);
/* Where so many bytes of it lie; enters the context. */
cudaError_t rt_place_of(const void *variable, size_t offset, size_t length_bytes,
                        void **out);

static inline CUdeviceptr rt_address(const void *pointer) {
  return (CUdeviceptr)(uintptr_t)pointer;
}
static inline void *rt_pointer(CUdeviceptr address) {
  return (void *)(uintptr_t)address;
}

#endif
