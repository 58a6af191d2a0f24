/* globals.c - hooks of managed variables in the program's code, and of unloading the code
 * (pool/managed_variables.c).
 */
#include <errno.h>

#include "shim/pool/convert.h"

#define HOOK_GLOBAL(name, parameters, arguments)                                           \
  CUresult name parameters {                                                               \
    size_t own_bytes = 0;                                                                  \
    CUdeviceptr own_address = 0;                                                           \
    if (pump_inert()) return pump_real.name arguments;                                     \
    if (address == NULL) address = &own_address; /* both are optional */                   \
    if (bytes == NULL) bytes = &own_bytes;                                                 \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS) pump_variable_found(*address, *bytes);                     \
    return result;                                                                         \
  }

HOOK_GLOBAL(cuModuleGetGlobal_v2,
            (CUdeviceptr * address, size_t *bytes, CUmodule module, const char *name),
            (address, bytes, module, name))
HOOK_GLOBAL(cuLibraryGetGlobal,
            (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))
HOOK_GLOBAL(cuLibraryGetManaged,
            (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
            (address, bytes, library, name))

/* ---- unloading ------------------------------------------------------------ */

/* Drops layouts before the real call: after it, another thread may launch
 * another kernel with the same handle. */
#define HOOK_UNLOAD(name, type)                                                            \
  CUresult name(type handle) {                                                             \
    if (pump_inert()) return pump_real.name(handle);                                       \
    struct pump_variables removed;                                                         \
    int saved = errno;                                                                     \
    pump_enter();                                                                          \
    pump_params_forget();                                                                  \
    pump_variables_remove(&removed);                                                       \
    CUresult result = pump_real.name(handle);                                              \
    pump_variables_restore(&removed);                                                      \
    pump_leave();                                                                          \
    errno = saved;                                                                         \
    return result;                                                                         \
  }

HOOK_UNLOAD(cuModuleUnload, CUmodule)
HOOK_UNLOAD(cuLibraryUnload, CUlibrary)
