/* runtime.h - declarations shared by the stand-ins for libcudart, libcublas and
 * libcublasLt.
 *
 * DESIGN
 * A stand-in reaches the driver as the real library does: dlopen("libcuda.so.1"), one
 * dlsym, then cuGetProcAddress for every function. So an interposer of the driver sees
 * the same calls as on a real machine. Stand-ins refuse to work without the virtual GPU's
 * profile in the environment. They use only public interfaces of NVIDIA.
 *
 * Every unimplemented function of the real libraries is a stub, generated from names/
 * when pump is built (stubs.cmake). A stub is weak, logs its name in PUMP_VIRTUAL_LOG and
 * returns "not supported". */
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
extern struct rt_driver rt_per_thread; /* functions for per-thread default streams */

/* runtime_driver.c */
cudaError_t rt_load(void);  /* loads the driver's functions */
cudaError_t rt_init(void);  /* rt_load() and cuInit */
cudaError_t rt_enter(void); /* rt_init(), and gives this thread a current context */
void rt_forget_context(void);
/* Reports that an allocator hands out a block, or takes it back (length_bytes 0). On the
 * virtual GPU a kernel's pointer into the block reaches to its end. */
void rt_block(uint64_t address, uint64_t length_bytes);
void rt_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rt_stub(const char *name);

/* Declares and defines an exported function of the library. */
#define RT_EXPORT __attribute__((visibility("default")))
#define RT_FUNCTION(result, name, parameters)                                              \
  RT_EXPORT result name parameters;                                                        \
  RT_EXPORT result name parameters

#endif
