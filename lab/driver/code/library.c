/* library.c - libraries: images loaded without a context, and their kernels. */
#include "code.h"

static struct vd_library *library_of(CUlibrary handle) {
  struct vd_library *library = (void *)handle;
  return vd_is(library, VD_LIBRARY) ? library : NULL;
}

static const struct vd_code *code_of(CUlibrary handle) {
  const struct vd_library *library = library_of(handle);
  return library != NULL ? &library->code : NULL;
}

static void free_locked(struct vd_library *library, struct image *image) {
  if (library != NULL) {
    vd_code_close(&library->code);
    vd_object_free(library);
  }
  image_free(image);
}

static CUresult load(CUlibrary *out, struct image *image) {
  vd_lock();
  struct vd_library *library = vd_object_new(VD_LIBRARY);
  bool complete = library != NULL && vd_code_open(&library->code, image, NULL, library);
  if (complete)
    *out = (CUlibrary)(void *)library;
  else
    free_locked(library, image);
  vd_unlock();
  return complete ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
  library = library_of(handle); /* another thread may have unloaded it during the wait */
  if (library != NULL) {
    if (library->module != NULL) vd_module_free_locked(library->module);
    free_locked(library, library->code.image);
  }
  vd_unlock();
  return library != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
  return vd_code_find(code_of(library), name, out);
}

CUresult vd_cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
  return vd_code_count(code_of(library), count);
}

CUresult vd_cuLibraryEnumerateKernels(CUkernel *out, unsigned int count,
                                      CUlibrary library) {
  return vd_code_enumerate(code_of(library), out, count);
}

static CUresult module_locked(struct vd_library *library, struct vd_module **out) {
  CUresult result = CUDA_SUCCESS;
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (library->module == NULL)
    result = vd_module_from(library->code.image, library, &library->module);
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

/* Returns the function of the library's module in the current context. */
CUresult vd_cuKernelGetFunction(CUfunction *out, CUkernel handle) {
  const struct vd_function *kernel = (void *)handle;
  struct vd_module *module;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!vd_is(kernel, VD_FUNCTION) || !kernel->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (vd_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  vd_lock();
  CUresult result = module_locked(kernel->library, &module);
  if (result == CUDA_SUCCESS)
    *out =
        (CUfunction)(void *)
            module->code.functions[kernel->kernel - kernel->library->code.image->kernels];
  vd_unlock();
  return result;
}
