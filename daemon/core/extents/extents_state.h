/* extents_state.h - the memory of the learner of extents (internal).
 *
 * DESIGN
 * Everything learned about kernels is in caches of fixed size (struct extents_cache):
 * four lines per set, with LRU eviction. Lines refer to each other by key, never by
 * address, so losing a line only loses knowledge. A segment has a sorted array of starts,
 * bounded per segment and in total. A start that does not fit is not known.
 *
 * Lengths from element counts are compared in units of 512 bytes, the granule of caching
 * allocators.
 */
#ifndef PUMP_EXTENTS_STATE_H
#define PUMP_EXTENTS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "extents.h"
#include "pump_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* Unit of lengths: PyTorch's allocator rounds requests up to it
 * [published: CUDACachingAllocator.cpp]. */
#define EXTENTS_UNIT_BYTES 512u
/* Minimum distance of ends in a large segment: PyTorch keeps requests of up to 1 MiB in
 * segments of 2 MiB [published: CUDACachingAllocator.cpp]. */
#define EXTENTS_LARGE_BYTES (1u << 20)
/* Entries of tables; further items are left out, or replace older ones [guessed]. */
#define EXTENTS_STARTS_SEGMENT 8192u /* starts in one segment */
#define EXTENTS_STARTS 262144u       /* starts in all segments */
#define EXTENTS_CANDIDATES 24u       /* following starts that may be an end */
#define EXTENTS_INTEGERS 64u         /* integers kept of a parameter buffer */
#define EXTENTS_DISTINCT 24u         /* distinct integers in formulas */
#define EXTENTS_FORMULAS 24u         /* formulas kept for one argument */
#define EXTENTS_VOTES 5u             /* lengths kept for one argument and shape */
#define EXTENTS_TABLE 256u           /* pointers of one decoded table */
#define EXTENTS_SMALL_TABLE 8u       /* pointers of a small one */
#define EXTENTS_PENDING 16u          /* parameter buffers that wait for their launch */
/* Parameters as words of 8 bytes [derived]. */
#define EXTENTS_WORDS (PUMP_EXTENTS_PARAMETER_BYTES / 8)

/* --- caches ---------------------------------------------------------------- */

struct extents_head { /* four heads of a set fill a cache line */
  uint64_t key;       /* 0: empty */
  uint32_t used;      /* value of `now` at its last use */
  uint32_t reserved;
};

struct extents_cache {
  struct extents_head *heads;
  uint8_t *lines;
  uint32_t sets; /* number of sets, a power of two; four lines each */
  uint32_t line_bytes;
};

bool extents_cache_init(struct extents_cache *cache, uint32_t lines, uint32_t line_bytes);
void extents_cache_free(struct extents_cache *cache);
/* Returns the line of `key`, which is not 0, or NULL. */
void *extents_cache_find(struct extents_cache *cache, uint64_t key, uint32_t now);
/* Returns the line of `key`. A new line is zeroed and replaces its set's LRU line. */
void *extents_cache_take(struct extents_cache *cache, uint64_t key, uint32_t now);
uint64_t extents_mix(uint64_t a, uint64_t b); /* never 0 */

/* --- segments -------------------------------------------------------------- */

struct extents_start {
  uint64_t offset;
  uint64_t length_bytes; /* last reported or confirmed length; 0: none */
  uint32_t stamp;        /* value of `now` at its last use */
  uint32_t reserved;
};

struct extents_segment {
  uint32_t generation;
  uint32_t count;
  uint32_t capacity;
  uint32_t reserved;
  uint64_t base;
  uint64_t length_bytes;
  struct extents_start *starts; /* ascending offsets; the first is 0 */
};

/* --- kernels --------------------------------------------------------------- */

/* Kinds of kernels, from their mangled names. */
#define EXTENTS_KIND_UNNAMED 0
#define EXTENTS_KIND_PLAIN 1       /* nothing special */
#define EXTENTS_KIND_ELEMENTWISE 2 /* PyTorch: count first, dense pointers */
#define EXTENTS_KIND_REDUCE 3      /* PyTorch's reduce_kernel */
#define EXTENTS_KIND_MULTI 4       /* PyTorch's multi_tensor_apply */
#define EXTENTS_KIND_CAT 5         /* PyTorch's CatArrayBatchedCopy */
#define EXTENTS_KIND_ADDRESSES 6   /* PyTorch's TensorListAddresses */

