/* pointer_scan.c - finds the pointers among the words of a launch's parameters, and
 * hashes all other words. It does not depend on kernels and their layouts.
 *
 * DESIGN. Four steps overlap cache misses, so that a table of five hundred words costs
 * little more than reading it. Gather: each word is hashed, unless its value is between
 * the lowest and the highest live range; no branch depends on the words. Sort: equal
 * words become one candidate, since by-value tables repeat a few addresses, mostly stale
 * ones. Look ahead: the index yields each candidate's slot, and all their cache lines are
 * prefetched together. Resolve: by then the lines have arrived, or are at least on the
 * way.
 *
 * The hash is a sum of one term per word: a folded product of the word and its position.
 * So the order of terms does not matter, and a candidate that is not a pointer adds its
 * terms at the end. A pointer adds nothing: launches that differ only in addresses have
 * the same sum.
 *
 * Which words are pointers. Half of a table's words may be leftovers from the program's
 * stack: old pointers, some with one half overwritten. An overwritten low half is a small
 * positive or negative number, so a word with such a half counts only as the exact
 * beginning of a range. Inside a structure, a pointer's value must be a multiple of four,
 * because odd rows of fp32 tensors are aligned to four bytes. With an alignment of two or
 * one, a few in ten thousand words of recorded launches would be mistaken for pointers. A
 * separate parameter needs no alignment, because programs initialise parameters.
 */
#include <string.h>

#include "record.h"
#include "shim/memory/range_index.h"

#define ODD_A 0x9e3779b97f4a7c15u
#define ODD_B 0xd6e8feb86659fd93u

static uint64_t key_of(uint64_t offset) {
  return (offset + 1) * ODD_A;
}

