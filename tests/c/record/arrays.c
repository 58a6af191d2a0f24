/* arrays.c - arrays and imported memory count until they are destroyed.
 *
 * Built like operations.c. Usage: arrays SCENARIO
 */
#include "record_harness.h"

#define PAGE 65536

static CUresult destroy(CUarray array) {
  (void)array;
  return driver.answer;
}
static CUresult destroy_mipmapped(CUmipmappedArray array) {
  (void)array;
  return driver.answer;
}
static CUresult make(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  static uintptr_t next = 0x5000;
  CHECK(pump_reentry_depth != 0 && shape != NULL);
  if (driver.answer == CUDA_SUCCESS) *array = (CUarray)(next += 64);
  return driver.answer;
}
static CUresult make_mipmapped(CUmipmappedArray *array,
                               const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
  CHECK(levels != 0);
  return make((CUarray *)array, shape);
}
static CUresult import(CUexternalMemory *memory,
                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
  CHECK(description != NULL);
  *memory = (CUexternalMemory)0x7777;
  return driver.answer;
}
static CUresult drop(CUexternalMemory memory) {
  CHECK(memory == (CUexternalMemory)0x7777);
  return driver.answer;
}

static void connect_driver(CUresult answer) {
  driver.answer = answer;
  pump_real.cuArray3DCreate_v2 = make;
  pump_real.cuArrayDestroy = destroy;
  pump_real.cuMipmappedArrayCreate = make_mipmapped;
  pump_real.cuMipmappedArrayDestroy = destroy_mipmapped;
  pump_real.cuImportExternalMemory = import;
  pump_real.cuDestroyExternalMemory = drop;
}

/* Returns the bytes that an array of that shape counts. */
static int64_t counts(CUDA_ARRAY3D_DESCRIPTOR shape) {
  CUarray array;
  CHECK(cuArray3DCreate_v2(&array, &shape) == CUDA_SUCCESS);
  int64_t bytes = told.plain_bytes;
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS && told.plain_bytes == 0);
  return bytes;
}

static void an_array_counts_what_its_shape_says(void) {
  connect_driver(CUDA_SUCCESS);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){
            .Width = 512, .Height = 512, .Depth = 4, .Format = 0x20, .NumChannels = 4}) ==
        512 * 512 * 4 * 16);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){
            .Width = 1 << 20, .Format = 0x10, .NumChannels = 1}) == 2 << 20);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){.Width = 1, .Format = 0x01, .NumChannels = 1}) ==
        PAGE);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){/* BC1: half a byte a texel */
                                         .Width = 1024,
                                         .Height = 1024,
                                         .Format = 0x91,
                                         .NumChannels = 4}) == 1 << 19);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){/* NV12: 12 bits a texel, whatever its channels */
                                         .Width = 1024,
                                         .Height = 1024,
                                         .Format = 0xb0,
                                         .NumChannels = 3}) == 3 << 19);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){/* a format of a later driver: the widest */
                                         .Width = 1024,
                                         .Height = 1024,
                                         .Format = 0x77,
                                         .NumChannels = 2}) == 8 << 20);
}

static void an_array_without_memory_of_its_own_does_not_count(void) {
  connect_driver(CUDA_SUCCESS);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){.Width = 4096,
                                         .Height = 4096,
                                         .Format = 0x20,
                                         .NumChannels = 1,
                                         .Flags = CUDA_ARRAY3D_SPARSE}) == 0);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){.Width = 4096,
                                         .Height = 4096,
                                         .Format = 0x20,
                                         .NumChannels = 1,
                                         .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING}) == 0);
  CHECK(counts((CUDA_ARRAY3D_DESCRIPTOR){
            .Width = SIZE_MAX, .Height = SIZE_MAX, .Format = 0x20, .NumChannels = 4}) == 0);
}

static void levels_are_halves_and_layers_are_not(void) {
  connect_driver(CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR shape = {
      .Width = 1024, .Height = 512, .Depth = 8, .Format = 0x03, .NumChannels = 1};
  CUmipmappedArray array;
  CHECK(cuMipmappedArrayCreate(&array, &shape, 2) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == (1024 * 512 * 8 + 512 * 256 * 4) * 4);
  CHECK(cuMipmappedArrayDestroy(array) == CUDA_SUCCESS && told.plain_bytes == 0);
  shape.Flags = CUDA_ARRAY3D_LAYERED;
  CHECK(cuMipmappedArrayCreate(&array, &shape, 2) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == (1024 * 512 * 8 + 512 * 256 * 8) * 4);
  CHECK(cuMipmappedArrayDestroy(array) == CUDA_SUCCESS && told.plain_bytes == 0);
  shape.Flags = 0; /* more levels than possible: the driver must refuse them */
  CHECK(cuMipmappedArrayCreate(&array, &shape, 1u << 31) == CUDA_SUCCESS);
  CHECK(told.plain_bytes < 1024 * 512 * 8 * 4 * 8 / 7 + 2 * PAGE);
}

static void what_the_driver_refuses_changes_nothing(void) {
  connect_driver(CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR shape = {
      .Width = 1024, .Height = 1024, .Format = 0x03, .NumChannels = 1};
  CUarray array;
  driver.answer = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(cuArray3DCreate_v2(&array, &shape) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(told.plain_bytes == 0);
  driver.answer = CUDA_SUCCESS;
  CHECK(cuArray3DCreate_v2(&array, &shape) == CUDA_SUCCESS && told.plain_bytes == 4 << 20);
  driver.answer = CUDA_ERROR_INVALID_CONTEXT;
  CHECK(cuArrayDestroy(array) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(told.plain_bytes == 4 << 20);
  driver.answer = CUDA_SUCCESS;
  pump_plain_context_gone((CUcontext)1); /* ends its arrays too */
  CHECK(told.plain_bytes == 0);
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS && told.plain_bytes == 0);
}

static void imported_memory_counts_until_it_is_given_back(void) {
  connect_driver(CUDA_SUCCESS);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = 1, .size = 100 << 20};
  CUexternalMemory memory;
  CHECK(cuImportExternalMemory(&memory, &description) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == 100 << 20);
  CHECK(cuDestroyExternalMemory(memory) == CUDA_SUCCESS && told.plain_bytes == 0);
  pump_off = true; /* counts nothing and queries nothing */
  CHECK(cuImportExternalMemory(&memory, &description) == CUDA_SUCCESS);
  CHECK(cuDestroyExternalMemory(memory) == CUDA_SUCCESS && told.plain_bytes == 0);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(an_array_counts_what_its_shape_says),
      SCENARIO(an_array_without_memory_of_its_own_does_not_count),
      SCENARIO(levels_are_halves_and_layers_are_not),
      SCENARIO(what_the_driver_refuses_changes_nothing),
      SCENARIO(imported_memory_counts_until_it_is_given_back),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
