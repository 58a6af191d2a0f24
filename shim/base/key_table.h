/* key_table.h - a bounded open-addressing hash table. Keys have 64 bits and are never 0;
 * each record begins with its key. The caller provides memory and lock; nothing is
 * allocated. A table that is three quarters full accepts no more records.
 *
 * Not for tables that are read without a lock (launch_params.c, progress.c) or chain
 * their records (graph_execs.c, pool_blocks.c). Not for caches in which newer keys
 * replace older ones, nor for unbounded sets (cudart_register.c).
 */
#ifndef PUMP_KEY_TABLE_H
#define PUMP_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pump_table {
  char *records;    /* `buckets` records, zeroed at first */
  uint32_t buckets; /* a power of two, at most 2^16 */
  uint32_t record_bytes;
  uint32_t used;
};

/* Initializes a table over an array of records. */
#define PUMP_TABLE(array)                                                                  \
  {.records = (char *)(array),                                                             \
   .buckets = sizeof(array) / sizeof(array)[0],                                            \
   .record_bytes = sizeof(array)[0]}

static inline uint64_t *pump_table_bucket(const struct pump_table *table, uint32_t i) {
  return (uint64_t *)(table->records +
                      (size_t)(i & (table->buckets - 1)) * table->record_bytes);
}

static inline uint32_t pump_table_home(const struct pump_table *table, uint64_t key) {
  return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 48) & (table->buckets - 1);
}

static inline uint32_t pump_table_search(const struct pump_table *table, uint64_t key) {
  uint32_t i = pump_table_home(table, key);
  while (*pump_table_bucket(table, i) != 0 && *pump_table_bucket(table, i) != key) i++;
  return i & (table->buckets - 1);
}

/* Returns the record of the key, or NULL. */
static inline void *pump_table_find(const struct pump_table *table, uint64_t key) {
  uint64_t *bucket = pump_table_bucket(table, pump_table_search(table, key));
  return key != 0 && *bucket == key ? bucket : NULL;
}

/* Adds a zeroed record for an absent key. Returns NULL if the table is full or key is
 * 0. */
static inline void *pump_table_add(struct pump_table *table, uint64_t key) {
  if (key == 0 || table->used >= table->buckets / 4 * 3) return NULL;
  uint64_t *bucket = pump_table_bucket(table, pump_table_search(table, key));
  table->used++;
  *bucket = key;
  return bucket;
}

/* Empties the record and closes the gap, so that no search stops too early. Another
 * record may move into its bucket. */
static inline void pump_table_take_out(struct pump_table *table, void *record) {
  uint32_t mask = table->buckets - 1;
  uint32_t hole =
      (uint32_t)((size_t)((char *)record - table->records) / table->record_bytes);
  for (uint32_t i = (hole + 1) & mask; *pump_table_bucket(table, i) != 0;
       i = (i + 1) & mask) {
    /* Only a record that does not end up before its home may move into the hole. */
    uint32_t from_home = (i - pump_table_home(table, *pump_table_bucket(table, i))) & mask;
    if (from_home < ((i - hole) & mask)) continue;
    memcpy(pump_table_bucket(table, hole), pump_table_bucket(table, i),
           table->record_bytes);
    hole = i;
  }
  memset(pump_table_bucket(table, hole), 0, table->record_bytes);
  table->used--;
}

static inline void pump_table_reset(struct pump_table *table) {
  if (table->used == 0) return; /* all zero already: touches no page */
  memset(table->records, 0, (size_t)table->buckets * table->record_bytes);
  table->used = 0;
}

#endif
