/* extents_fuzz.c - fuzzes the learner of extents, and compares its starts with a naive
 * model.
 *
 * `noise SEED ROUNDS`: random ranges, launches, parameters, names and signatures, from
 * small sets, so that they collide. After each launch, answers must be inside their range.
 * A second learner with the same input must give the same answers, and the tables must be
 * in order.
 *
 * `starts SEED ROUNDS`: compares the starts of a segment with an array of flags.
 *
 * `full`: inserts the maximum number of starts, and more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "daemon/core/extents/extents_state.h"
#include "noise.h"

static uint64_t state;

static uint64_t next(void) {
  return noise_next(&state);
}

static uint32_t below(uint32_t bound) {
  return noise_below(&state, bound);
}

/* --- noise ------------------------------------------------------------------- */

#define SLOTS 24u
#define FUNCTIONS 40u

struct range {
  uint32_t generation;
  uint64_t base;
  uint64_t length_bytes;
};

static struct range ranges[SLOTS];
static struct pump_extents *learners[2];
static uint8_t parameters[PUMP_EXTENTS_PARAMETER_BYTES + 64];

static const char *const names[] = {
    "_ZN2at6native12_GLOBAL__N__25multi_tensor_apply_kernelINS1_"
    "18TensorListMetadataILi2EEE",
    "multi_tensor_apply_kernelINS1_28TensorListScalarListMetadataIfLi3EEE",
    "multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadataILi4EEE",
    "multi_tensor_apply_kernel32FusedOptimizerTensorListMetadataILi",
    "CatArrayBatchedCopyINS1_10OpaqueTypeILj99999999999999999999EEEj",
    "CatArrayBatchedCopyINS1_10OpaqueTypeILj4EEEj",
    "14lpnorm_cleanupNS0_19TensorListAddressesEi",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIf",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_FunctorIN3c108BFloat16E",
    "FunctorIFunctorIFunctorI",
    "OpaqueTypeILj",
    "",
};

static uint64_t odd_length(void) {
  switch (below(8)) {
  case 0:
    return below(4096);
  case 1:
    return UINT64_MAX - below(4096);
  case 2:
    return 1ull << below(64);
  default:
    return (uint64_t)(1 + below(64)) << 20;
  }
}

static void new_range(uint32_t slot) {
  struct range *range = &ranges[slot];
  range->generation = below(3);
  range->base = below(6) == 0 ? next() : 0x7f0000000000u + ((uint64_t)slot << 32);
  range->length_bytes = odd_length();
  for (int i = 0; i < 2; i++)
    pump_extents_segment(learners[i], slot, range->generation, range->base,
                         range->length_bytes);
}

static struct pump_pointer odd_pointer(void) {
  struct pump_pointer pointer = {.slot = below(SLOTS), .generation = below(3)};
  const struct range *range = &ranges[pointer.slot];
  if (below(4) != 0) pointer.generation = range->generation;
  pointer.argument = below(10) == 0 ? (uint32_t)next() : below(600) * 8;
  pointer.offset_bytes = below(20) == 0 ? next() : (uint64_t)below(64) << 20;
  if (below(3) == 0) pointer.offset_bytes += below(1 << 20);
  if (below(50) == 0) pointer.slot = (uint32_t)next();
  return pointer;
}

static void odd_parameters(uint32_t bytes, const struct pump_pointer *pointers,
                           uint32_t count) {
  for (uint32_t at = 0; at < bytes; at += 4) {
    uint32_t word = below(3) == 0 ? 0 : below(2) == 0 ? below(1 << 22) : (uint32_t)next();
    memcpy(parameters + at, &word, bytes - at < 4 ? bytes - at : 4);
  }
  if (bytes > 1900 && below(2) == 0) memset(parameters + 900, 0, 320); /* nearly a table */
  for (uint32_t i = 0; i < count; i++) {
    if (pointers[i].slot >= SLOTS || pointers[i].argument > bytes - 8 || bytes < 8)
      continue;
    uint64_t value = ranges[pointers[i].slot].base + pointers[i].offset_bytes;
    memcpy(parameters + pointers[i].argument, &value, sizeof value);
  }
}

