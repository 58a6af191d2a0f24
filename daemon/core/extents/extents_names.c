/* extents_names.c - hints about a kernel's parameters in its mangled name.
 *
 * Not a demangler: searches for the names of a few kernel families of PyTorch, and for
 * the first element type after a functor's name. The families' parameter structures are
 * decoded in extents_tables.c. A name is only a hint, which must agree with the
 * parameters.
 */
#include <string.h>

#include "extents_state.h"

static const char *find(const char *text, uint32_t bytes, const char *word) {
  return memmem(text, bytes, word, strlen(word));
}

/* Returns the size of the type whose mangled name begins at `text`; 0 if it is not a
 * plain type. */
static uint16_t type_bytes(const char *text, uint32_t bytes) {
  static const struct {
    const char *code;
    uint16_t size;
  } types[] = {{"N3c108BFloat16E", 2},
               {"N3c104HalfE", 2},
               {"N3c107complexIfE", 8},
               {"N3c107complexIdE", 16},
               {"N3c1013Float8_e4m3fnE", 1},
               {"N3c1011Float8_e5m2E", 1},
               {"h", 1},
               {"a", 1},
               {"b", 1},
               {"c", 1},
               {"s", 2},
               {"t", 2},
               {"i", 4},
               {"j", 4},
               {"f", 4},
               {"l", 8},
               {"m", 8},
               {"x", 8},
               {"y", 8},
               {"d", 8}};
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
    size_t length = strlen(types[i].code);
    if (bytes >= length && memcmp(text, types[i].code, length) == 0) return types[i].size;
  }
  return 0;
}

/* Returns the size of the first template argument of a name that ends in `word`, or 0. */
static uint16_t first_argument(const char *name, uint32_t bytes, const char *word) {
  const char *end = name + bytes;
  const char *at = find(name, bytes, word);
  while (at != NULL) {
    at += strlen(word);
    uint16_t size = type_bytes(at, (uint32_t)(end - at));
    if (size != 0) return size;
    at = find(at, (uint32_t)(end - at), word);
  }
  return 0;
}

static uint16_t element_bytes_of(const char *name, uint32_t bytes) {
  const char *opaque = find(name, bytes, "OpaqueTypeILj");
  if (opaque != NULL) {
    uint32_t size = 0;
    const char *digit = opaque + strlen("OpaqueTypeILj");
    for (; digit < name + bytes && *digit >= '0' && *digit <= '9' && size < 100; digit++)
      size = size * 10 + (uint32_t)(*digit - '0');
    if (size >= 1 && size <= 16) return (uint16_t)size;
  }
  uint16_t size = first_argument(name, bytes, "FunctorI");
  if (size == 0) size = first_argument(name, bytes, "ReduceOpI");
  if (size != 0) return size;
  bool half = find(name, bytes, "BFloat16") != NULL || find(name, bytes, "4Half") != NULL;
  return half ? 2 : 4;
}

/* Reads which table a multi_tensor_apply kernel takes, and its number of lists. */
static void read_multi(const char *name, uint32_t bytes, struct extents_named *named) {
  static const char *const words[] = {"18TensorListMetadataI",
                                      "28TensorListScalarListMetadataI",
                                      "32FusedOptimizerTensorListMetadataI"};
  for (uint16_t i = 0; i < 3; i++) {
    const char *at = find(name, bytes, words[i]);
    if (at == NULL) continue;
    named->structure = (uint16_t)(EXTENTS_MULTI_PLAIN + i);
    uint32_t rest = bytes - (uint32_t)(at - name);
    const char *depth = find(at, rest, "Li");
    if (depth == NULL || depth + 3 > name + bytes) return;
    if (depth[2] >= '1' && depth[2] <= '5') named->depth = (uint16_t)(depth[2] - '0');
    return;
  }
}

/* Returns whether the kernel's family reads rows or blocks that an index names. */
static bool is_gather(const char *name, uint32_t bytes) {
  static const char *const words[] = {
      "mbedding",          "ather", "ndexSelect", "index_select",
      "index_elementwise", "csr",   "spmm",       "paged_attention"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (find(name, bytes, words[i]) != NULL) return true;
  return false;
}

void extents_read_name(const char *name, uint32_t bytes, struct extents_named *named) {
  *named = (struct extents_named){.kind = EXTENTS_KIND_PLAIN,
                                  .element_bytes = element_bytes_of(name, bytes),
                                  .gathers = is_gather(name, bytes)};
  if (find(name, bytes, "multi_tensor_apply_kernel") != NULL) {
    named->kind = EXTENTS_KIND_MULTI;
    read_multi(name, bytes, named);
  } else if (find(name, bytes, "CatArrayBatchedCopy") != NULL) {
    named->kind = EXTENTS_KIND_CAT;
  } else if (find(name, bytes, "TensorListAddresses") != NULL) {
    named->kind = EXTENTS_KIND_ADDRESSES;
  } else if (find(name, bytes, "13reduce_kernelI") != NULL) {
    named->kind = EXTENTS_KIND_REDUCE;
  } else if (find(name, bytes, "29vectorized_elementwise_kernelI") != NULL ||
             (find(name, bytes, "27unrolled_elementwise_kernelI") != NULL &&
              find(name, bytes, "TrivialOffsetCalculator") != NULL)) {
    named->kind = EXTENTS_KIND_ELEMENTWISE;
  }
}
