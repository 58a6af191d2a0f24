/* extents_params.c - digests a parameter buffer once its pointers are known.
 *
 * A buffer waits here until its launch names the words that are live pointers. The digest
 * consists of integers that may be element counts, words that cannot be pointers, and
 * tables that extents_tables.c can read. The bytes themselves are not kept.
 */
#include <stdlib.h>
#include <string.h>

#include "extents_state.h"
#include "shim/base/key_table.h"

/* Slots for the pointers of the launch being digested; a power of two [derived]. */
#define POINTERS 512u
_Static_assert(POINTERS >= 2 * PUMP_MAX_EXTENTS, "half empty at most");

EXPORT void pump_extents_params(struct pump_extents *learner, uint64_t function,
                                uint64_t signature, const uint32_t grid[3],
                                const uint32_t block[3], const uint8_t *parameters,
                                uint32_t bytes) {
  if (bytes == 0) return;
  if (bytes > PUMP_EXTENTS_PARAMETER_BYTES) bytes = PUMP_EXTENTS_PARAMETER_BYTES;
  struct extents_pending *launch = &learner->pending[learner->next_pending];
  if (launch->parameters == NULL) {
    launch->parameters = malloc(PUMP_EXTENTS_PARAMETER_BYTES);
    if (launch->parameters == NULL) return;
  }
  learner->next_pending = (learner->next_pending + 1) % EXTENTS_PENDING;
  launch->function = function;
  launch->signature = signature;
  memcpy(launch->grid, grid, sizeof(launch->grid));
  launch->threads = block[0] * block[1] * block[2];
  launch->bytes = bytes;
  memcpy(launch->parameters, parameters, bytes);
}

static struct extents_pending *waiting(struct pump_extents *learner, uint64_t function,
                                       uint64_t signature) {
  for (uint32_t i = 0; i < EXTENTS_PENDING; i++) {
    struct extents_pending *launch = &learner->pending[i];
    if (launch->bytes != 0 && launch->signature == signature &&
        launch->function == function)
      return launch;
  }
  return NULL;
}

static void gather(struct pump_extents *learner, uint32_t count,
                   const struct pump_pointer *pointers, struct pump_table *values) {
  for (uint32_t i = 0; i < count; i++) {
    const struct extents_segment *segment =
        extents_segment_at(learner, pointers[i].slot, pointers[i].generation);
    if (segment == NULL) continue;
    uint64_t value = segment->base + pointers[i].offset_bytes;
    if (pump_table_find(values, value) == NULL) pump_table_add(values, value);
  }
}

/* Returns whether this may be the upper half of a host pointer, left over in padding. */
static bool host_half(uint32_t upper) {
  return upper >= 0x5500 && upper <= 0x7fff;
}

/* Returns whether the word cannot be a pointer to device memory. It may be a number, two
 * numbers, an address of code, heap or stack, or a pointer with an overwritten lower
 * half. */
static bool no_pointer(uint64_t word) {
  if (word == 0) return false; /* an optional pointer may be NULL */
  uint32_t upper = (uint32_t)(word >> 32);
  uint32_t lower = (uint32_t)word;
  if (upper == 0 || upper > 0xffff || lower < 0x10000 || lower >= 0xffff0000) return true;
  return (upper >= 0x5500 && upper <= 0x56ff) || upper >= 0x7ffc;
}

static void add_integer(struct extents_shape *shape, uint32_t value, uint32_t where,
                        uint32_t most) {
  if (value < 2 || value >= 0x80000000u || shape->count >= most) return;
  shape->integers[shape->count++] =
      (struct extents_integer){.value = value, .where = (uint16_t)where};
}

