/* mapped_spans.h - records of disjoint spans of addresses, sorted by address. Each record
 * begins with its base and its length in bytes. The caller holds a lock; for look-ups,
 * mapped_spans_lock is enough.
 */
#ifndef PUMP_MAPPED_SPANS_H
#define PUMP_MAPPED_SPANS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Held while records move. No driver call is made under it. */
extern pthread_mutex_t mapped_spans_lock;

struct mapped_spans {
  char *records;
  size_t record_bytes, count, capacity;
};
struct mapped_span {
  uint64_t base, bytes;
};

static inline void *mapped_span_at(const struct mapped_spans *spans, size_t i) {
  return spans->records + i * spans->record_bytes;
}

/* Returns the number of the first span that ends after the address, or `count`. */
static inline size_t mapped_span_index(const struct mapped_spans *spans, uint64_t address) {
  size_t low = 0, high = spans->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const struct mapped_span *span = mapped_span_at(spans, middle);
    if (address - span->base < span->bytes || address < span->base)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Returns the first span that overlaps [base, +bytes), or NULL. */
static inline void *mapped_span_within(const struct mapped_spans *spans, uint64_t base,
                                       uint64_t bytes) {
  size_t i = mapped_span_index(spans, base);
  if (i == spans->count) return NULL;
  struct mapped_span *span = mapped_span_at(spans, i);
  return span->base < base + bytes ? span : NULL;
}

/* Returns the span that contains the address, or NULL. */
static inline void *mapped_span_find(const struct mapped_spans *spans, uint64_t address) {
  return mapped_span_within(spans, address, 1);
}

/* Adds a zeroed record for a span; NULL if the span is not free, or memory is short.
 * Pointers to records are invalid afterwards. */
static inline void *mapped_span_add(struct mapped_spans *spans, uint64_t base,
                                    uint64_t bytes) {
  if (mapped_span_within(spans, base, bytes) != NULL) return NULL;
  pthread_mutex_lock(&mapped_spans_lock);
  if (spans->count == spans->capacity) {
    size_t capacity = spans->capacity == 0 ? 64 : 2 * spans->capacity;
    char *grown = realloc(spans->records, capacity * spans->record_bytes);
    if (grown == NULL) {
      pthread_mutex_unlock(&mapped_spans_lock);
      return NULL;
    }
    spans->records = grown;
    spans->capacity = capacity;
  }
  size_t i = mapped_span_index(spans, base);
  struct mapped_span *span = mapped_span_at(spans, i);
  memmove((char *)span + spans->record_bytes, span,
          (spans->count - i) * spans->record_bytes);
  spans->count++;
  memset(span, 0, spans->record_bytes);
  span->base = base;
  span->bytes = bytes;
  pthread_mutex_unlock(&mapped_spans_lock);
  return span;
}

static inline void mapped_span_remove(struct mapped_spans *spans, void *span) {
  size_t i = (size_t)((char *)span - spans->records) / spans->record_bytes;
  pthread_mutex_lock(&mapped_spans_lock);
  spans->count--;
  memmove(span, (char *)span + spans->record_bytes,
          (spans->count - i) * spans->record_bytes);
  pthread_mutex_unlock(&mapped_spans_lock);
}

static inline void mapped_spans_reset(struct mapped_spans *spans) {
  free(spans->records);
  spans->records = NULL;
  spans->count = spans->capacity = 0;
}

#endif
