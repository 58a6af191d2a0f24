/* extents_state.h - what the learner of extents remembers (inside the module).
 *
 * DESIGN
 * Everything learned about kernels lives in caches of fixed size (struct
 * extents_cache): four lines share a set, the one unused for longest gives way.
 * Lines refer to each other by key, never by address, so losing one loses only
 * knowledge. What is known about a segment is a sorted array of starts, bounded
 * per segment and in all; a start that finds no room is simply not known.
 *
 * Lengths that come from element counts are compared in units of 512 bytes, the
 * granule to which caching allocators round.
 */
#ifndef PUMP_EXTENTS_STATE_H
#define PUMP_EXTENTS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "extents.h"
#include "pump_abi.h"

#define EXPORT __attribute__((visibility("default")))

#define EXTENTS_UNIT_BYTES 512u
#define EXTENTS_LARGE_BYTES (1u << 20) /* nearest believable end in a large segment */
#define EXTENTS_STARTS_SEGMENT 8192u   /* starts in one segment */
#define EXTENTS_STARTS 262144u         /* starts in all segments */
#define EXTENTS_CANDIDATES 24u         /* following starts that may be an end */
#define EXTENTS_INTEGERS 64u           /* integers kept of a parameter buffer */
#define EXTENTS_DISTINCT 24u           /* distinct ones that formulas are made of */
#define EXTENTS_FORMULAS 24u           /* formulas kept for one argument */
#define EXTENTS_VOTES 5u               /* lengths kept for one argument and shape */
#define EXTENTS_TABLE 256u             /* pointers of one decoded table */
#define EXTENTS_PENDING 16u            /* parameter buffers that wait for their launch */
#define EXTENTS_WORDS (PUMP_EXTENTS_PARAMETER_BYTES / 8)

/* --- caches ---------------------------------------------------------------- */

struct extents_head { /* four of a set fill a cache line */
  uint64_t key;       /* 0: empty */
  uint32_t used;      /* launch that used it last */
  uint32_t reserved;
};

struct extents_cache {
  struct extents_head *heads;
  uint8_t *lines;
  uint32_t sets; /* a power of two; four lines each */
  uint32_t line_bytes;
};

bool extents_cache_init(struct extents_cache *cache, uint32_t lines, uint32_t line_bytes);
void extents_cache_free(struct extents_cache *cache);
/* NULL when there is none; `key` is not 0. */
void *extents_cache_find(struct extents_cache *cache, uint64_t key, uint32_t now);
/* Finds or makes one, zeroed, in place of the longest unused of its set. */
void *extents_cache_take(struct extents_cache *cache, uint64_t key, uint32_t now);
uint64_t extents_mix(uint64_t a, uint64_t b); /* never 0 */

/* --- segments -------------------------------------------------------------- */

