/* runtime.h - what the stand-ins for libcudart, libcublas and libcublasLt share.
 *
 * DESIGN
 * A stand-in reaches the driver as the real library does: dlopen("libcuda.so.1"),
 * one dlsym, then cuGetProcAddress for every function. So an interposer of the driver
 * sees what it would see on a real machine. They refuse to work without the virtual
 * GPU's profile in the environment, and hold nothing of NVIDIA's private interfaces.
 *
 * Every function of the real libraries that is not implemented is a stub, generated
 * from names/ when pump is built (stubs.cmake): it is weak, says its name in
 * PUMP_VIRTUAL_LOG and answers "not supported".
 */
#ifndef PUMP_RUNTIME_H
#define PUMP_RUNTIME_H

#include <stdbool.h>

#include "runtime_types.h"

/* The driver's functions by symbol, as driver_list.h declares them. */
struct rt_driver {
#define X(level, twin, symbol, name, version, parameters, arguments)                       \
  CUresult(*symbol) parameters;
#include "lab/driver/base/driver_list.h"
};
extern struct rt_driver rt_driver;
extern struct rt_driver rt_per_thread; /* the same for per-thread default streams */

/* runtime_driver.c */
cudaError_t rt_load(void);  /* the driver's functions are there */
cudaError_t rt_init(void);  /* and cuInit has succeeded */
cudaError_t rt_enter(void); /* and this thread has a current context */
void rt_forget_context(void);
/* An allocator hands a block out, or takes it back (length_bytes 0): so far a kernel's
 * pointer into it reaches on the virtual GPU. */
void rt_block(uint64_t address, uint64_t length_bytes);
void rt_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rt_stub(const char *name);

/* A function of the library: declared, because it is exported, and defined. */
#define RT_EXPORT __attribute__((visibility("default")))
#define RT_FUNCTION(result, name, parameters)                                              \
  RT_EXPORT result name parameters;                                                        \
  RT_EXPORT result name parameters

#endif
