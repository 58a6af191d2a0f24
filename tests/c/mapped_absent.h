/* mapped_absent.h - stubs for programs without mapped memory (shim/pool/mapped.h): every
 * call goes to the driver. Include it in one file.
 */
#ifndef PUMP_TESTS_MAPPED_ABSENT_H
#define PUMP_TESTS_MAPPED_ABSENT_H

#include "shim/pool/mapped.h"

#define ABSENT(name, ...)                                                                  \
  bool name(__VA_ARGS__) {                                                                 \
    return false;                                                                          \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ABSENT(pump_mapped_create, CUmemGenericAllocationHandle *handle, size_t bytes,
       const CUmemAllocationProp *properties, unsigned long long flags, CUresult *result)
ABSENT(pump_mapped_release, CUmemGenericAllocationHandle *handle, CUresult *result)
ABSENT(pump_mapped_retain, CUmemGenericAllocationHandle *handle, CUdeviceptr address,
       CUresult *result)
ABSENT(pump_mapped_properties, CUmemAllocationProp *properties,
       CUmemGenericAllocationHandle *handle, CUresult *result)
ABSENT(pump_mapped_reserve, CUdeviceptr *address, size_t bytes, size_t alignment,
       unsigned long long flags, CUresult *result)
ABSENT(pump_mapped_unreserve, CUdeviceptr address, size_t bytes, CUresult *result)
ABSENT(pump_mapped_map, CUdeviceptr address, size_t bytes, size_t offset,
       CUmemGenericAllocationHandle *handle, unsigned long long flags, CUresult *result)
ABSENT(pump_mapped_unmap, CUdeviceptr address, size_t bytes, CUresult *result)
ABSENT(pump_mapped_set_access, CUdeviceptr address, size_t bytes,
       const CUmemAccessDesc *access, size_t count, CUresult *result)
ABSENT(pump_mapped_get_access, unsigned long long *flags, const CUmemLocation *location,
       CUdeviceptr address, CUresult *result)
ABSENT(pump_mapped_contains, CUdeviceptr address)
ABSENT(pump_mapped_touches_gap, CUdeviceptr address, uint64_t bytes)
ABSENT(pump_mapped_piece, CUdeviceptr address, uint64_t *base, uint64_t *bytes, bool *live)
ABSENT(pump_mapped_find, CUdeviceptr address, struct pump_mapping *mapping)
bool pump_mapped_lend(struct pump_mapped_loan *loan, const char *call, uint32_t *said,
                      CUresult *result) {
  return true;
}
bool pump_mapped_no_tiles(const CUarrayMapInfo *list, unsigned int count) {
  return true;
}
void pump_mapped_lent(const struct pump_mapped_loan *loan, bool succeeded) {}
void pump_mapped_note_real(CUmemGenericAllocationHandle handle) {}
#pragma GCC diagnostic pop

#endif
