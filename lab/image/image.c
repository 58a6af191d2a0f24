/* image.c - builds the description of an image, and detects an image's format. */
#include "image.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_source.h"
#include "pump_cuda.h"

int image_fail(char *error, size_t error_bytes, int result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, error_bytes, format, arguments);
  va_end(arguments);
  return result;
}

struct image *image_new(void) {
  return calloc(1, sizeof(struct image));
}

void image_free(struct image *image) {
  if (image == NULL) return;
  for (size_t i = 0; i < image->kernel_count; i++) {
    free(image->kernels[i].name);
    free(image->kernels[i].parameters);
  }
  for (size_t i = 0; i < image->global_count; i++) {
    free(image->globals[i].name);
    free(image->globals[i].initial);
  }
  free(image->kernels);
  free(image->globals);
  free(image);
}

/* Returns `elements` with one more element, zeroed except for its first member, the name.
 * Returns NULL without memory, and leaves `elements` unchanged. */
static void *append_named(void *elements, size_t count, size_t element_bytes,
                          const char *name, size_t name_bytes) {
  char *copy = malloc(name_bytes + 1);
  void *grown = copy != NULL ? realloc(elements, (count + 1) * element_bytes) : NULL;
  if (grown == NULL) {
    free(copy);
    return NULL;
  }
  memcpy(copy, name, name_bytes);
  copy[name_bytes] = 0;
  void *last = (char *)grown + count * element_bytes;
  memset(last, 0, element_bytes);
  memcpy(last, &copy, sizeof copy);
  return grown;
}

struct image_kernel *image_add_kernel(struct image *image, const char *name,
                                      size_t name_bytes) {
  void *grown = append_named(image->kernels, image->kernel_count, sizeof *image->kernels,
                             name, name_bytes);
  if (grown == NULL) return NULL;
  image->kernels = grown;
  return &image->kernels[image->kernel_count++];
}

struct image_global *image_add_global(struct image *image, const char *name,
                                      size_t name_bytes) {
  void *grown = append_named(image->globals, image->global_count, sizeof *image->globals,
                             name, name_bytes);
  if (grown == NULL) return NULL;
  image->globals = grown;
  return &image->globals[image->global_count++];
}

bool image_add_parameter(struct image_kernel *kernel, uint32_t offset_bytes,
                         uint32_t length_bytes) {
  size_t count = kernel->parameter_count;
  struct image_parameter *parameters =
      realloc(kernel->parameters, (count + 1) * sizeof *parameters);
  if (parameters == NULL) return false;
  kernel->parameters = parameters;
  parameters[count] = (struct image_parameter){offset_bytes, length_bytes};
  kernel->parameter_count++;
  if (offset_bytes + length_bytes > kernel->parameter_bytes)
    kernel->parameter_bytes = offset_bytes + length_bytes;
  return true;
}

static int parse_elf(struct image_source *source, int compute, struct image **out,
                     char *error, size_t error_bytes) {
  bool known = source->length_bytes != SIZE_MAX;
  uint64_t length = known ? source->length_bytes : image_elf_bytes(source);
  uint8_t *owned = NULL;
  const uint8_t *bytes = length > 0 ? image_source_take(source, 0, length, &owned) : NULL;
  if (bytes == NULL)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "cubin is truncated, or larger than %llu bytes",
                      (unsigned long long)IMAGE_MOST_BYTES);
  int result = image_from_elf(bytes, length, compute, out, error, error_bytes);
  free(owned);
  return result;
}

static int parse_ptx(struct image_source *source, int compute, struct image **out,
                     char *error, size_t error_bytes) {
  uint8_t *owned;
  size_t length;
  const uint8_t *text = image_source_text(source, &length, &owned);
  if (text == NULL)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "PTX is not zero-terminated, or longer than %llu bytes",
                      (unsigned long long)IMAGE_MOST_BYTES);
  int result = image_from_ptx((const char *)text, length, compute, out, error, error_bytes);
  free(owned);
  return result;
}

static int parse(struct image_source *source, int compute, struct image **out, char *error,
                 size_t error_bytes) {
  uint32_t magic;
  if (image_source_copy(source, 0, &magic, sizeof magic) < sizeof magic)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "image is shorter than 4 bytes");
  if (magic == 0x466243b1 || magic == 0xba55ed50)
    return image_from_fatbin(source, compute, out, error, error_bytes);
  if (magic == 0x464c457f) /* "\177ELF" */
    return parse_elf(source, compute, out, error, error_bytes);
  uint8_t first = (uint8_t)(magic & 0xff);
  if (first >= 0x80 || (first < 0x20 && first != '\n' && first != '\r' && first != '\t'))
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "not PTX, a cubin or a fat binary (starts with 0x%08x)", magic);
  return parse_ptx(source, compute, out, error, error_bytes);
}

int image_parse(const void *bytes, size_t length_bytes, int compute, struct image **out,
                char *error, size_t error_bytes) {
  struct image_source source;
  image_source_open(&source, bytes, length_bytes);
  int result = parse(&source, compute, out, error, error_bytes);
  image_source_close(&source);
  return result;
}