/* Writes a plausible table of two lists, except that lengths are arbitrary. */
static uint32_t sensible_table(const struct pump_pointer *pointers, uint32_t count,
                               uint32_t grid[3]) {
  memset(parameters, 0, 3400);
  uint32_t block = 0;
  for (uint32_t slot = 0; slot < 64 && block < 300; slot++) {
    uint64_t elements = 1 + (next() >> (24 + below(40)));
    for (uint32_t list = 0; list < 2; list++) {
      const struct pump_pointer *pointer = &pointers[count == 0 ? 0 : below(count)];
      uint64_t value = 0x7f0000000000u;
      if (count != 0 && pointer->slot < SLOTS)
        value = ranges[pointer->slot].base + pointer->offset_bytes;
      memcpy(parameters + 512 * list + 8 * slot, &value, 8);
    }
    memcpy(parameters + 1024 + 8 * slot, &elements, 8);
    for (uint64_t chunk = 0; chunk <= (elements - 1) / 65536 && block < 320; chunk++) {
      uint32_t narrow = (uint32_t)chunk;
      parameters[1536 + block] = (uint8_t)slot;
      memcpy(parameters + 1856 + 4 * block, &narrow, 4);
      block++;
    }
  }
  grid[0] = block;
  grid[1] = grid[2] = 1;
  return 3144 + 8 * below(4);
}

static void check_learner(const struct pump_extents *learner) {
  uint32_t starts = 0;
  for (uint32_t slot = 0; slot < SLOTS; slot++) {
    const struct extents_segment *segment = learner->segments[slot];
    if (segment == NULL) continue;
    CHECK(segment->count >= 1 && segment->count <= EXTENTS_STARTS_SEGMENT);
    CHECK(segment->starts[0].offset == 0);
    for (uint32_t i = 1; i < segment->count; i++)
      CHECK(segment->starts[i - 1].offset < segment->starts[i].offset);
    CHECK(segment->starts[segment->count - 1].offset < segment->length_bytes);
    starts += segment->count;
  }
  CHECK(learner->starts == starts && starts <= EXTENTS_STARTS + SLOTS);
}

static void launch(void) {
  struct pump_pointer pointers[300];
  uint64_t lengths[2][300];
  uint32_t used[2];
  uint32_t count = below(10) == 0 ? below(300) : below(12);
  for (uint32_t i = 0; i < count; i++) pointers[i] = odd_pointer();
  uint64_t function = below(FUNCTIONS);
  uint64_t signature = below(200);
  uint32_t grid[3] = {below(400), below(3) == 0 ? (uint32_t)next() : below(4), 1};
  uint32_t block[3] = {below(1024), 1, below(2)};
  uint32_t bytes = below(8) == 0 ? below(PUMP_EXTENTS_PARAMETER_BYTES + 64) : below(1200);
  bool told = below(2) == 0;
  odd_parameters(bytes, pointers, count);
  if (below(8) == 0) {
    bytes = sensible_table(pointers, count, grid);
    for (uint32_t i = 0; i < count; i++) pointers[i].argument = 8 * below(400);
  }
  /* An exact copy, so that sanitizers detect reads beyond it. */
  uint8_t *exact = memcpy(malloc(bytes + !bytes), parameters, bytes);
  for (int i = 0; i < 2; i++) {
    if (told)
      pump_extents_params(learners[i], function, signature, grid, block, exact, bytes);
    memset(lengths[i], 0xab, sizeof lengths[i]);
    used[i] =
        pump_extents_kernel(learners[i], function, signature, count, pointers, lengths[i]);
  }
  free(exact);
  uint32_t positive = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t length = lengths[0][i];
    CHECK(length == lengths[1][i]);
    positive += length != 0;
    if (length == 0) continue;
    CHECK(pointers[i].slot < SLOTS);
    const struct range *range = &ranges[pointers[i].slot];
    CHECK(range->generation == pointers[i].generation);
    CHECK(pointers[i].offset_bytes < range->length_bytes);
    CHECK(length <= range->length_bytes - pointers[i].offset_bytes);
  }
  CHECK(used[0] == positive && used[1] == positive);
}

static void noise(uint32_t rounds) {
  for (int i = 0; i < 2; i++) CHECK((learners[i] = pump_extents_new()) != NULL);
  for (uint32_t slot = 0; slot < SLOTS; slot++) new_range(slot);
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t slot = below(20) == 0 ? (uint32_t)next() : below(SLOTS);
    uint32_t what = below(40);
    if (what == 0) {
      for (int i = 0; i < 2; i++) pump_extents_segment_gone(learners[i], slot);
      if (slot < SLOTS) ranges[slot].length_bytes = 0;
    } else if (what == 1) {
      new_range(below(SLOTS));
    } else if (what == 2) {
      const char *name = names[below(sizeof names / sizeof names[0])];
      uint32_t bytes = (uint32_t)strlen(name);
      if (below(3) == 0) bytes = below(bytes + 1);
      uint64_t function = below(FUNCTIONS);
      char *exact = memcpy(malloc(bytes + !bytes), name, bytes); /* without a final zero */
      for (int i = 0; i < 2; i++) pump_extents_name(learners[i], function, exact, bytes);
      free(exact);
    } else if (what < 6) {
      uint32_t generation = below(3);
      uint64_t offset = below(9) == 0 ? next() : (uint64_t)below(64) << 20;
      uint64_t length = odd_length();
      for (int i = 0; i < 2; i++)
        pump_extents_bytes(learners[i], slot, generation, offset, length);
    } else {
      launch();
    }
    if (round % 64 == 0) check_learner(learners[0]);
  }
  for (int i = 0; i < 2; i++) pump_extents_delete(learners[i]);
}

