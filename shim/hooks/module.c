/* module.c - hooks of loading code and of looking up its functions. Code images contain
 * the layouts of parameters (record/images.c), and each handle is a function or a kernel
 * (record/function.c).
 */
#include "shim/record/record.h"

#define HOOK(name, note, parameters, arguments)                                            \
  CUresult name parameters {                                                               \
    if (!pump_quiet()) pump_code_loads();                                                  \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && pump_images_wanted && !pump_inert()) note;               \
    return result;                                                                         \
  }

HOOK(cuModuleLoad, pump_image_file(pump_image_key(*module), path),
     (CUmodule * module, const char *path), (module, path))
HOOK(cuModuleLoadData, pump_image_read(pump_image_key(*module), image, SIZE_MAX),
     (CUmodule * module, const void *image), (module, image))
HOOK(cuModuleLoadDataEx, pump_image_read(pump_image_key(*module), image, SIZE_MAX),
     (CUmodule * module, const void *image, unsigned int count, CUjit_option *options,
      void **values),
     (module, image, count, options, values))
HOOK(cuModuleLoadFatBinary, pump_image_read(pump_image_key(*module), image, SIZE_MAX),
     (CUmodule * module, const void *image), (module, image))
HOOK(cuLibraryLoadData, pump_image_read(pump_image_key(*library), image, SIZE_MAX),
     (CUlibrary * library, const void *image, CUjit_option *options, void **values,
      unsigned int count, CUlibraryOption *library_options, void **library_values,
      unsigned int library_count),
     (library, image, options, values, count, library_options, library_values,
      library_count))
HOOK(cuLibraryLoadFromFile, pump_image_file(pump_image_key(*library), path),
     (CUlibrary * library, const char *path, CUjit_option *options, void **values,
      unsigned int count, CUlibraryOption *library_options, void **library_values,
      unsigned int library_count),
     (library, path, options, values, count, library_options, library_values,
      library_count))
HOOK(cuLibraryGetModule,
     pump_image_keep(pump_image_key(*module), pump_image_key(library), NULL),
     (CUmodule * module, CUlibrary library), (module, library))
#define HOOK_FUNCTION(name, handle, is_kernel, kernel, note, parameters, arguments)        \
  CUresult name parameters {                                                               \
    CUresult result = pump_real.name arguments;                                            \
    if (result == CUDA_SUCCESS && !pump_inert()) {                                         \
      pump_function_note(handle, is_kernel);                                               \
      pump_kernel_note(kernel);                                                            \
      if (pump_images_wanted) note;                                                        \
    }                                                                                      \
    return result;                                                                         \
  }

HOOK_FUNCTION(cuModuleGetFunction, *function, false, name,
              pump_image_remember_parameters(pump_image_key(*function),
                                             pump_image_key(module), name),
              (CUfunction * function, CUmodule module, const char *name),
              (function, module, name))
HOOK_FUNCTION(cuLibraryGetKernel, *kernel, true, name,
              pump_image_remember_parameters(pump_image_key(*kernel),
                                             pump_image_key(library), name),
              (CUkernel * kernel, CUlibrary library, const char *name),
              (kernel, library, name))
HOOK_FUNCTION(cuKernelGetFunction, *function, false, NULL,
              pump_image_same(pump_image_key(*function), pump_image_key(kernel)),
              (CUfunction * function, CUkernel kernel), (function, kernel))
