/* fuzz_image.c - module images (PTX, cubin, fat binary) that a program may hand to the
 * driver. The parsers read the program's bytes in the job itself: none of them may go
 * astray. */
#include <string.h>

#include "image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct image *image = NULL;
  char error[200] = "";
  int result = image_parse(data, bytes, 80, &image, error, sizeof error);
  if ((result == 0) != (image != NULL) || memchr(error, 0, sizeof error) == NULL)
    __builtin_trap();
  if (result == 0) image_free(image);
  return 0;
}
