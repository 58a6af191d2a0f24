/* duplicates.c - evicts blocks without a copy if the host still has a valid one
 * (docs/decisions/0051-read-duplication.md).
 *
 *   Arrival:   Set READ_MOSTLY, then prefetch. The host's copy stays valid.
 *   Eviction:  Find the clean blocks in the page map. Unset READ_MOSTLY, which drops the
 *              GPU's duplicates. Prefetch the other blocks to the host.
 *
 * DESIGN. A duplicated page is mapped for the CPU, read-only; the GPU's first write
 * removes that mapping. So a block whose pages are all mapped is clean, and unsetting
 * READ_MOSTLY is enough to evict it. A block that is not fully mapped before it arrives
 * gets no advice: it is on the GPU already, or would show nothing at its eviction.
 * Results do not depend on any of this: pages that the GPU writes between the look-up and
 * the end of the advice stay on the GPU.
 *
 * The driver stores the advice by address, and so does range_table.c. Only whole blocks
 * from cuMemAlloc get advice: their owner changes only with the allocation, which ends
 * the advice, and pump refuses the program's advice on them. Owners of pool memory and
 * mapped memory change without the driver's knowledge. Memory that a peer maps needs
 * advice of its own (memory/peer_access.c).
 */
#include "executors.h"

#define SET_READ_MOSTLY 1 /* CU_MEM_ADVISE_SET_READ_MOSTLY */
#define UNSET_READ_MOSTLY 2
#define UNSHOWN_MOST 128 /* consecutive blocks without a mapped page */

/* `given_up`: 1 once the driver refused the advice or the page map proved useless. */
static uint32_t given_up;
static uint32_t unshown;

static void give_up(const char *why) {
  static uint32_t said;
  PUMP_STORE(&given_up, 1);
  pump_log_once(&said, PUMP_LOG_INFO, "%s: evictions also copy clean memory to the host",
                why);
}

CUresult pump_advise(uint32_t device, uint64_t address, uint64_t length_bytes,
                     CUmem_advise advice) {
  if (PUMP_HAS(cuMemAdvise_v2)) {
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)device};
    return pump_real.cuMemAdvise_v2(address, length_bytes, advice, location);
  }
  return pump_real.cuMemAdvise(address, length_bytes, advice, (CUdevice)device);
}

/* Advises blocks [first, end), and notes the advice if the driver accepted it. */
static CUresult advise_blocks(uint32_t device, uint64_t address, uint32_t first,
                              uint32_t end, CUmem_advise advice) {
  uint64_t begin = address + (uint64_t)first * PUMP_BLOCK_BYTES;
  uint64_t length_bytes = (uint64_t)(end - first) * PUMP_BLOCK_BYTES;
  CUresult result = pump_advise(device, begin, length_bytes, advice);
  if (result == CUDA_SUCCESS)
    pump_read_mostly_note(begin / PUMP_BLOCK_BYTES,
                          (begin + length_bytes) / PUMP_BLOCK_BYTES,
                          advice == SET_READ_MOSTLY);
  return result;
}

bool pump_takes_advice(uint32_t device, uint64_t address) {
  struct pump_hit hit;
  return !pump_peer_may_reach(device) && pump_range_lookup(address, &hit) &&
         hit.kind == PUMP_RANGE_CONVERTED && hit.pool == NULL && !hit.by_handle;
}

static uint32_t blocks_of(uint64_t length_bytes) {
  uint64_t blocks = length_bytes / PUMP_BLOCK_BYTES;
  return blocks < PUMP_MASK_BLOCKS ? (uint32_t)blocks : PUMP_MASK_BLOCKS;
}

/* Returns which of `blocks` (one bit per block) have all pages mapped for the CPU. */
static uint32_t find_mapped(uint64_t address, uint32_t blocks) {
  uint32_t found = 0;
  struct pump_page_map map = pump_page_map_open();
  for (uint32_t i = 0; i < PUMP_MASK_BLOCKS; i++) {
    if (!(blocks >> i & 1)) continue;
    int mapped = pump_page_map_count_mapped(map, address + (uint64_t)i * PUMP_BLOCK_BYTES);
    if (mapped == PUMP_BLOCK_PAGES) found |= 1u << i;
    if (mapped > 0)
      PUMP_STORE(&unshown, 0);
    else if (__atomic_add_fetch(&unshown, 1, __ATOMIC_RELAXED) == UNSHOWN_MOST)
      give_up("this process's page map does not show dirty pages");
  }
  pump_page_map_close(map);
  return found;
}

uint32_t pump_duplicates_prepare_arrival(uint32_t device, uint64_t address,
                                         uint64_t length_bytes, uint32_t wanted) {
  if (wanted == 0 || PUMP_LOAD(&given_up) != 0 || !pump_takes_advice(device, address))
    return 0;
  uint32_t count = blocks_of(length_bytes), mapped = find_mapped(address, wanted), done = 0;
  for (uint32_t i = 0, end; i < count; i = end) {
    end = i + 1;
    if (!(mapped >> i & 1)) continue;
    while (end < count && (mapped >> end & 1)) end++;
    if (advise_blocks(device, address, i, end, SET_READ_MOSTLY) != CUDA_SUCCESS) {
      give_up("the driver refuses READ_MOSTLY");
      break;
    }
    done |= mapped & (uint32_t)((1ull << end) - (1ull << i));
  }
  /* Checks again: a fault may have migrated blocks before the advice took effect. */
  return done != 0 ? find_mapped(address, done) : 0;
}

CUresult pump_duplicates_prepare_eviction(uint32_t device, uint64_t address,
                                          uint64_t length_bytes, uint32_t *clean) {
  uint32_t count = blocks_of(length_bytes), hinted = 0;
  *clean = 0;
  for (uint32_t i = 0; i < count; i++)
    if (pump_read_mostly_is_set(address + (uint64_t)i * PUMP_BLOCK_BYTES))
      hinted |= 1u << i;
  if (hinted == 0) return CUDA_SUCCESS;
  uint32_t found = pump_peer_may_reach(device) ? 0 : find_mapped(address, hinted);
  uint32_t first = (uint32_t)__builtin_ctz(hinted);
  uint32_t end = 32 - (uint32_t)__builtin_clz(hinted);
  CUresult result = advise_blocks(device, address, first, end, UNSET_READ_MOSTLY);
  if (result == CUDA_SUCCESS) *clean = found;
  return result;
}

bool pump_duplicates_next_dirty(uint32_t clean, uint64_t length_bytes,
                                uint64_t *offset_bytes, uint64_t *bytes) {
  uint64_t at = *offset_bytes + *bytes;
  if (at >= length_bytes) return false;
  uint32_t block = (uint32_t)(at / PUMP_BLOCK_BYTES), end;
  while (block < PUMP_MASK_BLOCKS && (clean >> block & 1)) block++;
  for (end = block; end < PUMP_MASK_BLOCKS && !(clean >> end & 1);) end++;
  *offset_bytes = block == 0 ? 0 : (uint64_t)block * PUMP_BLOCK_BYTES;
  if (*offset_bytes >= length_bytes) return false;
  uint64_t end_bytes = (uint64_t)end * PUMP_BLOCK_BYTES;
  if (end_bytes > length_bytes || end == PUMP_MASK_BLOCKS) end_bytes = length_bytes;
  *bytes = end_bytes - *offset_bytes;
  return true;
}
