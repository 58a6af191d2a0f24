/* reported_blocks.c - blocks that the program's allocator reports: their effect on
 * launches, events for freed blocks, and inconsistent reports.
 */
#include "shim/record/allocator_blocks.h"

#include <string.h>

#include "noise.h"
#include "pump_ring.h"
#include "record_harness.h"

#define MIB ((uint64_t)1 << 20)
#define BASE 0x7f0010000000

/* A process that starts over (pump_blocks_reset) leaks its maps. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "detect_leaks=0";
}

static uint64_t events(void) {
  return pump_shm->shim_counters.block_events;
}

static void hand_out(const struct pump_range_info *r, uint64_t offset, uint64_t bytes) {
  pump_blocks_event(r->base + offset, (int64_t)bytes);
}

static void take_back(const struct pump_range_info *r, uint64_t offset, uint64_t bytes) {
  pump_blocks_event(r->base + offset, -(int64_t)bytes);
}

/* Launches with one pointer; returns the number of extents. */
static uint32_t launch_at(uint64_t pointer) {
  void *params[] = {&pointer};
  driver.sizes[0] = 8, driver.parameters = 1;
  CHECK(launch(params, NULL) == CUDA_SUCCESS);
  do CHECK(next_event());
  while (head.kind == PUMP_EVENT_DEAD);
  CHECK(head.kind == PUMP_EVENT_KERNEL);
  return head.extent_count;
}

/* Returns the reported bytes that a launch's pointer reaches; 0: unknown; -1: nothing. */
static int64_t reach(const struct pump_range_info *r, uint64_t offset) {
  if (launch_at(r->base + offset) == 0) return -1;
  CHECK((extents[0].length_access & 3) == PUMP_ACCESS_ARGUMENT);
  CHECK((extents[0].length_access >> 2 & 0xffff) == 0 && extents[0].offset_bytes == offset);
  uint64_t units = extents[0].length_access >> (2 + PUMP_ARGUMENT_BITS);
  return (int64_t)pump_units_bytes(units, offset);
}

static void a_launch_reaches_to_the_end_of_its_block_and_nothing_that_was_freed(void) {
  struct pump_range_info a = range(BASE, 10), other = range(BASE + 64 * MIB, 1);
  CHECK(reach(&a, 4 * MIB) == 0);
  hand_out(&a, 0, 3 * MIB);
  hand_out(&a, 3 * MIB, 17 * MIB); /* up to the end of the segment */
  CHECK(reach(&a, 0) == 3 * MIB && reach(&a, 3 * MIB) == 17 * MIB);
  CHECK(told.touched_bytes == 17 * MIB);
  CHECK(reach(&a, MIB + 4) == 2 * MIB - 4 && reach(&a, 20 * MIB - 8) == 8);
  CHECK(reach(&other, 0) == 0); /* its blocks were not reported */
  take_back(&a, 0, 3 * MIB);
  CHECK(reach(&a, 0) == -1 && reach(&a, 3 * MIB) == 17 * MIB);
  CHECK(events() == 3 && pump_blocks_reported);
}

static void blocks_are_cut_and_joined_as_the_allocator_likes(void) {
  struct pump_range_info a = range(BASE, 8);
  for (uint64_t i = 0; i < 16; i++) hand_out(&a, i * MIB, MIB);
  for (uint64_t i = 0; i < 16; i++) take_back(&a, i * MIB, MIB);
  hand_out(&a, 2 * MIB, 9 * MIB);
  hand_out(&a, 11 * MIB, 512);
  CHECK(reach(&a, 5 * MIB) == 6 * MIB && reach(&a, 11 * MIB) == 512);
  CHECK(reach(&a, MIB) == -1 && reach(&a, 11 * MIB + 512) == -1);
  CHECK(events() == 34 && pump_blocks_reported);
}

