/* cudart_copy.c - copies of contiguous bytes: calls the driver's function of that
 * direction, as the real runtime does. Also variables, which programs copy by name.
 */
#include "cudart.h"

static cudaError_t copy(const struct rt_driver *driver, void *to, const void *from,
                        size_t length_bytes, int kind) {
  cudaError_t error = rt_enter();
  if (error != cudaSuccess || length_bytes == 0) return error;
  switch (kind) {
  case cudaMemcpyHostToDevice:
    return driver->cuMemcpyHtoD_v2(rt_address(to), from, length_bytes);
  case cudaMemcpyDeviceToHost:
    return driver->cuMemcpyDtoH_v2(to, rt_address(from), length_bytes);
  case cudaMemcpyDeviceToDevice:
    return driver->cuMemcpyDtoD_v2(rt_address(to), rt_address(from), length_bytes);
  case cudaMemcpyHostToHost:
  case cudaMemcpyDefault:
    return driver->cuMemcpy(rt_address(to), rt_address(from), length_bytes);
  default:
    return cudaErrorInvalidMemcpyDirection;
  }
}

static cudaError_t copy_async(const struct rt_driver *driver, void *to, const void *from,
                              size_t length_bytes, int kind, cudaStream_t stream) {
  cudaError_t error = rt_enter();
  if (error != cudaSuccess || length_bytes == 0) return error;
  switch (kind) {
  case cudaMemcpyHostToDevice:
    return driver->cuMemcpyHtoDAsync_v2(rt_address(to), from, length_bytes, stream);
  case cudaMemcpyDeviceToHost:
    return driver->cuMemcpyDtoHAsync_v2(to, rt_address(from), length_bytes, stream);
  case cudaMemcpyDeviceToDevice:
    return driver->cuMemcpyDtoDAsync_v2(rt_address(to), rt_address(from), length_bytes,
                                        stream);
  case cudaMemcpyHostToHost:
  case cudaMemcpyDefault:
    return driver->cuMemcpyAsync(rt_address(to), rt_address(from), length_bytes, stream);
  default:
    return cudaErrorInvalidMemcpyDirection;
  }
}

RT_TWINS(_ptds, cudaMemcpy,
         (void *to, const void *from, size_t length_bytes, RT_ENUM(cudaMemcpyKind) kind),
         copy(driver, to, from, length_bytes, kind))
RT_TWINS(_ptsz, cudaMemcpyAsync,
         (void *to, const void *from, size_t length_bytes, RT_ENUM(cudaMemcpyKind) kind,
          cudaStream_t stream),
         copy_async(driver, to, from, length_bytes, kind, stream))

/* There is one device, and both sides are in its memory. */
static cudaError_t check_devices(int to_device, int from_device) {
  return to_device == 0 && from_device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

RT_API(cudaMemcpyPeer,
       (void *to, int to_device, const void *from, int from_device, size_t length_bytes)) {
  return rt_keep(check_devices(to_device, from_device)
                     ?: copy(&rt_driver, to, from, length_bytes, cudaMemcpyDeviceToDevice));
}

RT_API(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device,
                             size_t length_bytes, cudaStream_t stream)) {
  return rt_keep(check_devices(to_device, from_device)
                     ?: copy_async(&rt_driver, to, from, length_bytes,
                                   cudaMemcpyDeviceToDevice, stream));
}

/* -- variables -- */

cudaError_t rt_symbol_address(const void *symbol, size_t offset, size_t length_bytes,
                              void **out) {
  CUdeviceptr address = 0;
  size_t all_bytes = 0;
  cudaError_t error = rt_enter() ?: rt_variable_of(symbol, &address, &all_bytes);
  if (error != cudaSuccess) return error;
  if (offset > all_bytes || length_bytes > all_bytes - offset) return cudaErrorInvalidValue;
  *out = rt_pointer(address + offset);
  return cudaSuccess;
}

RT_API(cudaGetSymbolAddress, (void **out, const void *symbol)) {
  return rt_keep(out == NULL ? cudaErrorInvalidValue
                             : rt_symbol_address(symbol, 0, 0, out));
}

RT_API(cudaGetSymbolSize, (size_t *out, const void *symbol)) {
  CUdeviceptr address;
  cudaError_t error = out == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) error = rt_variable_of(symbol, &address, out);
  return rt_keep(error);
}

/* Sets `address`, which the copies below use, to the variable's address plus the offset. */
#define AT_SYMBOL(symbol, offset, copying)                                                 \
  __extension__({                                                                          \
    void *address;                                                                         \
    rt_symbol_address(symbol, offset, length_bytes, &address) ?: copying;                  \
  })

RT_TWINS(_ptds, cudaMemcpyToSymbol,
         (const void *symbol, const void *from, size_t length_bytes, size_t offset,
          RT_ENUM(cudaMemcpyKind) kind),
         AT_SYMBOL(symbol, offset, copy(driver, address, from, length_bytes, kind)))
RT_TWINS(_ptsz, cudaMemcpyToSymbolAsync,
         (const void *symbol, const void *from, size_t length_bytes, size_t offset,
          RT_ENUM(cudaMemcpyKind) kind, cudaStream_t stream),
         AT_SYMBOL(symbol, offset,
                   copy_async(driver, address, from, length_bytes, kind, stream)))
RT_TWINS(_ptds, cudaMemcpyFromSymbol,
         (void *to, const void *symbol, size_t length_bytes, size_t offset,
          RT_ENUM(cudaMemcpyKind) kind),
         AT_SYMBOL(symbol, offset, copy(driver, to, address, length_bytes, kind)))
RT_TWINS(_ptsz, cudaMemcpyFromSymbolAsync,
         (void *to, const void *symbol, size_t length_bytes, size_t offset,
          RT_ENUM(cudaMemcpyKind) kind, cudaStream_t stream),
         AT_SYMBOL(symbol, offset,
                   copy_async(driver, to, address, length_bytes, kind, stream)))
