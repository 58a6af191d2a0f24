/* image_fatbin.c - picks the entry of a fat binary that fits the device.
 *
 * A cubin of the device's major version and the highest minor wins, else the newest
 * PTX that the device can take. Entries are plain, LZ4 or zstd; the libraries for
 * those are opened when one is met, so that building needs neither.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "pump_cuda.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define KIND_PTX 1
#define KIND_ELF 2
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u
#define MOST_BYTES (1ull << 31) /* of one entry, unpacked */

struct wrapper {
  uint32_t magic, version;
  const uint8_t *data;
  const void *unused;
};

struct header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t length_bytes; /* of all entries */
};

struct entry {
  uint16_t kind, unknown;
  uint32_t header_bytes;
  uint64_t length_bytes; /* of the payload */
  uint32_t compressed_bytes, options;
  uint16_t minor, major;
  uint32_t arch, name_offset, name_bytes;
  uint64_t flags, zero, unpacked_bytes;
};

static int unpack(const struct entry *entry, const uint8_t *payload, uint8_t **out,
                  char *error, size_t error_bytes) {
  bool zstd = (entry->flags & FLAG_ZSTD) != 0;
  const char *file = zstd ? "libzstd.so.1" : "liblz4.so.1";
  if (entry->unpacked_bytes == 0 || entry->unpacked_bytes > MOST_BYTES)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "fat binary with an entry of %llu bytes",
                      (unsigned long long)entry->unpacked_bytes);
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void *function =
      library ? dlsym(library, zstd ? "ZSTD_decompress" : "LZ4_decompress_safe") : NULL;
  if (function == NULL)
    return image_fail(error, error_bytes, CUDA_ERROR_NOT_SUPPORTED,
                      "compressed fat binary: install %s", file);
  uint8_t *bytes = malloc(entry->unpacked_bytes + 1);
  if (bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  bool complete;
  if (zstd) {
    size_t (*decompress)(void *, size_t, const void *, size_t);
    memcpy(&decompress, &function, sizeof function);
    complete = decompress(bytes, entry->unpacked_bytes, payload, entry->compressed_bytes) ==
               entry->unpacked_bytes;
  } else {
    int (*decompress)(const char *, char *, int, int);
    memcpy(&decompress, &function, sizeof function);
    complete =
        decompress((const char *)payload, (char *)bytes, (int)entry->compressed_bytes,
                   (int)entry->unpacked_bytes) == (int)entry->unpacked_bytes;
  }
  if (!complete) {
    free(bytes);
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "fat binary with a damaged compressed entry");
  }
  bytes[entry->unpacked_bytes] = 0;
  *out = bytes;
  return CUDA_SUCCESS;
}

/* How well an entry fits: 0 not at all, higher is better. */
static uint32_t fit(const struct entry *entry, int compute) {
  int arch = (int)entry->arch;
  if (arch > compute) return 0;
  if (entry->kind == KIND_ELF && arch / 10 == compute / 10) return 10000 + entry->arch;
  if (entry->kind == KIND_PTX) return 1 + entry->arch;
  return 0;
}

static int use(const struct entry *entry, const uint8_t *payload, int compute,
               struct image **out, char *error, size_t error_bytes) {
  uint8_t *unpacked = NULL;
  size_t length = entry->length_bytes;
  if (entry->flags & (FLAG_LZ4 | FLAG_ZSTD)) {
    if (entry->compressed_bytes > entry->length_bytes)
      return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");
    int result = unpack(entry, payload, &unpacked, error, error_bytes);
    if (result != CUDA_SUCCESS) return result;
    payload = unpacked;
    length = entry->unpacked_bytes;
  }
  int result =
      entry->kind == KIND_ELF
          ? image_from_elf(payload, length, compute, out, error, error_bytes)
          : image_from_ptx((const char *)payload, length, compute, out, error, error_bytes);
  free(unpacked);
  return result;
}

int image_from_fatbin(const uint8_t *bytes, size_t length_bytes, int compute,
                      struct image **out, char *error, size_t error_bytes) {
  struct header header;
  struct wrapper wrapper;
  memcpy(&wrapper.magic, bytes, sizeof wrapper.magic);
  if (wrapper.magic == WRAPPER_MAGIC &&
      length_bytes == SIZE_MAX) { /* of a file: no address */
    memcpy(&wrapper, bytes, sizeof wrapper);
    bytes = wrapper.data;
    length_bytes = SIZE_MAX;
    if (bytes == NULL)
      return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "empty fat binary");
  }
  if (length_bytes < sizeof header)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");
  memcpy(&header, bytes, sizeof header);
  if (header.magic != FATBIN_MAGIC || header.header_bytes < sizeof header ||
      (length_bytes != SIZE_MAX &&
       (length_bytes < header.header_bytes ||
        header.length_bytes > length_bytes - header.header_bytes)))
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");

  const uint8_t *at = bytes + header.header_bytes, *end = at + header.length_bytes;
  struct entry best = {0};
  const uint8_t *best_payload = NULL;
  uint32_t best_fit = 0;
  while ((size_t)(end - at) >= sizeof(struct entry)) {
    struct entry entry;
    memcpy(&entry, at, sizeof entry);
    if (entry.header_bytes < sizeof entry || entry.header_bytes > (size_t)(end - at) ||
        entry.length_bytes > (size_t)(end - at) - entry.header_bytes)
      return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");
    if (fit(&entry, compute) > best_fit) {
      best_fit = fit(&entry, compute);
      best = entry;
      best_payload = at + entry.header_bytes;
    }
    at += entry.header_bytes + entry.length_bytes;
  }
  if (best_fit == 0)
    return image_fail(error, error_bytes, CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "fat binary has nothing for sm_%d", compute);
  return use(&best, best_payload, compute, out, error, error_bytes);
}