/* Structures of MULTI; 0: not in the name. */
#define EXTENTS_MULTI_PLAIN 1
#define EXTENTS_MULTI_SCALARS 2
#define EXTENTS_MULTI_STEPS 3

struct extents_named {
  uint16_t kind;
  uint16_t element_bytes; /* 4 if it is not in the name */
  uint16_t structure;     /* of MULTI: EXTENTS_MULTI_* */
  uint16_t depth;         /* of MULTI: number of lists of tensors; 0: not in the name */
  bool gathers;           /* reads rows that other memory names */
};

struct extents_function {
  uint64_t name_hash; /* 0: unnamed */
  struct extents_named named;
  uint32_t salt; /* part of all keys below; incremented with each new name */
  uint32_t reserved;
  uint64_t not_pointer[EXTENTS_WORDS / 64]; /* bit per word: has been a non-pointer */
};

/* An integer of the parameter buffer, or a dimension of the grid. */
struct extents_integer {
  uint32_t value;
  uint16_t where; /* byte offset / 4, or EXTENTS_GRID + dimension */
  uint16_t first; /* 1: the first with this value */
};
/* Values of `where` above all byte offsets / 4 of parameters [derived]. */
#define EXTENTS_GRID 0xfff0u
#define EXTENTS_NOWHERE 0xffffu

/* Launches that are equal in everything relevant. `where` is ascending. */
struct extents_shape {
  uint64_t key;
  uint32_t count;
  uint32_t reserved;
  struct extents_integer integers[EXTENTS_INTEGERS];
};

/* Where a signature's table is kept. */
#define EXTENTS_SMALL 1
#define EXTENTS_LARGE 2

struct extents_signature {
  uint64_t shape; /* key of the shape */
  uint32_t table; /* 0: none; else EXTENTS_SMALL or EXTENTS_LARGE */
  uint32_t reserved;
};

/* A decoder's result for one argument. */
#define EXTENTS_EXACT 1 /* `value` is in bytes */
#define EXTENTS_COUNT 2 /* `value` is in elements of unknown size */
struct extents_entry {
  uint32_t argument;
  uint32_t what;
  uint64_t value;
};

/* A decoded parameter buffer. Arguments in [zero_begin, zero_end) without an entry are
 * unused. Arguments at or above small_begin point to something small. */
struct extents_table {
  uint32_t zero_begin;
  uint32_t zero_end;
  uint32_t small_begin;
  uint32_t all_count; /* 1: each argument at or above 8 has all_elements elements */
  uint64_t all_elements;
  uint32_t count;
  uint32_t open; /* 1: some lengths are missing; integer parameters may give them */
  struct extents_entry entries[EXTENTS_TABLE]; /* by ascending argument */
};

/* length = first * second * size, rounded up to a unit. */
struct extents_formula {
  uint16_t first;  /* `where` of an integer; EXTENTS_NOWHERE: the decoder's count */
  uint16_t second; /* EXTENTS_NOWHERE: 1 */
  uint32_t size;   /* 1, 2, 4 or 8 bytes; 0: empty */
  uint32_t shapes; /* one bit per shape (by hash) that confirmed it */
};

/* Knowledge about an argument of a function, over all shapes. */
struct extents_template {
  uint32_t seen; /* examined launches in which this argument held a pointer */
  uint32_t confirmed;
  uint32_t shapes; /* bits of the shapes that confirmed any formula */
  uint32_t reserved;
  struct extents_formula formulas[EXTENTS_FORMULAS];
};

/* Knowledge about an argument of one shape. */
struct extents_vote {
  uint32_t seen;
  uint32_t settled_units; /* result of the last examination; 0: none */
  uint32_t capped_units;  /* limit for which `cap_units` was computed */
  uint32_t cap_units;     /* longest expressible length within `capped_units` */
  uint16_t same;          /* consecutive examinations with equal results */
  uint16_t unused;        /* reserved; always 0 */
  uint32_t units[EXTENTS_VOTES];
  uint16_t votes[EXTENTS_VOTES];
};