struct extents_start {
  uint64_t offset;
  uint64_t length_bytes; /* last one that was reported or confirmed; 0: none */
  uint32_t stamp;        /* launch that used it last */
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

/* What a mangled name implies. */
#define EXTENTS_KIND_UNNAMED 0
#define EXTENTS_KIND_PLAIN 1       /* nothing special */
#define EXTENTS_KIND_ELEMENTWISE 2 /* PyTorch: count first, dense pointers */
#define EXTENTS_KIND_REDUCE 3      /* PyTorch's reduce_kernel */
#define EXTENTS_KIND_MULTI 4       /* PyTorch's multi_tensor_apply */
#define EXTENTS_KIND_CAT 5         /* PyTorch's CatArrayBatchedCopy */
#define EXTENTS_KIND_ADDRESSES 6   /* PyTorch's TensorListAddresses */

/* Structures of MULTI; 0: the name does not show it. */
#define EXTENTS_MULTI_PLAIN 1
#define EXTENTS_MULTI_SCALARS 2
#define EXTENTS_MULTI_STEPS 3

struct extents_named {
  uint16_t kind;
  uint16_t element_bytes; /* 4 where the name does not show it */
  uint16_t structure;     /* of MULTI */
  uint16_t depth;         /* of MULTI: lists of tensors; 0: the name does not show it */
};

struct extents_function {
  uint64_t name_hash; /* 0: unnamed */
  struct extents_named named;
  uint32_t salt; /* part of all keys below; grows with each new name */
  uint32_t reserved;
  uint64_t not_pointer[EXTENTS_WORDS / 64]; /* words seen with what is no pointer */
};

/* An integer of the parameter buffer, or a dimension of the grid. */
struct extents_integer {
  uint32_t value;
  uint16_t where; /* byte offset / 4, or EXTENTS_GRID + dimension */
  uint16_t first; /* 1: the first with this value */
};
#define EXTENTS_GRID 0xfff0u
#define EXTENTS_NOWHERE 0xffffu

/* Launches that differ in nothing that counts. `where` ascends. */
struct extents_shape {
  uint64_t key;
  uint32_t count;
  uint32_t reserved;
  struct extents_integer integers[EXTENTS_INTEGERS];
};

struct extents_signature {
  uint64_t shape; /* key */
  uint32_t has_table;
  uint32_t reserved;
};

/* What a decoder found about one argument. */
#define EXTENTS_EXACT 1 /* value is bytes */
#define EXTENTS_COUNT 2 /* value is elements of unknown size */
struct extents_entry {
  uint32_t argument;
  uint32_t what;
  uint64_t value;
};

/* A decoded parameter buffer. Arguments in [zero_begin, zero_end) without an
 * entry are not used; those from small_begin on point to something small. */
struct extents_table {
  uint32_t zero_begin;
  uint32_t zero_end;
  uint32_t small_begin;
  uint32_t all_count; /* 1: every argument from 8 on has all_elements elements */
  uint64_t all_elements;
  uint32_t count;
  uint32_t open; /* 1: some lengths are left to the integers */
  struct extents_entry entries[EXTENTS_TABLE]; /* ascending arguments */
};

/* length = first * second * size, rounded up to a unit. */
struct extents_formula {
  uint16_t first;  /* where; EXTENTS_NOWHERE: the count that a decoder gave */
  uint16_t second; /* EXTENTS_NOWHERE: 1 */
  uint32_t size;   /* 1, 2, 4 or 8 bytes; 0: empty */
  uint32_t shapes; /* one bit per shape (by hash) that confirmed it */
};

/* What is known about an argument of a function, over all shapes. */
struct extents_template {
  uint32_t seen; /* launches with a pointer here that were examined */
  uint32_t confirmed;
  uint32_t shapes; /* as in formulas, for any formula */
  uint32_t reserved;
  struct extents_formula formulas[EXTENTS_FORMULAS];
};

/* What is known about an argument of one shape. */
struct extents_vote {
  uint32_t seen;
  uint32_t settled_units; /* answer of the last examination; 0: none */
  uint32_t capped_units;  /* the longest length its integers express up to this */
  uint32_t cap_units;     /* one: this */
  uint16_t same;          /* examinations in a row with that answer */
  uint16_t unused;        /* 1: examined and found not to be a pointer */
  uint32_t units[EXTENTS_VOTES];
  uint16_t votes[EXTENTS_VOTES];
};

struct extents_pending {
  uint64_t function;
  uint64_t signature;
  uint32_t grid[3];
  uint32_t threads; /* of a block */
  uint32_t bytes;   /* 0: empty */
  uint8_t *parameters;
};

/* All lengths that the formulas of one shape can give: a hash table that is
 * emptied by counting up `turn`. */
#define EXTENTS_SPELLED 4096u
struct extents_spelled {
  uint32_t turn;
  uint32_t units;
  struct extents_formula formula;
};

struct pump_extents {
  uint32_t now; /* launches so far */
  uint32_t starts;
  uint32_t next_pending;
  uint32_t turn;
  uint32_t spelled_count;
  uint32_t reserved;
  uint64_t spelled_shape; /* key of the shape in `spelled`; 0: none */
  struct extents_spelled *spelled;
  uint16_t spelled_slots[EXTENTS_SPELLED / 2]; /* in use */
  struct extents_segment **segments;           /* by slot */
  struct extents_cache functions;
  struct extents_cache shapes;
  struct extents_cache signatures;
  struct extents_cache tables;
  struct extents_cache templates;
  struct extents_cache votes;
  struct extents_pending pending[EXTENTS_PENDING];
  struct extents_table table; /* the one being decoded */
};

/* extents_segments.c */
struct extents_segment *extents_segment_at(struct pump_extents *learner, uint32_t slot,
                                           uint32_t generation);
/* Index of the last start at or before `offset`. */
uint32_t extents_start_before(const struct extents_segment *segment, uint64_t offset);
/* Makes `offset` a known start, used by the present launch; its index. When there is no
 * room, that of the start before it. */
uint32_t extents_start_use(struct pump_extents *learner, struct extents_segment *segment,
                           uint64_t offset);
/* The tensor at `offset` is this long: starts inside it that this launch does not
 * use are forgotten. `at` is where the start was. */
void extents_start_length(struct pump_extents *learner, struct extents_segment *segment,
                          uint32_t at, uint64_t offset, uint64_t length_bytes);
/* The nearest believable end behind `offset`, as a distance. */
uint64_t extents_nearest(const struct extents_segment *segment, uint64_t offset);
/* Distances from `offset` to the believable ends behind it, ascending; at least one. */
uint32_t extents_ends(const struct extents_segment *segment, uint64_t offset,
                      uint64_t distances[EXTENTS_CANDIDATES + 1]);

/* extents_params.c */
/* What is known of this signature, its parameters digested if they wait; or NULL. */
const struct extents_signature *extents_digest(struct pump_extents *learner,
                                               struct extents_function *function,
                                               uint64_t handle, uint64_t function_key,
                                               uint64_t signature, uint32_t count,
                                               const struct pump_pointer *pointers);

/* extents_formula.c */
/* Units of a length in bytes; 0 when there are too many. */
uint32_t extents_units(uint64_t bytes);
/* Adds the formulas of `shape` that give exactly `units` to `template`. True if any. */
bool extents_confirm(struct pump_extents *learner, const struct extents_shape *shape,
                     uint32_t units, struct extents_template *template);
bool extents_confirm_count(uint64_t elements, uint32_t units, uint64_t shape_key,
                           struct extents_template *template);
/* The largest length of at most `units` that the shape's integers can express. */
uint32_t extents_largest(struct pump_extents *learner, const struct extents_shape *shape,
                         uint32_t units);
/* The best supported length of at most `end_units`; 0: none. */
uint32_t extents_choose(const struct extents_vote *vote,
                        const struct extents_template *template,
                        const struct extents_shape *shape, uint64_t elements,
                        uint32_t end_units);

/* extents_names.c */
void extents_read_name(const char *name, uint32_t bytes, struct extents_named *named);

/* extents_tables.c: false when the parameters make no such table. */
bool extents_decode(const struct extents_named *named, const struct extents_pending *launch,
                    struct extents_table *table);

#endif
