/* module.c - hooks of loading code (record/code_loading.c) and of looking up its functions,
 * because each handle is a function or a kernel (record/function.c).
 */
#include "shim/record/record.h"

#define HOOK_LOAD(name, parameters, arguments)                                             \
  CUresult name parameters {                                                               \
    if (!pump_quiet()) pump_code_wait_before_load();                                       \
    return pump_real.name arguments;                                                       \
  }

HOOK_LOAD(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
HOOK_LOAD(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
HOOK_LOAD(cuModuleLoadDataEx,
          (CUmodule * module, const void *image, unsigned int count, CUjit_option *options,
           void **values),
          (module, image, count, options, values))
HOOK_LOAD(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
HOOK_LOAD(cuLibraryLoadData,
          (CUlibrary * library, const void *image, CUjit_option *options, void **values,
           unsigned int count, CUlibraryOption *library_options, void **library_values,
           unsigned int library_count),
          (library, image, options, values, count, library_options, library_values,
           library_count))
HOOK_LOAD(cuLibraryLoadFromFile,
          (CUlibrary * library, const char *path, CUjit_option *options, void **values,
           unsigned int count, CUlibraryOption *library_options, void **library_values,
           unsigned int library_count),
          (library, path, options, values, count, library_options, library_values,
           library_count))
HOOK_LOAD(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))

#define HOOK_FUNCTION(name, handle, is_kernel, kernel, parameters, arguments)              \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert()) {                                         \
      pump_function_note(handle, is_kernel);                                               \
      pump_refusal_warn_of_nccl(kernel);                                                   \
    }                                                                                      \
    return result;                                                                         \
  }

HOOK_FUNCTION(cuModuleGetFunction, *function, false, name,
              (CUfunction * function, CUmodule module, const char *name),
              (function, module, name))
HOOK_FUNCTION(cuLibraryGetKernel, *kernel, true, name,
              (CUkernel * kernel, CUlibrary library, const char *name),
              (kernel, library, name))
HOOK_FUNCTION(cuKernelGetFunction, *function, false, NULL,
              (CUfunction * function, CUkernel kernel), (function, kernel))
