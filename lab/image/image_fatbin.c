/* image_fatbin.c - picks the entry of a fat binary that fits the device best.
 *
 * A cubin for the device's major version with the highest minor version wins, else the
 * newest PTX that the device supports. Entries are plain, LZ4 or zstd. The decompression
 * libraries are opened only when an entry needs them, so building needs neither.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "image_source.h"
#include "pump_cuda.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define KIND_PTX 1
#define KIND_ELF 2
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u
#define PACKED_MOST 4096u /* highest compression ratio that is accepted */

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
  if (entry->unpacked_bytes == 0 || entry->unpacked_bytes > IMAGE_MOST_BYTES ||
      entry->unpacked_bytes / PACKED_MOST > entry->compressed_bytes)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "a fat binary's entry of %llu bytes is packed in %u",
                      (unsigned long long)entry->unpacked_bytes, entry->compressed_bytes);
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
                      "damaged compressed entry in a fat binary");
  }
  bytes[entry->unpacked_bytes] = 0;
  *out = bytes;
  return CUDA_SUCCESS;
}

/* Returns how well an entry fits: 0 not at all, higher is better. */
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

int image_from_fatbin(struct image_source *source, int compute, struct image **out,
                      char *error, size_t error_bytes) {
  struct header header;
  struct wrapper wrapper;
  if (source->length_bytes == SIZE_MAX && /* not a file: a wrapper holds an address */
      image_source_copy(source, 0, &wrapper, sizeof wrapper) == sizeof wrapper &&
      wrapper.magic == WRAPPER_MAGIC) {
    if (wrapper.data == NULL)
      return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "empty fat binary");
    image_source_move(source, wrapper.data);
  }
  uint64_t at = sizeof header, end = 0;
  if (image_source_copy(source, 0, &header, sizeof header) == sizeof header &&
      header.magic == FATBIN_MAGIC && header.header_bytes >= sizeof header &&
      header.length_bytes <= IMAGE_MOST_BYTES * 8) {
    at = header.header_bytes;
    end = at + header.length_bytes;
  }
  if (end == 0)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");

  struct entry best = {0}, entry;
  uint64_t best_payload = 0;
  uint32_t best_fit = 0;
  for (; end - at >= sizeof entry; at += entry.header_bytes + entry.length_bytes) {
    if (image_source_copy(source, at, &entry, sizeof entry) < sizeof entry ||
        entry.header_bytes < sizeof entry || entry.header_bytes > end - at ||
        entry.length_bytes > end - at - entry.header_bytes)
      return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged fat binary");
    if (fit(&entry, compute) > best_fit) {
      best_fit = fit(&entry, compute);
      best = entry;
      best_payload = at + entry.header_bytes;
    }
  }
  if (best_fit == 0)
    return image_fail(error, error_bytes, CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "fat binary has no code for sm_%d", compute);
  uint8_t *owned;
  const uint8_t *payload =
      image_source_take(source, best_payload, best.length_bytes, &owned);
  if (payload == NULL)
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE,
                      "fat binary is truncated, or has an entry of more than %llu bytes",
                      (unsigned long long)IMAGE_MOST_BYTES);
  int result = use(&best, payload, compute, out, error, error_bytes);
  free(owned);
  return result;
}
