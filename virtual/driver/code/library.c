/* library.c - libraries: images loaded without a context, and their kernels. */
#include <stdlib.h>
#include <string.h>

#include "virtual/driver/driver.h"

static struct vd_library *library_of(CUlibrary handle) {
  struct vd_library *library = (void *)handle;
  return vd_is(library, VD_LIBRARY) ? library : NULL;
}

static CUresult load(CUlibrary *out, struct image *image) {
  vd_lock();
  struct vd_library *library = vd_object_new(VD_LIBRARY);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (library != NULL) {
    library->image = image;
    library->kernels = calloc(image->kernel_count + 1, sizeof *library->kernels);
    bool complete = library->kernels != NULL;
    for (size_t i = 0; complete && i < image->kernel_count; i++) {
      library->kernels[i] = vd_function_new(&image->kernels[i], NULL, library);
      complete = library->kernels[i] != NULL;
    }
    if (complete) result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) {
    *out = (CUlibrary)(void *)library;
  } else {
    for (size_t i = 0; library && library->kernels && i < image->kernel_count; i++)
      if (library->kernels[i] != NULL) vd_object_free(library->kernels[i]);
    if (library != NULL) {
      free(library->kernels);
      vd_object_free(library);
    }
    image_free(image);
  }
  vd_unlock();
  return result;
}

CUresult vd_cuLibraryLoadData(CUlibrary *out, const void *code, int *jit_options,
                              void **jit_values, unsigned int jit_count,
                              int *library_options, void **library_values,
                              unsigned int library_count) {
  struct image *image;
  (void)jit_options, (void)jit_values, (void)jit_count;
  (void)library_options, (void)library_values, (void)library_count;
  if (out == NULL || code == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_image_load(code, SIZE_MAX, &image);
  return result == CUDA_SUCCESS ? load(out, image) : result;
}

CUresult vd_cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit_options,
                                  void **jit_values, unsigned int jit_count,
                                  int *library_options, void **library_values,
                                  unsigned int library_count) {
  struct image *image;
  (void)jit_options, (void)jit_values, (void)jit_count;
  (void)library_options, (void)library_values, (void)library_count;
  if (out == NULL || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_image_load_file(path, &image);
  return result == CUDA_SUCCESS ? load(out, image) : result;
}

CUresult vd_cuLibraryUnload(CUlibrary handle) {
  vd_lock();
  struct vd_library *library = library_of(handle);
  if (library != NULL) vd_wait_device_locked();
  library = library_of(handle); /* another thread may have unloaded it meanwhile */
  if (library != NULL) {
    if (library->module != NULL) vd_module_free_locked(library->module);
    for (size_t i = 0; i < library->image->kernel_count; i++)
      vd_object_free(library->kernels[i]);
    free(library->kernels);
    image_free(library->image);
    vd_object_free(library);
  }
  vd_unlock();
  return library != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name) {
  const struct vd_library *library = library_of(handle);
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < library->image->kernel_count; i++) {
    if (strcmp(library->image->kernels[i].name, name) != 0) continue;
    *out = (CUkernel)(void *)library->kernels[i];
    return CUDA_SUCCESS;
  }
  vd_log("cuLibraryGetKernel: no kernel \"%s\"", name);
  return CUDA_ERROR_NOT_FOUND;
}

CUresult vd_cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle) {
  const struct vd_library *library = library_of(handle);
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *count = (unsigned int)library->image->kernel_count;
  return CUDA_SUCCESS;
}

CUresult vd_cuLibraryEnumerateKernels(CUkernel *out, unsigned int count, CUlibrary handle) {
  const struct vd_library *library = library_of(handle);
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned int i = 0; i < count && i < library->image->kernel_count; i++)
    out[i] = (CUkernel)(void *)library->kernels[i];
  return CUDA_SUCCESS;
}

static CUresult module_locked(struct vd_library *library, struct vd_module **out) {
  CUresult result = CUDA_SUCCESS;
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (library->module == NULL)
    result = vd_module_from(library->image, library, &library->module);
  *out = library->module;
  return result;
}

CUresult vd_cuLibraryGetModule(CUmodule *out, CUlibrary handle) {
  struct vd_module *module = NULL;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = module_locked(library_of(handle), &module);
  vd_unlock();
  *out = (CUmodule)(void *)module;
  return result;
}

static CUresult global(CUdeviceptr *address, size_t *length_bytes, CUlibrary handle,
                       const char *name, bool managed) {
  struct vd_module *module;
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  CUresult result = module_locked(library_of(handle), &module);
  if (result == CUDA_SUCCESS)
    result = vd_module_global_locked(module, name, managed, address, length_bytes);
  vd_unlock();
  return result;
}

CUresult vd_cuLibraryGetGlobal(CUdeviceptr *address, size_t *length_bytes,
                               CUlibrary library, const char *name) {
  return global(address, length_bytes, library, name, false);
}

CUresult vd_cuLibraryGetManaged(CUdeviceptr *address, size_t *length_bytes,
                                CUlibrary library, const char *name) {
  return global(address, length_bytes, library, name, true);
}

CUresult vd_cuKernelGetLibrary(CUlibrary *out, CUkernel handle) {
  const struct vd_function *kernel = (void *)handle;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!vd_is(kernel, VD_FUNCTION) || !kernel->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  *out = (CUlibrary)(void *)kernel->library;
  return CUDA_SUCCESS;
}

/* The function of the library's module in the current context. */
CUresult vd_cuKernelGetFunction(CUfunction *out, CUkernel handle) {
  const struct vd_function *kernel = (void *)handle;
  struct vd_module *module;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!vd_is(kernel, VD_FUNCTION) || !kernel->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (vd_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  CUresult result = module_locked(kernel->library, &module);
  if (result == CUDA_SUCCESS)
    *out = (CUfunction)(void *)
               module->functions[kernel->kernel - kernel->library->image->kernels];
  vd_unlock();
  return result;
}