static void read_words(const struct extents_pending *launch,
                       const struct pump_table *values, struct extents_function *function,
                       struct extents_shape *shape) {
  for (uint32_t at = 0; at + 4 <= launch->bytes; at += 8) {
    uint64_t word = 0;
    memcpy(&word, launch->parameters + at, at + 8 <= launch->bytes ? 8 : 4);
    if (word == 0 || pump_table_find(values, word) != NULL) continue;
    if (no_pointer(word)) function->not_pointer[at / 512] |= 1ull << (at / 8 % 64);
    uint32_t upper = (uint32_t)(word >> 32);
    add_integer(shape, (uint32_t)word, at / 4, EXTENTS_INTEGERS - 3);
    if (!host_half(upper)) add_integer(shape, upper, at / 4 + 1, EXTENTS_INTEGERS - 3);
  }
}

/* Marks the integers for formulas: the grid, then the earliest parameters. */
static void mark_first(struct extents_shape *shape, uint32_t grid_begin) {
  uint32_t marked[EXTENTS_DISTINCT];
  uint32_t count = 0;
  for (uint32_t i = 0; i < shape->count && count < EXTENTS_DISTINCT; i++) {
    uint32_t at = (grid_begin + i) % shape->count;
    uint32_t j = 0;
    while (j < count && marked[j] != shape->integers[at].value) j++;
    if (j < count) continue;
    marked[count++] = shape->integers[at].value;
    shape->integers[at].first = 1;
  }
}

/* Keeps the decoded table; returns where. */
static uint32_t keep_table(struct pump_extents *learner, uint64_t key) {
  const struct extents_table *read = &learner->table;
  bool small = read->count <= EXTENTS_SMALL_TABLE;
  struct extents_cache *tables = small ? &learner->small_tables : &learner->tables;
  memcpy(extents_cache_take(tables, key, learner->now), read,
         offsetof(struct extents_table, entries) + read->count * sizeof(read->entries[0]));
  return small ? EXTENTS_SMALL : EXTENTS_LARGE;
}

/* Stores the launch's shape; returns its key. */
static uint64_t keep_shape(struct pump_extents *learner, struct extents_function *function,
                           uint64_t function_key, const struct extents_pending *launch,
                           uint32_t count, const struct pump_pointer *pointers) {
  uint64_t words[POINTERS] = {0};
  struct pump_table values = PUMP_TABLE(words);
  struct extents_shape read;
  read.count = 0;
  gather(learner, count, pointers, &values);
  read_words(launch, &values, function, &read);
  uint32_t grid_begin = read.count;
  for (uint32_t i = 0; i < 3; i++)
    add_integer(&read, launch->grid[i], EXTENTS_GRID + i, EXTENTS_INTEGERS);
  mark_first(&read, grid_begin);
  uint64_t key = extents_mix(function_key, read.count);
  for (uint32_t i = 0; i < read.count; i++)
    if (read.integers[i].first)
      key =
          extents_mix(key, (uint64_t)read.integers[i].value << 16 | read.integers[i].where);
  struct extents_shape *shape = extents_cache_take(&learner->shapes, key, learner->now);
  shape->key = key;
  shape->count = read.count;
  memcpy(shape->integers, read.integers, read.count * sizeof(read.integers[0]));
  return key;
}

const struct extents_signature *extents_digest(struct pump_extents *learner,
                                               struct extents_function *function,
                                               uint64_t handle, uint64_t function_key,
                                               uint64_t signature, uint32_t count,
                                               const struct pump_pointer *pointers) {
  uint64_t key = extents_mix(function_key, signature);
  struct extents_pending *launch = waiting(learner, handle, signature);
  if (launch == NULL) return extents_cache_find(&learner->signatures, key, learner->now);
  struct extents_signature *line =
      extents_cache_take(&learner->signatures, key, learner->now);
  bool decoded = extents_decode(&function->named, launch, &learner->table);
  line->table = decoded ? keep_table(learner, key) : 0;
  line->shape = 0;
  /* A table with all its slots needs no integers. */
  if (!decoded || learner->table.open)
    line->shape = keep_shape(learner, function, function_key, launch, count, pointers);
  launch->bytes = 0;
  return line;
}