struct extents_pending {
  uint64_t function;
  uint64_t signature;
  uint32_t grid[3];
  uint32_t threads; /* threads of a block */
  uint32_t bytes;   /* 0: empty */
  uint8_t *parameters;
};

/* All lengths that the formulas of one shape can give: a hash table that is emptied by
 * incrementing `turn`. Entries [guessed]. */
#define EXTENTS_SPELLED 4096u
struct extents_spelled {
  uint32_t turn;
  uint32_t units;
  struct extents_formula formula;
};

struct pump_extents {
  uint32_t now; /* number of launches and copies */
  uint32_t starts;
  uint32_t next_pending;
  uint32_t turn;
  uint32_t spelled_count;
  uint32_t reserved;
  uint64_t spelled_shape; /* key of the shape in `spelled`; 0: none */
  struct extents_spelled *spelled;
  uint16_t spelled_slots[EXTENTS_SPELLED / 2]; /* used slots */
  struct extents_segment **segments;           /* by slot */
  struct extents_cache functions;
  struct extents_cache shapes;
  struct extents_cache signatures;
  struct extents_cache tables;
  /* Beginnings of tables with at most EXTENTS_SMALL_TABLE entries. Reductions need many:
   * old numbers in their padding make new signatures. */
  struct extents_cache small_tables;
  struct extents_cache templates;
  struct extents_cache votes;
  struct extents_pending pending[EXTENTS_PENDING];
  struct extents_table table; /* the table being decoded */
};

/* extents_segments.c */
struct extents_segment *extents_segment_at(struct pump_extents *learner, uint32_t slot,
                                           uint32_t generation);
/* Returns the index of the last start at or before `offset`. */
uint32_t extents_start_before(const struct extents_segment *segment, uint64_t offset);
/* Makes `offset` a known start that the current launch uses; returns its index. Without
 * space, returns the index of the start before it. */
uint32_t extents_start_use(struct pump_extents *learner, struct extents_segment *segment,
                           uint64_t offset);
/* Stores the length of the tensor at `offset`. Forgets starts inside it that this launch
 * does not use. `at`: the index that the start had. */
void extents_start_length(struct pump_extents *learner, struct extents_segment *segment,
                          uint32_t at, uint64_t offset, uint64_t length_bytes);
/* Returns the distance from `offset` to the nearest possible end. */
uint64_t extents_nearest(const struct extents_segment *segment, uint64_t offset);
/* Lists the distances from `offset` to the possible ends, ascending. Returns how many, at
 * least one. */
uint32_t extents_ends(const struct extents_segment *segment, uint64_t offset,
                      uint64_t distances[EXTENTS_CANDIDATES + 1]);

/* extents_params.c */
/* Returns the knowledge about this signature, or NULL. Digests its parameters if they
 * wait. */
const struct extents_signature *extents_digest(struct pump_extents *learner,
                                               struct extents_function *function,
                                               uint64_t handle, uint64_t function_key,
                                               uint64_t signature, uint32_t count,
                                               const struct pump_pointer *pointers);

/* extents_formula.c */
/* Returns a length in bytes as units; 0 when there are too many. */
uint32_t extents_units(uint64_t bytes);
/* Adds the formulas of `shape` that give exactly `units` to `template`. Returns whether
 * there are any. */
bool extents_confirm(struct pump_extents *learner, const struct extents_shape *shape,
                     uint32_t units, struct extents_template *template);
bool extents_confirm_count(uint64_t elements, uint32_t units, uint64_t shape_key,
                           struct extents_template *template);
/* Returns the largest length of at most `units` that the shape's integers can express. */
uint32_t extents_largest(struct pump_extents *learner, const struct extents_shape *shape,
                         uint32_t units);
/* Returns the best supported length of at most `end_units`; 0: none. */
uint32_t extents_choose(const struct extents_vote *vote,
                        const struct extents_template *template,
                        const struct extents_shape *shape, uint64_t elements,
                        uint32_t end_units);

/* extents_names.c */
void extents_read_name(const char *name, uint32_t bytes, struct extents_named *named);

/* extents_tables.c: returns false if the parameters do not form such a table. */
bool extents_decode(const struct extents_named *named, const struct extents_pending *launch,
                    struct extents_table *table);

#endif
