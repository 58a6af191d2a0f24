/* case_duplicates.c - scenarios of duplicates: advice, the page map, and moved blocks.
 *
 * A scenario's memory is mapped, so the kernel's own page map shows its pages. Returning
 * a page to the kernel has the same effect on the map as a write by the GPU, which unmaps
 * it.
 */
#include <string.h>
#include <sys/mman.h>

#include "executor_harness.h"

#define BLOCKS 8
#define SET 1
#define END 2
#define SET_IN_PLACE 5
#define END_IN_PLACE 6
#define ADVICES 7

/* ---- stubs of the range table and the driver ---------------------------------------- */

static uint64_t hinted; /* a bit for each block from `base` on */
static uint64_t base;
static bool of_pool, peers;

bool pump_read_mostly_is_set(uint64_t address) {
  return base != 0 && PUMP_LOAD(&hinted) >> (address - base) / PUMP_BLOCK_BYTES & 1;
}
void pump_read_mostly_note(uint64_t first_block, uint64_t end_block, bool set) {
  for (uint64_t i = first_block; i < end_block; i++) {
    uint64_t bit = 1ull << (i - base / PUMP_BLOCK_BYTES);
    if (set)
      __atomic_fetch_or(&hinted, bit, __ATOMIC_SEQ_CST);
    else
      __atomic_fetch_and(&hinted, ~bit, __ATOMIC_SEQ_CST);
  }
}
bool pump_peer_may_reach(uint32_t device) {
  (void)device;
  return peers;
}
bool pump_range_lookup(uint64_t address, struct pump_hit *hit) {
  static const char pool;
  (void)address;
  *hit = (struct pump_hit){.kind = PUMP_RANGE_CONVERTED};
  if (of_pool) hit->pool = (const struct pump_pool_map *)(const void *)&pool;
  return true;
}
void (*pump_driver_page_map)(uint64_t address, uint64_t *entries, uint32_t count);

/* ---- the driver's advice ------------------------------------------------------------ */

static uint32_t calls[ADVICES];
static uint64_t advised_bytes[ADVICES];
static CUresult answer;

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                       CUmemLocation location) {
  CHECK(address % PUMP_BLOCK_BYTES == 0 && bytes % PUMP_BLOCK_BYTES == 0);
  CHECK(location.type == CU_MEM_LOCATION_TYPE_DEVICE && advice < ADVICES);
  calls[advice]++;
  advised_bytes[advice] += bytes;
  return answer;
}

static uint64_t at_block(uint32_t block) {
  return base + (uint64_t)block * PUMP_BLOCK_BYTES;
}

/* Gives these blocks pages on the host. */
static void map(uint32_t block, uint32_t count) {
  memset((void *)at_block(block), 1, (size_t)count * PUMP_BLOCK_BYTES);
}

/* Simulates a GPU write to a page. */
static void write_page(uint32_t block, uint32_t page) {
  CHECK(madvise((void *)(at_block(block) + page * 4096ull), 4096, MADV_DONTNEED) == 0);
}

static void begin(void) {
  size_t bytes = (size_t)(BLOCKS + 1) * PUMP_BLOCK_BYTES;
  void *start =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(start != MAP_FAILED);
  base = ((uint64_t)start + PUMP_BLOCK_BYTES - 1) & ~(PUMP_BLOCK_BYTES - 1ull);
  CHECK(madvise((void *)base, bytes - PUMP_BLOCK_BYTES, MADV_NOHUGEPAGE) == 0);
  pump_real.cuMemAdvise_v2 = advise;
  pump_present.cuMemAdvise_v2 = true;
}

static uint32_t arrive(uint32_t wanted) {
  return pump_duplicates_prepare_arrival(0, base, BLOCKS * PUMP_BLOCK_BYTES, wanted);
}

static CUresult depart(uint32_t *clean) {
  return pump_duplicates_prepare_eviction(0, base, BLOCKS * PUMP_BLOCK_BYTES, clean);
}

/* ---- scenarios ---------------------------------------------------------------------- */

SCENARIO(what_was_not_written_leaves_without_a_copy) {
  uint32_t clean;
  begin();
  map(0, BLOCKS);
  CHECK(arrive(0x3c) == 0x3c);
  CHECK(calls[SET] == 1 && advised_bytes[SET] == 4 * PUMP_BLOCK_BYTES && hinted == 0x3c);
  write_page(3, 511);
  CHECK(depart(&clean) == CUDA_SUCCESS && clean == (0x3c & ~(1u << 3)));
  CHECK(calls[END] == 1 && advised_bytes[END] == 4 * PUMP_BLOCK_BYTES && hinted == 0);
  CHECK(depart(&clean) == CUDA_SUCCESS && clean == 0 && calls[END] == 1);
}

