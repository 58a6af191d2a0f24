/* vmm_handles.c - memory of cuMemCreate counts until its last handle and mapping are gone.
 *
 * Built like operations.c. Usage: vmm_handles SCENARIO
 */
#include <string.h>

#include "record_harness.h"

#define BASE 0x7f0010000000
#define FOREIGN ((CUmemGenericAllocationHandle)99) /* imported, so not counted */

static CUmemGenericAllocationHandle next_handle = 1;

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *wishes, unsigned long long flags) {
  (void)bytes, (void)wishes, (void)flags;
  *handle = next_handle++;
  return CUDA_SUCCESS;
}
static CUresult release(CUmemGenericAllocationHandle handle) {
  (void)handle;
  return CUDA_SUCCESS;
}
static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  (void)address, (void)bytes, (void)offset, (void)handle, (void)flags;
  return CUDA_SUCCESS;
}
static CUresult unmap(CUdeviceptr address, size_t bytes) {
  (void)address, (void)bytes;
  return CUDA_SUCCESS;
}

/* Creates and maps memory that only its mapping keeps alive. */
static void put(uint64_t block, uint64_t blocks) {
  CUmemAllocationProp wishes = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 3}};
  CUmemGenericAllocationHandle handle = 0;
  pump_real.cuMemCreate = create;
  pump_real.cuMemRelease = release;
  pump_real.cuMemMap = map;
  pump_real.cuMemUnmap = unmap;
  CHECK(cuMemCreate(&handle, blocks * BLOCK, &wishes, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(BASE + block * BLOCK, blocks * BLOCK, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
}

static void what_is_mapped_counts_until_it_is_unmapped(void) {
  put(0, 4);
  CHECK(told.plain_bytes == 4 * (int64_t)BLOCK);
  CHECK(cuMemUnmap(BASE, 4 * BLOCK) == CUDA_SUCCESS && told.plain_bytes == 0);
}

/* One call may unmap several mappings, including imported memory, which is not tracked. */
static void one_call_ends_all_behind_one_that_is_not_known(void) {
  put(0, 2);
  CHECK(cuMemMap(BASE + 2 * BLOCK, BLOCK, 0, FOREIGN, 0) == CUDA_SUCCESS);
  put(7, 3);
  put(3, 4);
  put(12, 1);
  CHECK(told.plain_bytes == 10 * (int64_t)BLOCK);
  CHECK(cuMemUnmap(BASE, 11 * BLOCK) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == (int64_t)BLOCK); /* memory after the range stays */
  CHECK(cuMemUnmap(BASE, 20 * BLOCK) == CUDA_SUCCESS && told.plain_bytes == 0);
}

static const struct scenario scenarios[] = {
    SCENARIO(what_is_mapped_counts_until_it_is_unmapped),
    SCENARIO(one_call_ends_all_behind_one_that_is_not_known),
};

int main(int argc, char **argv) {
  return run_scenario(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