/* --- starts ------------------------------------------------------------------ */

#define PLACES 512u
#define STEP 4096u

static void starts(uint32_t rounds) {
  struct pump_extents *learner = pump_extents_new();
  CHECK(learner != NULL);
  pump_extents_segment(learner, 0, 1, 0, (uint64_t)PLACES * STEP);
  struct extents_segment *segment = extents_segment_at(learner, 0, 1);
  CHECK(segment != NULL && extents_segment_at(learner, 0, 2) == NULL);
  bool known[PLACES] = {true};
  uint32_t used[PLACES] = {0}; /* last operation that used it */
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t at = below(PLACES);
    uint32_t length = 1 + below(PLACES - at);
    if (below(4) == 0) {
      length = 1 + below(length);
      pump_extents_bytes(learner, 0, 1, (uint64_t)at * STEP, (uint64_t)length * STEP);
    } else {
      learner->now++;
      uint32_t other = below(PLACES);
      extents_start_use(learner, segment, (uint64_t)other * STEP);
      known[other] = true;
      used[other] = learner->now;
      uint32_t index = extents_start_use(learner, segment, (uint64_t)at * STEP);
      length = below(3) == 0 ? length : 1;
      extents_start_length(learner, segment, below(3) == 0 ? below(PLACES) : index,
                           (uint64_t)at * STEP, (uint64_t)length * STEP);
    }
    known[at] = true;
    used[at] = learner->now;
    for (uint32_t i = at + 1; i < at + length; i++)
      if (used[i] != learner->now) known[i] = false;
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
      if (!known[i]) continue;
      CHECK(count < segment->count);
      CHECK(segment->starts[count++].offset == (uint64_t)i * STEP);
    }
    CHECK(count == segment->count && learner->starts == count);
    uint32_t from = below(PLACES);
    uint32_t after = from + 1;
    while (after < PLACES && !known[after]) after++;
    CHECK(extents_nearest(segment, (uint64_t)from * STEP) ==
          (uint64_t)(after - from) * STEP);
    uint64_t distances[EXTENTS_CANDIDATES + 1];
    uint32_t ends = extents_ends(segment, (uint64_t)from * STEP, distances);
    CHECK(ends >= 1 && distances[0] == (uint64_t)(after - from) * STEP);
    CHECK(distances[ends - 1] == (uint64_t)(PLACES - from) * STEP);
  }
  pump_extents_delete(learner);
}

/* --- full -------------------------------------------------------------------- */

static void full(void) {
  struct pump_extents *learner = pump_extents_new();
  CHECK(learner != NULL);
  const uint32_t slots = EXTENTS_STARTS / EXTENTS_STARTS_SEGMENT + 4;
  for (uint32_t slot = 0; slot < slots; slot++) {
    pump_extents_segment(learner, slot, 1, (uint64_t)slot << 40, 1ull << 40);
    for (uint32_t i = 0; i < EXTENTS_STARTS_SEGMENT + 100; i++) {
      struct pump_pointer pointer = {
          .slot = slot, .generation = 1, .offset_bytes = (uint64_t)i << 20};
      uint64_t length = 0;
      CHECK(pump_extents_kernel(learner, 1, i % 7, 1, &pointer, &length) == 1);
      CHECK(length != 0 && length <= (1ull << 40) - pointer.offset_bytes);
    }
    CHECK(learner->segments[slot]->count <= EXTENTS_STARTS_SEGMENT);
  }
  CHECK(learner->starts <= EXTENTS_STARTS + slots);
  CHECK(learner->starts > EXTENTS_STARTS - EXTENTS_STARTS_SEGMENT);
  pump_extents_delete(learner);
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  state = noise_begin(strtoull(arguments[2], NULL, 10));
  uint32_t rounds = (uint32_t)strtoul(arguments[3], NULL, 10);
  if (strcmp(arguments[1], "noise") == 0)
    noise(rounds);
  else if (strcmp(arguments[1], "starts") == 0)
    starts(rounds);
  else if (strcmp(arguments[1], "full") == 0)
    full();
  else
    return 2;
  return 0;
}