SCENARIO(what_the_host_has_no_copy_of_gets_no_advice) {
  begin();
  map(0, 3);
  write_page(1, 0);
  CHECK(arrive(0xff) == 0x5 && hinted == 0x5 && calls[SET] == 2);
}

SCENARIO(memory_whose_owner_changes_unseen_gets_no_advice) {
  uint32_t clean;
  begin();
  map(0, BLOCKS);
  of_pool = true;
  CHECK(arrive(0xff) == 0 && calls[SET] == 0);
  of_pool = false;
  CHECK(arrive(0xff) == 0xff);
  peers = true; /* from here on the memory prefers its device */
  CHECK(arrive(0xff) == 0 && calls[SET] == 1);
  CHECK(depart(&clean) == CUDA_SUCCESS && clean == 0 && calls[END] == 1);
}

SCENARIO(a_refusal_of_the_advice_ends_it_and_one_of_its_end_stops_the_departure) {
  uint32_t clean;
  begin();
  map(0, BLOCKS);
  CHECK(arrive(0x0f) == 0x0f);
  answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(depart(&clean) == CUDA_ERROR_INVALID_VALUE && clean == 0 && hinted == 0x0f);
  CHECK(arrive(0xf0) == 0 && hinted == 0x0f && calls[SET] == 2);
  answer = CUDA_SUCCESS;
  CHECK(arrive(0xf0) == 0 && calls[SET] == 2);
  CHECK(depart(&clean) == CUDA_SUCCESS && clean == 0x0f && hinted == 0);
}

SCENARIO(a_page_map_that_shows_nothing_ends_it) {
  begin();
  for (int i = 0; i < 16; i++) CHECK(arrive(0xff) == 0); /* 128 blocks */
  map(0, BLOCKS);
  CHECK(arrive(0xff) == 0 && calls[SET] == 0);
}

SCENARIO(of_a_slice_the_blocks_that_are_not_clean_are_moved_in_runs) {
  const struct {
    uint32_t clean, blocks, runs[3][2];
  } cases[] = {
      {0, 4, {{0, 4}}},     {0xf, 4, {{0, 0}}},     {0x6, 4, {{0, 1}, {3, 1}}},
      {0x9, 4, {{1, 2}}},   {0xffff, 16, {{0, 0}}}, {0x8000, 16, {{0, 15}}},
      {0x1, 40, {{1, 39}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    uint64_t at = 0, bytes = 0;
    uint64_t length = cases[i].blocks * (uint64_t)PUMP_BLOCK_BYTES;
    for (int run = 0; run < 3 && cases[i].runs[run][1] != 0; run++) {
      CHECK(pump_duplicates_next_dirty(cases[i].clean, length, &at, &bytes));
      CHECK(at == cases[i].runs[run][0] * (uint64_t)PUMP_BLOCK_BYTES);
      CHECK(bytes == cases[i].runs[run][1] * (uint64_t)PUMP_BLOCK_BYTES);
    }
    CHECK(!pump_duplicates_next_dirty(cases[i].clean, length, &at, &bytes));
  }
  uint64_t at = 0, bytes = 0; /* of a managed range that ends inside a block */
  CHECK(pump_duplicates_next_dirty(0, 4096, &at, &bytes) && at == 0 && bytes == 4096);
}

/* ---- reads in place ----------------------------------------------------------------- */

static bool read_in_place(uint32_t advice) {
  return pump_in_place_advise(0, base, BLOCKS * PUMP_BLOCK_BYTES, advice);
}

SCENARIO(memory_is_read_in_place_only_if_pump_alone_advises_it) {
  begin();
  CHECK(read_in_place(PUMP_ADVICE_IN_PLACE) && calls[SET_IN_PLACE] == 1);
  CHECK(read_in_place(PUMP_ADVICE_MIGRATE) && calls[END_IN_PLACE] == 1);
  CHECK(advised_bytes[SET_IN_PLACE] == BLOCKS * PUMP_BLOCK_BYTES);
  of_pool = true;
  CHECK(!read_in_place(PUMP_ADVICE_IN_PLACE));
  of_pool = false;
  peers = true;
  CHECK(!read_in_place(PUMP_ADVICE_IN_PLACE));
  peers = false;
  CHECK(calls[SET_IN_PLACE] == 1);
  hinted = 1u << (BLOCKS - 1); /* READ_MOSTLY would win over the advice */
  CHECK(read_in_place(PUMP_ADVICE_IN_PLACE) && hinted == 0 && calls[END] == 1);
  answer = CUDA_ERROR_NOT_SUPPORTED;
  CHECK(!read_in_place(PUMP_ADVICE_IN_PLACE) && calls[SET_IN_PLACE] == 3);
}
