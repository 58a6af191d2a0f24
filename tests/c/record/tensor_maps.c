/* tensor_maps.c - scenarios of launches with tensor map descriptors by value: one driver
 * stores the address unchanged in them, another one hides it.
 */
#include <string.h>

#include "record_harness.h"

static bool hides;

/* Makes the first word the address, as seen in public descriptors, or an encoded form. */
static CUresult encode(CUtensorMap *map, void *address, const cuuint64_t *sizes) {
  uint64_t word = (uint64_t)(uintptr_t)address;
  memset(map, 0, sizeof *map);
  map->opaque[0] = hides ? ~word >> 4 | word << 60 : word;
  map->opaque[1] = 0x1234;
  if (sizes != NULL) map->opaque[2] = sizes[0] << 32 | sizes[1];
  return driver.answer;
}

static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                             void *address, const cuuint64_t *sizes,
                             const cuuint64_t *strides, const cuuint32_t *box,
                             const cuuint32_t *steps, CUtensorMapInterleave interleave,
                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                             CUtensorMapFloatOOBfill fill) {
  (void)type, (void)rank, (void)strides, (void)box, (void)steps;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  return encode(map, address, sizes);
}

static CUresult replace_address(CUtensorMap *map, void *address) {
  cuuint64_t sizes[2] = {map->opaque[2] >> 32, map->opaque[2] & UINT32_MAX};
  return encode(map, address, sizes);
}

static const cuuint64_t strides[] = {4096};

static void make(CUtensorMap *map, uint64_t address, cuuint64_t rows) {
  const cuuint64_t sizes[] = {1024, rows};
  const cuuint32_t box[] = {64, 64}, steps[] = {1, 1};
  CHECK(cuTensorMapEncodeTiled(map, 7, 2, (void *)(uintptr_t)address, sizes, strides, box,
                               steps, 0, 0, 0, 0) == driver.answer);
}

static void begin(bool hidden) {
  hides = hidden;
  pump_real.cuTensorMapEncodeTiled = encode_tiled;
  pump_real.cuTensorMapReplaceAddress = replace_address;
}

/* A structure with a count, a descriptor, and then a plain pointer. */
struct argument {
  uint64_t count[8];
  CUtensorMap map;
  uint64_t pointer, unused[7];
};

static struct argument argument;

static void launch_with(struct argument *given) {
  void *params[] = {given};
  driver.sizes[0] = sizeof *given, driver.parameters = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS && next_event());
}

static void uses_both(const struct pump_range_info *map,
                      const struct pump_range_info *plain) {
  CHECK(head.extent_count == 2);
  bool found_map = false, found_plain = false;
  for (uint32_t i = 0; i < 2; i++) {
    found_map |= extents[i].slot == map->slot && extents[i].offset_bytes == 4096;
    found_plain |= extents[i].slot == plain->slot && extents[i].offset_bytes == 8192;
  }
  CHECK(found_map && found_plain);
}

static void descriptor_and_pointer_are_used(bool hidden) {
  struct pump_range_info a = range(0x7f0010000000, 2), b = range(0x7f0020000000, 2);
  begin(hidden);
  make(&argument.map, a.base + 4096, 256);
  argument.count[0] = 3;
  argument.pointer = b.base + 8192;
  launch_with(&argument);
  uses_both(&a, &b);
}

static void a_descriptor_that_shows_its_address_is_known_to_use_it(void) {
  descriptor_and_pointer_are_used(false);
}

static void a_descriptor_that_hides_its_address_is_known_to_use_it(void) {
  descriptor_and_pointer_are_used(true);
}

static void a_replaced_address_is_what_is_used(void) {
  struct pump_range_info a = range(0x7f0010000000, 2), b = range(0x7f0020000000, 2);
  begin(true);
  make(&argument.map, a.base, 256);
  CHECK(cuTensorMapReplaceAddress(&argument.map, (void *)(uintptr_t)(b.base + 4096)) ==
        CUDA_SUCCESS);
  launch_with(&argument);
  CHECK(head.extent_count == 1 && extents[0].slot == b.slot);
  CHECK(extents[0].offset_bytes == 4096);
}

/* As with pointers, launches that differ only in addresses are the same operation. */
static void the_signature_knows_the_shape_and_not_the_address(void) {
  struct pump_range_info a = range(0x7f0010000000, 2), b = range(0x7f0020000000, 2);
  uint64_t signatures[4];
  begin(true);
  make(&argument.map, a.base, 256);
  launch_with(&argument);
  signatures[0] = head.signature;
  make(&argument.map, b.base, 256);
  launch_with(&argument);
  signatures[1] = head.signature;
  CHECK(cuTensorMapReplaceAddress(&argument.map, (void *)(uintptr_t)a.base) ==
        CUDA_SUCCESS);
  launch_with(&argument);
  signatures[2] = head.signature;
  make(&argument.map, a.base, 512);
  launch_with(&argument);
  signatures[3] = head.signature;
  CHECK(signatures[0] == signatures[1] && signatures[0] == signatures[2]);
  CHECK(signatures[0] != signatures[3]);
}

static void a_refused_encoding_is_not_remembered(void) {
  struct pump_range_info a = range(0x7f0010000000, 2);
  begin(true);
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  make(&argument.map, a.base, 256);
  CHECK(pump_tensor_maps_seen == 0);
  driver.answer = CUDA_SUCCESS;
  launch_with(&argument);
  CHECK(head.extent_count == 0);
}

/* With more descriptors than are kept, the newest is known and the table stays sound. */
static void the_newest_of_many_descriptors_is_known(void) {
  struct pump_range_info a = range(0x7f0010000000, 64);
  begin(true);
  for (uint64_t i = 0; i < 20000; i++) {
    make(&argument.map, a.base + i * 4096, 256);
    if (i % 100 != 0) continue;
    launch_with(&argument);
    CHECK(head.extent_count == 1 && extents[0].offset_bytes == i * 4096);
  }
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(a_descriptor_that_shows_its_address_is_known_to_use_it),
      SCENARIO(a_descriptor_that_hides_its_address_is_known_to_use_it),
      SCENARIO(a_replaced_address_is_what_is_used),
      SCENARIO(the_signature_knows_the_shape_and_not_the_address),
      SCENARIO(a_refused_encoding_is_not_remembered),
      SCENARIO(the_newest_of_many_descriptors_is_known),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