/* Compares with a record of each 512 bytes: 0 free, else the number of the block. */
static void random_traffic_agrees_with_a_plain_record(void) {
  enum { UNITS = 3 * 4096, MOST = 200 };
  static uint16_t units[UNITS];
  struct pump_range_info a = range(BASE, 3);
  struct {
    uint64_t first, count;
  } blocks[MOST] = {{0, 0}};
  uint64_t state = noise_begin(1);
  for (int step = 0; step < 20000; step++) {
    uint32_t i = noise_below(&state, MOST);
    uint64_t first = (state >> 20) % UNITS, most = 1u << ((state >> 5) % 13), count = 0;
    if (blocks[i].count != 0) {
      take_back(&a, blocks[i].first * 512, blocks[i].count * 512);
      memset(&units[blocks[i].first], 0, blocks[i].count * sizeof units[0]);
      blocks[i].count = 0;
    } else {
      while (count < most && first + count < UNITS && units[first + count] == 0) count++;
      if (count == 0) continue;
      hand_out(&a, first * 512, count * 512);
      for (uint64_t u = first; u < first + count; u++) units[u] = (uint16_t)(i + 1);
      blocks[i].first = first, blocks[i].count = count;
    }
    uint64_t at = (state >> 7) % UNITS, end = at;
    while (end < UNITS && units[end] == units[at]) end++;
    struct pump_hit hit;
    CHECK(pump_blocks_reported && pump_range_lookup(a.base + at * 512, &hit));
    struct pool_piece piece = pool_map_piece(pump_blocks_of(&hit), at * 512);
    CHECK(piece.live == (units[at] != 0));
    if (piece.live) CHECK(piece.offset_bytes + piece.length_bytes == end * 512);
    while (next_of_any_kind()) /* skips reports of dead memory */
      CHECK(head.kind == PUMP_EVENT_DEAD && head.extent_count == 1);
  }
}

static bool dead_is(uint64_t offset, uint64_t bytes) {
  return next_event() && head.kind == PUMP_EVENT_DEAD && head.extent_count == 1 &&
         extents[0].offset_bytes == offset && extents[0].length_access >> 2 == bytes;
}

static void what_no_block_reaches_into_any_more_is_told_dead(void) {
  struct pump_range_info a = range(BASE, 8);
  hand_out(&a, 0, MIB);
  hand_out(&a, MIB, 8 * MIB); /* from inside the first 2 MiB block to inside the fifth */
  hand_out(&a, 9 * MIB, MIB);
  take_back(&a, MIB, 8 * MIB);
  CHECK(dead_is(2 * MIB, 6 * MIB));
  take_back(&a, 0, MIB);
  CHECK(dead_is(0, 2 * MIB));
  hand_out(&a, 8 * MIB, 512);
  take_back(&a, 9 * MIB, MIB);
  CHECK(!next_event()); /* another block is still there */
  take_back(&a, 8 * MIB, 512);
  CHECK(dead_is(8 * MIB, 2 * MIB));
  CHECK(pump_shm->shim_counters.block_dead_bytes == 10 * MIB);
  pump_reporting = 0; /* nothing has to move */
  hand_out(&a, 0, 2 * MIB);
  take_back(&a, 0, 2 * MIB);
  CHECK(pump_shm->shim_counters.block_dead_bytes == 10 * MIB);
}

