/* pointer_scan.c - the words of one launch's parameters: which of them are pointers,
 * and the hash of all others. It does not depend on kernels and their layouts.
 *
 * DESIGN. Four steps, so that cache misses overlap and a table of five hundred words
 * costs little more than reading it. Gather: every word is either hashed or, when its
 * value lies between the lowest and the highest live range, put aside; no branch
 * depends on the words. Sort: equal words are one candidate, since by-value tables
 * hold the same few addresses again and again, most of them stale. Look ahead: the
 * index names each candidate's slot, and its cache lines are prefetched, all at once.
 * Resolve: they are there, or at least on their way together.
 *
 * The hash is a sum of one term for each word, a folded product of the word and where
 * it stands. So the terms need no order, and those of a candidate that turns out to
 * be no pointer are added at the end. A pointer adds nothing: launches that differ in
 * addresses alone have the same sum.
 *
 * Which words are pointers. Half of the words of a table may be what was left on the
 * program's stack: old pointers, and old pointers with one half overwritten. The latter
 * have a low half that is a small number, positive or negative: they count only where they
 * are exactly the beginning of a range. A word inside a structure has to be aligned to four
 * bytes (odd rows of fp32 tensors are no better aligned; with an alignment of two or one, a
 * few in ten thousand words of recorded launches would be taken for pointers by mistake); a
 * parameter of its own needs no alignment, because programs initialise parameters.
 */
#include <string.h>

#include "record.h"
#include "shim/memory/range_index.h"

#define ODD_A 0x9e3779b97f4a7c15u
#define ODD_B 0xd6e8feb86659fd93u

static uint64_t key_of(uint64_t offset) {
  return (offset + 1) * ODD_A;
}

/* What a word adds to the hash: `key` is that of the byte where it stands. */
static uint64_t term(uint64_t word, uint64_t key) {
  __uint128_t product = (__uint128_t)(word ^ key) * ODD_B;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

void pump_scan_begin(struct pump_scan *words, size_t parameter_bytes, uint32_t identity) {
  uint32_t places = 16;
  while (places < 2 * parameter_bytes / sizeof(uint64_t) && places < PUMP_SCAN_PLACES)
    places *= 2;
  words->hash = 0;
  words->identity = identity;
  words->count = words->beyond = 0;
  words->place_shift = 64 - (uint32_t)__builtin_ctz(places);
  words->low = PUMP_LOAD(&pump_range_bounds.low);
  words->span = PUMP_LOAD(&pump_range_bounds.end) - words->low;
  memset(words->places, 0, places * sizeof words->places[0]);
}

/* Enters a word that may be a pointer; equal words are one entry. */
static void sort(struct pump_scan *words, uint64_t word, uint64_t offset) {
  uint64_t place = word * ODD_A >> words->place_shift;
  uint32_t mask = (uint32_t)(UINT64_MAX >> words->place_shift);
  for (;; place = (place + 1) & mask) {
    uint32_t number = words->places[place];
    if (number == 0) break;
    struct pump_word *known = &words->words[number - 1];
    if (known->word != word) continue;
    known->terms += term(word, key_of(offset));
    return;
  }
  if (words->count == PUMP_SCAN_WORDS_MOST) {
    words->beyond++;
    return;
  }
  words->words[words->count++] = (struct pump_word){
      .word = word, .terms = term(word, key_of(offset)), .offset = (uint32_t)offset};
  words->places[place] = (uint16_t)words->count;
}

#define CHUNK 64 /* words */

/* Hashes at most CHUNK words, and puts those aside that may be pointers: their numbers are
 * in `aside`. */
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

/* A descriptor stands for the address that it was encoded for, and for a shape: its own
 * words hold both, so that each address would make another signature. */
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
  if (bytes == sizeof word) { /* a parameter of its own */
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
  op->dropped += words->beyond;
  for (uint32_t i = 0; i < words->count; i++) {
    const struct pump_word *word = &words->words[i];
    if (is_pointer(word, &hit))
      pump_op_argument(op, &hit, word->word - hit.base, word->offset);
    else
      words->hash += word->terms;
  }
}

/* Finisher of a 64-bit hash: every bit of the result depends on all of `x`. */
static uint64_t finish(uint64_t x) {
  x = (x ^ x >> 32) * ODD_B;
  x = (x ^ x >> 32) * ODD_A;
  return x ^ x >> 32;
}

uint64_t pump_scan_signature(const struct pump_scan *words,
                             const struct pump_launch *launch) {
  /* Where they stand: at bytes that no parameter has. */
  uint64_t h = words->hash + term(words->identity, key_of(UINT64_MAX / 2));
  for (uint64_t i = 0; i < 3; i++)
    h += term((uint64_t)launch->grid[i] << 32 | launch->block[i],
              key_of(UINT64_MAX / 2 + 1 + i));
  h = finish(h);
  return h == 0 ? 1 : h;
}