/* Returns a word's term in the hash. `key` comes from the word's offset. */
static uint64_t term(uint64_t word, uint64_t key) {
  __uint128_t product = (__uint128_t)(word ^ key) * ODD_B;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

void pump_scan_begin(struct pump_scan *words, size_t parameter_bytes, uint32_t identity) {
  uint32_t buckets = 16;
  while (buckets < 2 * parameter_bytes / sizeof(uint64_t) && buckets < PUMP_SCAN_BUCKETS)
    buckets *= 2;
  words->hash = 0;
  words->identity = identity;
  words->count = words->dropped = 0;
  words->bucket_shift = 64 - (uint32_t)__builtin_ctz(buckets);
  words->low = PUMP_LOAD(&pump_range_bounds.low);
  words->span = PUMP_LOAD(&pump_range_bounds.end) - words->low;
  memset(words->buckets, 0, buckets * sizeof words->buckets[0]);
}

/* Adds a possible pointer. Equal words share one entry. */
static void sort(struct pump_scan *words, uint64_t word, uint64_t offset) {
  uint64_t bucket = word * ODD_A >> words->bucket_shift;
  uint32_t mask = (uint32_t)(UINT64_MAX >> words->bucket_shift);
  for (;; bucket = (bucket + 1) & mask) {
    uint32_t number = words->buckets[bucket];
    if (number == 0) break;
    struct pump_word *known = &words->words[number - 1];
    if (known->word != word) continue;
    known->terms += term(word, key_of(offset));
    return;
  }
  if (words->count == PUMP_SCAN_WORDS_MOST) {
    words->dropped++;
    return;
  }
  words->words[words->count++] = (struct pump_word){
      .word = word, .terms = term(word, key_of(offset)), .offset = (uint32_t)offset};
  words->buckets[bucket] = (uint16_t)words->count;
}

#define CHUNK 64 /* words */

/* Hashes at most CHUNK words, but first sets aside possible pointers, by their numbers in
 * `aside`. */
static void gather(struct pump_scan *words, const char *memory, uint32_t count,
                   uint64_t offset) {
  uint8_t aside[CHUNK];
  uint32_t aside_count = 0;
  uint64_t hash = words->hash, key = key_of(offset);
  const uint64_t low = words->low, span = words->span;
  for (uint32_t i = 0; i < count; i++, key += sizeof(uint64_t) * ODD_A) {
    uint64_t word;
    memcpy(&word, memory + i * sizeof word, sizeof word);
    bool candidate = word - low < span && (word & 3) == 0;
    aside[aside_count] = (uint8_t)i;
    aside_count += candidate;
    hash += candidate ? 0 : term(word, key);
  }
  words->hash = hash;
  for (uint32_t i = 0; i < aside_count; i++) {
    uint64_t word;
    memcpy(&word, memory + aside[i] * sizeof word, sizeof word);
    sort(words, word, offset + aside[i] * sizeof word);
  }
}

static void add_words(struct pump_scan *words, const char *at, size_t bytes,
                      uint64_t offset) {
  uint64_t word = 0;
  size_t count = bytes / sizeof word;
  for (size_t i = 0; i < count; i += CHUNK)
    gather(words, at + i * sizeof word, (uint32_t)(count - i < CHUNK ? count - i : CHUNK),
           offset + i * sizeof word);
  if (bytes % sizeof word == 0) return;
  memcpy(&word, at + count * sizeof word, bytes % sizeof word);
  words->hash += term(word, key_of(offset + count * sizeof word));
}

/* Adds descriptors by their address and shape. Their own words mix both, so that each
 * address would give another signature. */
static void add_descriptors(struct pump_scan *words, const char *at, size_t bytes,
                            uint64_t offset) {
  struct pump_tensor tensor;
  size_t rest = 0, i = 0;
  while (i + PUMP_TENSOR_MAP_BYTES <= bytes) {
    if (!pump_tensor_find(at + i, &tensor)) {
      i += PUMP_TENSOR_MAP_ALIGN;
      continue;
    }
    add_words(words, at + rest, i - rest, offset + rest);
    words->hash += term(tensor.shape, key_of(offset + i));
    if (tensor.address - words->low < words->span) sort(words, tensor.address, offset + i);
    i += PUMP_TENSOR_MAP_BYTES;
    rest = i;
  }
  add_words(words, at + rest, bytes - rest, offset + rest);
}

void pump_scan_add(struct pump_scan *words, const void *memory, size_t bytes,
                   uint64_t offset) {
  uint64_t word;
  if (bytes == sizeof word) { /* a separate parameter */
    memcpy(&word, memory, sizeof word);
    if (word - words->low < words->span)
      sort(words, word, offset);
    else
      words->hash += term(word, key_of(offset));
  } else if (PUMP_UNLIKELY(bytes >= PUMP_TENSOR_MAP_BYTES) &&
             offset % PUMP_TENSOR_MAP_ALIGN == 0 &&
             PUMP_LOAD(&pump_tensor_maps_seen) != 0) {
    add_descriptors(words, memory, bytes, offset);
  } else {
    add_words(words, memory, bytes, offset);
  }
}

void pump_scan_look_ahead(struct pump_scan *words) {
  for (uint32_t i = 0; i < words->count; i++)
    look_ahead(words->words[i].word, &words->words[i].hint);
}

static bool is_pointer(const struct pump_word *word, struct pump_hit *hit) {
  uint32_t low = (uint32_t)word->word;
  return look_up_ahead(word->word, word->hint, hit) &&
         ((low >= 0x10000u && low < 0xffff0000u) || word->word == hit->base);
}

void pump_scan_resolve(struct pump_scan *words, struct pump_op *op) {
  struct pump_hit hit;
  op->dropped += words->dropped;
  for (uint32_t i = 0; i < words->count; i++) {
    const struct pump_word *word = &words->words[i];
    if (is_pointer(word, &hit))
      pump_op_argument(op, &hit, word->word - hit.base, word->offset);
    else
      words->hash += word->terms;
  }
}

/* Finishes a 64-bit hash: every bit of the result depends on all of `x`. */
static uint64_t finish(uint64_t x) {
  x = (x ^ x >> 32) * ODD_B;
  x = (x ^ x >> 32) * ODD_A;
  return x ^ x >> 32;
}

uint64_t pump_scan_signature(const struct pump_scan *words,
                             const struct pump_launch *launch) {
  /* These offsets are outside all parameters. */
  uint64_t h = words->hash + term(words->identity, key_of(UINT64_MAX / 2));
  for (uint64_t i = 0; i < 3; i++)
    h += term((uint64_t)launch->grid[i] << 32 | launch->block[i],
              key_of(UINT64_MAX / 2 + 1 + i));
  h = finish(h);
  return h == 0 ? 1 : h;
}