static void the_first_report_that_does_not_fit_ends_it_for_good(void) {
  static const struct {
    uint64_t offset;
    int64_t bytes;
  } wrong[] = {
      {4 * MIB, MIB},       /* is live */
      {4 * MIB + 512, 512}, /* inside a live block */
      {3 * MIB, 2 * MIB},   /* covers a live block */
      {15 * MIB, 2 * MIB},  /* beyond the segment */
      {1, 512},
      {0, 511},
      {0, -(int64_t)MIB},    /* never handed out */
      {4 * MIB + 512, -512}, /* inside a live block */
      {4 * MIB, -512},       /* with another length */
      {0, INT64_MIN},
      {0, INT64_MAX},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    pump_range_reset();
    pump_blocks_reset();
    pump_shm->shim_counters.block_events = 0;
    struct pump_range_info a = range(BASE, 8);
    hand_out(&a, 4 * MIB, MIB);
    CHECK(reach(&a, 4 * MIB) == MIB);
    pump_blocks_event(a.base + wrong[i].offset, wrong[i].bytes);
    CHECK(!pump_blocks_reported && events() == 1);
    CHECK(reach(&a, 4 * MIB) == 0 && reach(&a, 0) == 0); /* extents are learned */
    hand_out(&a, 8 * MIB, MIB);
    CHECK(!pump_blocks_reported && events() == 1 && reach(&a, 8 * MIB) == 0);
  }
}

static void memory_that_we_have_not_converted_is_none_of_our_business(void) {
  static struct pump_pool_map map = {.words = 64, .capacity = 64};
  struct pump_range_info managed = {.base = BASE,
                                    .length_bytes = BLOCK,
                                    .requested_bytes = BLOCK,
                                    .kind = PUMP_RANGE_MANAGED};
  struct pump_range_info pool = managed;
  pool.base += 4 * BLOCK, pool.kind = PUMP_RANGE_CONVERTED, pool.pool = &map;
  CHECK(pump_range_add(&managed) >= 0 && pump_range_add(&pool) >= 0);
  struct pump_range_info a = range(BASE + 8 * BLOCK, 1);
  pump_blocks_event(BASE - 512, 512);
  pump_blocks_event(UINT64_MAX - 511, 512);
  hand_out(&managed, 0, 512);
  hand_out(&pool, 0, 512);
  take_back(&a, 0, 512); /* handed out before reports began: the range has no map */
  hand_out(&a, 0, 0);
  CHECK(events() == 0 && !pump_blocks_reported);
  hand_out(&a, 0, 512);
  CHECK(events() == 1 && pump_blocks_reported);
}

static void another_segment_in_the_place_of_one_begins_empty(void) {
  static const uint64_t lengths[] = {8, 8, 5, 64, 2, 8}; /* blocks */
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    struct pump_range_info a = range(BASE, lengths[i]);
    CHECK(a.slot == 0);
    CHECK(reach(&a, MIB) == 0); /* until something is reported there */
    hand_out(&a, 0, MIB);
    CHECK(reach(&a, MIB) == -1 && reach(&a, 0) == MIB);
    hand_out(&a, MIB, lengths[i] * BLOCK - MIB);
    CHECK(reach(&a, MIB) == (int64_t)(lengths[i] * BLOCK - MIB));
    CHECK(pump_range_remove(BASE, &a) == 0);
    pump_range_release(a.slot);
  }
}

/* Blocks that a graph's kernels use were mostly freed during the capture. */
static void a_kernel_of_a_graph_uses_blocks_that_were_freed(void) {
  struct pump_range_info a = range(BASE, 8);
  struct pump_op op;
  uint64_t freed = a.base + 4 * MIB, live = a.base;
  void *params[] = {&freed, &live};
  driver.sizes[0] = driver.sizes[1] = 8, driver.parameters = 2;
  hand_out(&a, 0, 512);
  struct pump_launch made = {.function = KERNEL, .params = params};
  pump_launch_describe(&made, &op);
  CHECK(op.count == 2 && op.extents[0].offset_bytes == 4 * MIB);
  CHECK(op.extents[0].length_access >> (2 + PUMP_ARGUMENT_BITS) == 0);
  CHECK(op.extents[1].length_access >> (2 + PUMP_ARGUMENT_BITS) == 1);
}

