/* image.h - describes a module image of any format, for the virtual driver.
 *
 * The parsers (image_ptx.c, image_elf.c, image_fatbin.c) copy everything they keep, so
 * the program may free its image afterwards. They never execute anything.
 */
#ifndef PUMP_IMAGE_H
#define PUMP_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_parameter {
  uint32_t offset_bytes, length_bytes;
};

struct image_kernel {
  char *name;
  struct image_parameter *parameters;
  uint32_t parameter_count;
  uint32_t parameter_bytes; /* end of the last parameter */
  uint32_t registers;
  uint32_t shared_bytes; /* static shared memory */
  uint32_t local_bytes;
  uint32_t max_threads;            /* 0: not stated */
  int ptx_version, binary_version; /* 10 * major + minor */
};

struct image_global {
  char *name;
  uint64_t length_bytes;
  uint8_t *initial;       /* NULL: all zero */
  uint64_t initial_bytes; /* the rest is zero */
  bool managed;
};

struct image {
  struct image_kernel *kernels;
  size_t kernel_count;
  struct image_global *globals;
  size_t global_count;
};

struct image_source;

/* Parses; returns a CUresult. On errors except out of memory, `error` gets a sentence. */
int image_from_ptx(const char *text, size_t length_bytes, int compute, struct image **out,
                   char *error, size_t error_bytes);
int image_from_elf(const uint8_t *bytes, size_t length_bytes, int compute,
                   struct image **out, char *error, size_t error_bytes);
int image_from_fatbin(struct image_source *source, int compute, struct image **out,
                      char *error, size_t error_bytes);
/* Detects the format from the first bytes and calls its parser. `length_bytes` SIZE_MAX
 * means that only the image's headers state its length. Even if they are wrong, only
 * existing memory is read (image_source.h). */
int image_parse(const void *bytes, size_t length_bytes, int compute, struct image **out,
                char *error, size_t error_bytes);

/* Returns a cubin's length by its headers: the end of its last table or section, at most
 * IMAGE_MOST_BYTES. Returns 0 if it cannot be read or is damaged. */
uint64_t image_elf_bytes(struct image_source *source);

struct image *image_new(void);
void image_free(struct image *image);
/* Appends an element, valid until image_free or the next append. NULL: no memory. */
struct image_kernel *image_add_kernel(struct image *image, const char *name,
                                      size_t name_bytes);
struct image_global *image_add_global(struct image *image, const char *name,
                                      size_t name_bytes);
bool image_add_parameter(struct image_kernel *kernel, uint32_t offset_bytes,
                         uint32_t length_bytes);
int image_fail(char *error, size_t error_bytes, int result, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
