/* fuzz_image.c - module images (PTX, cubin, fat binary) from a program. The parsers read
 * them inside the job and must not read or write outside of their bounds. An unreadable
 * page follows the input. The target parses with the known length and with an unknown
 * length, also through the record that nvcc puts before a fat binary.
 */
#include <string.h>
#include <sys/mman.h>

#include "fuzz_input.h"
#include "lab/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define PAGE_BYTES 4096u
#define ROOM_BYTES (1u << 20)

struct wrapper {
  uint32_t magic, version;
  const void *data, *unused;
};

/* Returns memory followed by an unreadable page. */
static uint8_t *room(void) {
  static uint8_t *found;
  if (found != NULL) return found;
  int how = MAP_PRIVATE | MAP_ANONYMOUS;
  found = mmap(NULL, ROOM_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE, how, -1, 0);
  must(found != MAP_FAILED);
  must(mprotect(found + ROOM_BYTES, PAGE_BYTES, PROT_NONE) == 0);
  return found;
}

static bool parsed(const void *image_bytes, size_t length_bytes) {
  struct image *image = NULL;
  char error[200] = "";
  int result = image_parse(image_bytes, length_bytes, 80, &image, error, sizeof error);
  must((result == 0) == (image != NULL) && memchr(error, 0, sizeof error) != NULL);
  if (result == 0) image_free(image);
  return result == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes > ROOM_BYTES) return 0;
  uint8_t *at = room() + ROOM_BYTES - bytes;
  memcpy(at, data, bytes);
  const struct wrapper wrapper = {.magic = 0x466243b1, .version = 1, .data = at};
  bool with_end = parsed(at, bytes);
  bool without = parsed(at, SIZE_MAX);
  must(with_end || !without); /* without the length the parser accepts no more images */
  parsed(&wrapper, SIZE_MAX);
  return 0;
}