/* While a program is dormant, reports are only stored; later all live blocks are known. */
static void a_program_that_becomes_active_knows_the_blocks_that_live(void) {
  struct pump_range_info a = range(BASE, 8), b = range(BASE + 64 * MIB, 8);
  pump_reporting = 0;
  for (uint64_t i = 0; i < 16; i++) hand_out(&a, i * MIB, MIB);
  for (uint64_t i = 1; i < 16; i++) take_back(&a, i * MIB, MIB);
  hand_out(&a, MIB, 5 * MIB);
  hand_out(&b, 2 * MIB, 512);
  take_back(&b, 4 * MIB, 512); /* handed out before reports were followed */
  CHECK(events() == 33 && !pump_blocks_reported);
  pump_reporting = 1;
  pump_blocks_settle();
  pump_blocks_settle();
  CHECK(events() == 33 && pump_blocks_reported);
  CHECK(reach(&a, 0) == MIB && reach(&a, 2 * MIB) == 4 * MIB && reach(&a, 6 * MIB) == -1);
  CHECK(reach(&b, 2 * MIB) == 512 && reach(&b, 0) == -1);
  take_back(&a, MIB, 5 * MIB);
  CHECK(events() == 34 && reach(&a, 2 * MIB) == -1);
}

/* Becoming active is not announced here: the next report notices it. A table that grows
 * large is processed early. */
static void the_first_report_after_that_or_too_many_blocks_do_the_same(void) {
  struct pump_range_info a = range(BASE, 8), b = range(BASE + 64 * MIB, 8);
  pump_reporting = 0;
  hand_out(&a, 0, MIB);
  pump_reporting = 1;
  hand_out(&a, MIB, MIB);
  CHECK(reach(&a, 0) == MIB && reach(&a, MIB) == MIB && events() == 2);
  pump_blocks_reset();
  pump_reporting = 0;
  for (uint64_t i = 0; i < 16000; i++) hand_out(&b, i * 512, 512);
  CHECK(pump_blocks_reported && events() == 16002);
  pump_reporting = 1;
  for (uint64_t i = 0; i < 16000; i += 1000) CHECK(reach(&b, i * 512) == 512);
}

static void what_does_not_fit_ends_it_in_a_dormant_program_too(void) {
  static const struct {
    uint64_t offset;
    int64_t bytes;
  } wrong[] = {{4 * MIB, MIB},
               {4 * MIB, -512},
               {4 * MIB, INT64_MIN},
               {4 * MIB + 512, 512},
               {3 * MIB, 2 * MIB},
               {15 * MIB, 2 * MIB},
               {1, 512},
               {0, INT64_MAX}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    pump_range_reset();
    pump_blocks_reset();
    struct pump_range_info a = range(BASE, 8);
    pump_reporting = 0;
    hand_out(&a, 4 * MIB, MIB);
    pump_blocks_event(a.base + wrong[i].offset, wrong[i].bytes);
    pump_reporting = 1;
    pump_blocks_settle(); /* finds the bad report at the latest */
    CHECK(!pump_blocks_reported && reach(&a, 4 * MIB) == 0);
    hand_out(&a, 8 * MIB, MIB);
    CHECK(!pump_blocks_reported && reach(&a, 8 * MIB) == 0);
  }
}

/* Adds three adjacent ranges, as mapped by the program. */
static void mapped(struct pump_range_info parts[3]) {
  for (uint64_t i = 0; i < 3; i++) {
    parts[i] = (struct pump_range_info){.base = BASE + i * 4 * MIB,
                                        .length_bytes = 4 * MIB,
                                        .requested_bytes = 4 * MIB,
                                        .kind = PUMP_RANGE_CONVERTED,
                                        .device = 3,
                                        .by_handle = true};
    CHECK(pump_range_add(&parts[i]) >= 0);
  }
}

