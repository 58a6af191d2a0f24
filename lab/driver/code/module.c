/* module.c - modules: images loaded into the context, their functions and globals.
 *
 * A global gets device memory on first use; its initial value is copied then.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"

static struct vd_module *modules; /* all modules without a library */

enum { JIT_ERROR_LOG_BUFFER = 5, JIT_ERROR_LOG_BUFFER_BYTES = 6 };

static int compute_capability(void) {
  return (int)(10 * vd.profile.compute_major + vd.profile.compute_minor);
}

static CUresult parse(const void *bytes, size_t length_bytes, struct image **out,
                      char *error, size_t error_bytes) {
  CUresult result =
      image_parse(bytes, length_bytes, compute_capability(), out, error, error_bytes);
  if (result != CUDA_SUCCESS) vd_log("module image: %s", error);
  return result;
}

CUresult vd_image_load(const void *bytes, size_t length_bytes, struct image **out) {
  char error[256] = "";
  return parse(bytes, length_bytes, out, error, sizeof error);
}

CUresult vd_image_load_file(const char *path, struct image **out) {
  FILE *file = fopen(path, "rbe");
  if (file == NULL) {
    vd_log("module image %s: %s", path, strerror(errno));
    return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OPERATING_SYSTEM;
  }
  char *bytes = NULL;
  size_t length = 0, room = 0, got;
  do {
    if (length + 65536 + 1 > room) {
      char *grown = realloc(bytes, room = 2 * room + 131072);
      if (grown == NULL) break;
      bytes = grown;
    }
    got = fread(bytes + length, 1, 65536, file);
    length += got;
  } while (got > 0);
  fclose(file);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (bytes != NULL) {
    bytes[length] = 0; /* PTX is text */
    result = vd_image_load(bytes, length, out);
  }
  free(bytes);
  return result;
}

/* Makes a module, which takes over the image unless a library owns it. */
CUresult vd_module_from(struct image *image, struct vd_library *library,
                        struct vd_module **out) {
  struct vd_module *module = vd_object_new(VD_MODULE);
  if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  module->library = library;
  module->globals = calloc(image->global_count + 1, sizeof *module->globals);
  if (!vd_code_open(&module->code, image, module, NULL) || module->globals == NULL) {
    module->library = module->library ? module->library : (void *)module; /* keep image */
    vd_module_free_locked(module);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (library == NULL) {
    module->context = vd_current();
    module->next = modules;
    module->link = &modules;
    if (modules != NULL) modules->link = &module->next;
    modules = module;
  }
  *out = module;
  return CUDA_SUCCESS;
}

void vd_module_free_locked(struct vd_module *module) {
  struct image *image = module->code.image;
  vd_code_close(&module->code);
  for (size_t i = 0; module->globals && i < image->global_count; i++)
    if (module->globals[i] != NULL) vd_memory_release(module->globals[i]);
  if (module->link != NULL) *module->link = module->next;
  if (module->next != NULL) module->next->link = module->link;
  free(module->globals);
  if (module->library == NULL) image_free(image);
  vd_object_free(module);
}

void vd_modules_drop_context_locked(const struct vd_context *context) {
  for (struct vd_module *module = modules, *next; module != NULL; module = next) {
    next = module->next;
    if (module->context == context) vd_module_free_locked(module);
  }
}

static CUresult load(CUmodule *out, struct image *image) {
  struct vd_module *module;
  vd_lock();
  CUresult result = vd_module_from(image, NULL, &module);
  vd_unlock();
  if (result == CUDA_SUCCESS)
    *out = (CUmodule)(void *)module;
  else
    image_free(image);
  return result;
}

CUresult vd_cuModuleLoadDataEx(CUmodule *out, const void *bytes, unsigned int option_count,
                               int *options, void **values) {
  struct image *image;
  char error[256] = "", *log = NULL;
  size_t log_bytes = 0;
  if (out == NULL || bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (option_count > 0 && (options == NULL || values == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < option_count; i++) {
    if (options[i] == JIT_ERROR_LOG_BUFFER) log = values[i];
    if (options[i] == JIT_ERROR_LOG_BUFFER_BYTES) log_bytes = (size_t)values[i];
  }
  CUresult result = parse(bytes, SIZE_MAX, &image, error, sizeof error);
  if (log != NULL && log_bytes > 0) snprintf(log, log_bytes, "%s", error);
  return result == CUDA_SUCCESS ? load(out, image) : result;
}

CUresult vd_cuModuleLoadData(CUmodule *out, const void *bytes) {
  return vd_cuModuleLoadDataEx(out, bytes, 0, NULL, NULL);
}

CUresult vd_cuModuleLoadFatBinary(CUmodule *out, const void *bytes) {
  return vd_cuModuleLoadDataEx(out, bytes, 0, NULL, NULL);
}

CUresult vd_cuModuleLoad(CUmodule *out, const char *path) {
  struct image *image;
  if (out == NULL || path == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vd_image_load_file(path, &image);
  return result == CUDA_SUCCESS ? load(out, image) : result;
}

static struct vd_module *module_of(CUmodule handle) {
  struct vd_module *module = (void *)handle;
  return vd_is(module, VD_MODULE) ? module : NULL;
}

CUresult vd_cuModuleUnload(CUmodule handle) {
  vd_lock();
  struct vd_module *module = module_of(handle);
  bool own = module != NULL && module->library == NULL;
  if (own) vd_wait_device_locked(); /* its kernels may still run */
  own = own && vd_is(module, VD_MODULE);
  if (own) vd_module_free_locked(module);
  vd_unlock();
  return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult vd_cuModuleGetLoadingMode(int *mode) {
  if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
  *mode = vd.locks & VD_LOCK_LAZY ? 2 : 1; /* lazy, eager */
  return CUDA_SUCCESS;
}

static const struct vd_code *code_of(CUmodule handle) {
  const struct vd_module *module = module_of(handle);
  return module != NULL ? &module->code : NULL;
}

CUresult vd_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  return vd_code_find(code_of(module), name, out);
}

CUresult vd_cuModuleGetFunctionCount(unsigned int *count, CUmodule module) {
  return vd_code_count(code_of(module), count);
}

CUresult vd_cuModuleEnumerateFunctions(CUfunction *out, unsigned int count,
                                       CUmodule module) {
  return vd_code_enumerate(code_of(module), out, count);
}

CUresult vd_module_global_locked(struct vd_module *module, const char *name, bool managed,
                                 CUdeviceptr *address, size_t *length_bytes) {
  for (size_t i = 0; i < module->code.image->global_count; i++) {
    const struct image_global *global = &module->code.image->globals[i];
    if (strcmp(global->name, name) != 0) continue;
    if (managed && !global->managed) return CUDA_ERROR_NOT_FOUND;
    if (module->globals[i] == NULL) {
      CUresult result = vd_memory_new(global->managed ? VD_MANAGED : VD_PLAIN,
                                      global->length_bytes, &module->globals[i]);
      if (result != CUDA_SUCCESS) return result;
      module->globals[i]->flags = CU_MEM_ATTACH_GLOBAL;
      if (module->library != NULL) module->globals[i]->context = NULL; /* ends with it */
      if (global->initial != NULL)
        memcpy((void *)module->globals[i]->base, global->initial, global->initial_bytes);
    }
    if (address != NULL) *address = module->globals[i]->base;
    if (length_bytes != NULL) *length_bytes = global->length_bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult vd_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *length_bytes,
                                 CUmodule handle, const char *name) {
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_module *module = module_of(handle);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (module != NULL)
    result = vd_module_global_locked(module, name, false, address, length_bytes);
  vd_unlock();
  return result;
}
