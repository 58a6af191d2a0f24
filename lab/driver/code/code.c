/* code.c - a loaded image and its functions, for modules and libraries.
 *
 * All kernels of an image get their handles at once. A CUfunction and a CUkernel have the
 * same representation, so one look-up serves both.
 */
#include <stdlib.h>
#include <string.h>

#include "code.h"

bool vd_code_open(struct vd_code *code, struct image *image, struct vd_module *module,
                  struct vd_library *library) {
  code->image = image;
  code->functions = calloc(image->kernel_count + 1, sizeof *code->functions);
  bool complete = code->functions != NULL;
  for (size_t i = 0; complete && i < image->kernel_count; i++) {
    code->functions[i] = vd_function_new(&image->kernels[i], module, library);
    complete = code->functions[i] != NULL;
  }
  return complete;
}

void vd_code_close(struct vd_code *code) {
  for (size_t i = 0; code->functions && i < code->image->kernel_count; i++)
    if (code->functions[i] != NULL) vd_object_free(code->functions[i]);
  free(code->functions);
}

CUresult vd_code_find(const struct vd_code *code, const char *name, void *out) {
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (code == NULL) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < code->image->kernel_count; i++) {
    if (strcmp(code->image->kernels[i].name, name) != 0) continue;
    memcpy(out, &code->functions[i], sizeof code->functions[i]);
    return CUDA_SUCCESS;
  }
  vd_log("no kernel \"%s\" in the image", name);
  return CUDA_ERROR_NOT_FOUND;
}

CUresult vd_code_count(const struct vd_code *code, unsigned int *count) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (code == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *count = (unsigned int)code->image->kernel_count;
  return CUDA_SUCCESS;
}

CUresult vd_code_enumerate(const struct vd_code *code, void *out, unsigned int count) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (code == NULL) return CUDA_ERROR_INVALID_HANDLE;
  size_t most = code->image->kernel_count;
  memcpy(out, code->functions, (count < most ? count : most) * sizeof *code->functions);
  return CUDA_SUCCESS;
}