static void a_block_may_lie_in_ranges_that_were_mapped_side_by_side(void) {
  struct pump_range_info r[3];
  mapped(r);
  hand_out(&r[0], 3 * MIB, 6 * MIB);
  hand_out(&r[2], MIB, 3 * MIB);
  CHECK(launch_at(BASE + 3 * MIB + 512) == 3);
  const uint64_t units[] = {2047, 8192, 2048};
  for (int i = 0; i < 3; i++) {
    CHECK(extents[i].slot == r[i].slot && extents[i].generation == r[i].generation);
    CHECK(extents[i].offset_bytes == (i == 0 ? 3 * MIB + 512 : 0));
    CHECK(extents[i].length_access >> (2 + PUMP_ARGUMENT_BITS) == units[i]);
  }
  CHECK(launch_at(BASE + 10 * MIB) == 1 && pump_blocks_reported);
  take_back(&r[0], 3 * MIB, 6 * MIB);
  CHECK(launch_at(BASE + 3 * MIB) == 0 && launch_at(BASE + 10 * MIB) == 1);
  /* A block that begins at the start of a range belongs to that range. */
  hand_out(&r[0], 0, 4 * MIB);
  hand_out(&r[1], 0, 4 * MIB);
  CHECK(launch_at(BASE) == 1 && launch_at(BASE + 4 * MIB) == 1);
  CHECK(pump_blocks_reported);
}

static void the_environment_can_turn_it_off(void) {
  setenv("PUMP_BLOCK_EVENTS", "0", 1);
  pump_blocks_reset();
  struct pump_range_info a = range(BASE, 8);
  hand_out(&a, 0, MIB);
  CHECK(events() == 0 && reach(&a, 0) == 0);
  unsetenv("PUMP_BLOCK_EVENTS");
  pump_blocks_reset();
  hand_out(&a, 0, MIB);
  CHECK(events() == 1 && reach(&a, 0) == MIB);
}

/* Called like libc10_cuda.so does; there is no original here. */
struct device {
  int8_t type, index;
};
void as_pytorch(
    void *address, long size_bytes, unsigned long allocated_bytes,
    unsigned long reserved_bytes,
    struct device device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

static void pytorch_reports_by_its_own_function(void) {
  struct pump_range_info a = range(BASE, 8);
  void *address = (void *)(uintptr_t)a.base;
  as_pytorch(address, 1 << 20, 1, 2, (struct device){0, -1}); /* memory of the CPU */
  CHECK(events() == 0);
  as_pytorch(address, 1 << 20, 1, 2, (struct device){1, 0});
  CHECK(events() == 1 && reach(&a, 0) == MIB && pump_reentry_depth == 0);
  as_pytorch(address, -(1 << 20), 0, 2, (struct device){1, 0});
  CHECK(events() == 2 && reach(&a, 0) == -1);
  pump_off = true;
  as_pytorch(address, 1 << 20, 1, 2, (struct device){1, 0});
  CHECK(events() == 2);
}

static const struct scenario scenarios[] = {
    SCENARIO(a_launch_reaches_to_the_end_of_its_block_and_nothing_that_was_freed),
    SCENARIO(blocks_are_cut_and_joined_as_the_allocator_likes),
    SCENARIO(random_traffic_agrees_with_a_plain_record),
    SCENARIO(what_no_block_reaches_into_any_more_is_told_dead),
    SCENARIO(the_first_report_that_does_not_fit_ends_it_for_good),
    SCENARIO(memory_that_we_have_not_converted_is_none_of_our_business),
    SCENARIO(another_segment_in_the_place_of_one_begins_empty),
    SCENARIO(a_kernel_of_a_graph_uses_blocks_that_were_freed),
    SCENARIO(a_program_that_becomes_active_knows_the_blocks_that_live),
    SCENARIO(the_first_report_after_that_or_too_many_blocks_do_the_same),
    SCENARIO(what_does_not_fit_ends_it_in_a_dormant_program_too),
    SCENARIO(a_block_may_lie_in_ranges_that_were_mapped_side_by_side),
    SCENARIO(the_environment_can_turn_it_off),
    SCENARIO(pytorch_reports_by_its_own_function),
};

int main(int argc, char **argv) {
  return run_scenario(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
