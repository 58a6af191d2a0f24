/* extents.c - the learner of extents: estimates how far a launch's pointers reach.
 *
 * DESIGN
 * For each pointer of a launch, in this order:
 *
 *   1. A decoder (extents_tables.c) has read the parameters: a slot is unused, or its
 *      bytes or its number of elements are known. The allocator's report of a block
 *      (block_units) cuts decoded bytes. Without decoded bytes, it is a sure length
 *      itself.
 *   2. In another launch of this function the word was a number or half a pointer. So it
 *      is padding with an old pointer, and unused. This does not apply if the argument
 *      keeps being confirmed (rule 4) or the allocator has reported its block.
 *   3. A range of at most 1 GiB with a single known start is one tensor: all of it is
 *      used.
 *   4. The next known starts and the segment's end are possible ends. An end is
 *      *confirmed* if its distance equals an integer of the parameters, or a product of
 *      two, times an element size. It gets a vote for this shape of launch. Its formula
 *      gets support for this argument of the function, whatever the shape. Votes and
 *      formulas together choose (extents_formula.c). A choice that stayed the same a few
 *      times is settled, and examined only from time to time.
 *   5. Without confirmation there are four guesses, in this order. The known number of
 *      elements times the likely element size. The rest of a tensor of this launch that
 *      covers the pointer (views such as query, key and value in one tensor). The last
 *      length at this start. The nearest end, limited by the launch's longest confirmed
 *      tensor or by the lengths that its integers can express.
 *
 * An exact or confirmed length is stored with its start. Starts inside it that this
 * launch does not use are forgotten.
 *
 * Source of the method: a study of recorded PyTorch traffic. It was also scored on the
 * same tensors laid out by other allocators. Rule 2, the views, the limit by expressible
 * lengths and the preference for short multiples come from there. docs/extents.md has the
 * experiments, with numbers.
 *
 * A launch takes two passes, because its starts must be marked before any of its tensors
 * may delete starts inside itself.
 */
#include <stdlib.h>
#include <string.h>

#include "extents_state.h"

/* Consecutive equal examinations after which a choice is settled, and launches between
 * examinations from then on [guessed]. */
#define SETTLED 3u
#define EXAMINE_EVERY 8u
/* Longest guess for a pointer of a table kernel that is not in the table [guessed]. */
#define SMALL_BYTES 65536u
/* A larger range may be an arena at its first use [guessed]. */
#define LONE_BYTES (1ull << 30)

/* States of a pointer's length. */
#define STATE_UNUSED 0
#define STATE_OPEN 1
#define STATE_GUESSED 2
#define STATE_SURE 3

struct launch {
  struct pump_extents *learner;
  const struct extents_function *function;
  uint64_t function_key;
  uint64_t shape_key; /* key of the votes: the shape's, or the signature's without a known
                         shape */
  const struct extents_shape *shape; /* NULL: unknown */
  const struct extents_table *table; /* NULL: none */
  uint32_t count;
  const struct pump_pointer *pointers;
  uint64_t *length_bytes;
  uint32_t next_entry;
  struct extents_segment *segments[PUMP_MAX_EXTENTS];
  uint32_t starts[PUMP_MAX_EXTENTS];   /* index in the segment; may have moved since */
  uint64_t elements[PUMP_MAX_EXTENTS]; /* number of elements; 0: unknown */
  uint8_t states[PUMP_MAX_EXTENTS];
};

static uint64_t room_of(const struct launch *launch, uint32_t i) {
  return launch->segments[i]->length_bytes - launch->pointers[i].offset_bytes;
}

static void set_length(struct launch *launch, uint32_t i, uint8_t state, uint64_t bytes) {
  uint64_t room_bytes = room_of(launch, i);
  launch->states[i] = state;
  launch->length_bytes[i] = bytes < room_bytes ? bytes : room_bytes;
}

static struct extents_vote *vote_of(struct launch *launch, uint32_t i) {
  uint64_t key = extents_mix(launch->shape_key, launch->pointers[i].argument);
  return extents_cache_take(&launch->learner->votes, key, launch->learner->now);
}

static struct extents_template *template_of(struct launch *launch, uint32_t i) {
  uint64_t key = extents_mix(launch->function_key + 1, launch->pointers[i].argument);
  return extents_cache_take(&launch->learner->templates, key, launch->learner->now);
}

/* Rule 2: returns whether the word is padding. */
static bool is_padding(struct launch *launch, uint32_t i) {
  uint32_t word = launch->pointers[i].argument / 8;
  if (word >= EXTENTS_WORDS) return false;
  if ((launch->function->not_pointer[word / 64] >> word % 64 & 1) == 0) return false;
  const struct extents_template *template = template_of(launch, i);
  return template->confirmed * 2 <= template->seen;
}

/* Rule 1: returns the entry for an argument, or NULL. Arguments mostly ascend. */
static const struct extents_entry *entry_of(struct launch *launch, uint32_t argument) {
  const struct extents_table *table = launch->table;
  uint32_t at = launch->next_entry;
  if (at > 0 && table->entries[at - 1].argument >= argument) at = 0;
  while (at < table->count && table->entries[at].argument < argument) at++;
  launch->next_entry = at;
  return at < table->count && table->entries[at].argument == argument ? &table->entries[at]
                                                                      : NULL;
}

static void decode(struct launch *launch, uint32_t i) {
  const struct extents_table *table = launch->table;
  uint32_t argument = launch->pointers[i].argument;
  const struct extents_entry *entry = entry_of(launch, argument);
  if (entry != NULL && entry->what == EXTENTS_EXACT) {
    launch->states[i] = STATE_SURE;
    launch->length_bytes[i] = entry->value;
  } else if (entry != NULL) {
    launch->elements[i] = entry->value;
  } else if (argument >= table->zero_begin && argument < table->zero_end) {
    launch->states[i] = STATE_UNUSED;
  } else if (table->all_count && argument >= 8) {
    launch->elements[i] = table->all_elements;
  }
}

static void cast_vote(struct extents_vote *vote, uint32_t units) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < EXTENTS_VOTES; i++) {
    if (vote->votes[i] != 0 && vote->units[i] == units) {
      if (vote->votes[i] < UINT16_MAX) vote->votes[i]++;
      return;
    }
    if (vote->votes[i] < vote->votes[at]) at = i;
  }
  vote->units[at] = units;
  vote->votes[at] = 1;
}

/* Rule 4 in full: examines all possible ends. Returns the chosen units; 0: none. */
static uint32_t examine(struct launch *launch, uint32_t i, struct extents_vote *vote) {
  struct extents_template *template = template_of(launch, i);
  uint64_t distances[EXTENTS_CANDIDATES + 1];
  uint32_t count =
      extents_ends(launch->segments[i], launch->pointers[i].offset_bytes, distances);
  bool any = false;
  for (uint32_t j = 0; j < count; j++) {
    uint32_t units = extents_units(distances[j]);
    if (distances[j] % EXTENTS_UNIT_BYTES != 0 || units == 0) continue;
    bool confirmed = false;
    if (launch->elements[i] != 0)
      confirmed =
          extents_confirm_count(launch->elements[i], units, launch->shape_key, template);
    else if (launch->shape != NULL)
      confirmed = extents_confirm(launch->learner, launch->shape, units, template);
    if (confirmed) cast_vote(vote, units);
    any |= confirmed;
  }
  template->seen++;
  template->confirmed += any;
  return extents_choose(vote, template, launch->shape, launch->elements[i],
                        (uint32_t)(room_of(launch, i) / EXTENTS_UNIT_BYTES));
}

/* Returns whether this tensor is the only one ever seen in the range. */
static bool is_lone(const struct launch *launch, uint32_t i) {
  return launch->segments[i]->count == 1 && launch->pointers[i].offset_bytes == 0;
}

static void choose_end(struct launch *launch, uint32_t i) {
  struct extents_vote *vote = vote_of(launch, i);
  uint64_t room_bytes = room_of(launch, i);
  bool fits = (uint64_t)vote->settled_units * EXTENTS_UNIT_BYTES <= room_bytes;
  bool settled = vote->same >= SETTLED && fits;
  if (!settled || vote->seen % EXAMINE_EVERY == 0) {
    uint32_t units = examine(launch, i, vote);
    if (units != vote->settled_units) {
      vote->settled_units = units;
      vote->same = 0;
    } else if (vote->same < UINT16_MAX) {
      vote->same++;
    }
  }
  vote->seen++;
  if (is_lone(launch, i) && launch->segments[i]->length_bytes <= LONE_BYTES) {
    set_length(launch, i, STATE_SURE, room_bytes);
  } else if (vote->settled_units != 0) {
    set_length(launch, i, STATE_SURE, (uint64_t)vote->settled_units * EXTENTS_UNIT_BYTES);
  } else if (launch->elements[i] != 0) {
    uint64_t size = launch->function->named.element_bytes;
    if (launch->elements[i] <= room_bytes / size)
      set_length(launch, i, STATE_GUESSED, launch->elements[i] * size);
  }
}

/* Returns the longest length of at most `bytes` that the integers express; 0: none. */
static uint64_t expressible(struct launch *launch, uint32_t i, uint64_t bytes) {
  struct extents_vote *vote = vote_of(launch, i);
  uint32_t units = extents_units(bytes);
  if (vote->capped_units != units) {
    vote->capped_units = units;
    vote->cap_units = extents_largest(launch->learner, launch->shape, units);
  }
  return (uint64_t)vote->cap_units * EXTENTS_UNIT_BYTES;
}

/* Rule 5: guesses a length. `longest`: the longest sure length of the launch. */
static void guess(struct launch *launch, uint32_t i, uint64_t longest) {
  const struct extents_segment *segment = launch->segments[i];
  uint64_t offset = launch->pointers[i].offset_bytes;
  for (uint32_t j = 0; j < launch->count; j++) {
    if (launch->states[j] != STATE_SURE || launch->segments[j] != segment) continue;
    uint64_t begin = launch->pointers[j].offset_bytes;
    if (begin < offset && offset - begin < EXTENTS_LARGE_BYTES &&
        offset - begin < launch->length_bytes[j]) {
      set_length(launch, i, STATE_GUESSED, launch->length_bytes[j] - (offset - begin));
      return;
    }
  }
  const struct extents_start *start =
      &segment->starts[extents_start_before(segment, offset)];
  bool table_rest =
      launch->table != NULL && launch->pointers[i].argument >= launch->table->small_begin;
  if (start->offset == offset && start->length_bytes != 0 && !table_rest) {
    set_length(launch, i, STATE_GUESSED, start->length_bytes);
    return;
  }
  uint64_t bytes = extents_nearest(segment, offset);
  if (table_rest) {
    bytes = bytes < SMALL_BYTES ? bytes : SMALL_BYTES;
  } else if (launch->shape != NULL && longest == 0) {
    uint64_t most = expressible(launch, i, bytes);
    if (most != 0 && most < bytes) bytes = most;
  } else if (longest != 0 && longest < bytes) {
    bytes = longest;
  }
  set_length(launch, i, STATE_GUESSED, bytes);
}

static void recall(struct launch *launch, uint64_t handle, uint64_t signature) {
  struct pump_extents *learner = launch->learner;
  struct extents_function *function =
      extents_cache_take(&learner->functions, extents_mix(handle, 0), learner->now);
  if (function->named.element_bytes == 0) function->named.element_bytes = 4;
  launch->function = function;
  launch->function_key = extents_mix(handle, function->salt + 1);
  const struct extents_signature *line =
      extents_digest(learner, function, handle, launch->function_key, signature,
                     launch->count, launch->pointers);
  launch->shape_key = extents_mix(launch->function_key, signature);
  if (line == NULL) return;
  if (line->table != 0)
    launch->table = extents_cache_find(line->table == EXTENTS_SMALL ? &learner->small_tables
                                                                    : &learner->tables,
                                       launch->shape_key, learner->now);
  if (line->shape != 0)
    launch->shape = extents_cache_find(&learner->shapes, line->shape, learner->now);
  if (launch->shape != NULL) launch->shape_key = line->shape;
}

/* Returns the bytes from the pointer to the end of its allocator block; 0: unknown. */
static uint64_t block_rest(const struct pump_pointer *pointer) {
  if (pointer->block_units == 0) return 0;
  return (uint64_t)pointer->block_units * EXTENTS_UNIT_BYTES -
         pointer->offset_bytes % EXTENTS_UNIT_BYTES;
}

/* First pass: finds whether the pointer is used, and its segment. */
static void meet(struct launch *launch, uint32_t i) {
  struct pump_extents *learner = launch->learner;
  const struct pump_pointer *pointer = &launch->pointers[i];
  launch->elements[i] = 0;
  launch->states[i] = STATE_OPEN;
  launch->length_bytes[i] = 0;
  if (launch->table != NULL) decode(launch, i);
  if (launch->states[i] == STATE_UNUSED) return;
  struct extents_segment *segment =
      extents_segment_at(learner, pointer->slot, pointer->generation);
  bool known = segment != NULL && pointer->offset_bytes < segment->length_bytes;
  uint64_t block_bytes = block_rest(pointer);
  launch->segments[i] = segment;
  if (!known ||
      (block_bytes == 0 && launch->states[i] == STATE_OPEN && is_padding(launch, i))) {
    launch->states[i] = STATE_UNUSED;
    launch->length_bytes[i] = 0;
    return;
  }
  launch->starts[i] = extents_start_use(learner, segment, pointer->offset_bytes);
  uint64_t bytes = launch->states[i] == STATE_SURE ? launch->length_bytes[i] : block_bytes;
  if (block_bytes != 0 && bytes > block_bytes) bytes = block_bytes;
  if (bytes != 0) set_length(launch, i, STATE_SURE, bytes);
}

EXPORT uint32_t pump_extents_kernel(struct pump_extents *learner, uint64_t function,
                                    uint64_t signature, uint32_t count,
                                    const struct pump_pointer *pointers,
                                    uint64_t *length_bytes) {
  memset(length_bytes, 0, count * sizeof(*length_bytes));
  struct launch launch;
  launch.learner = learner;
  launch.shape = NULL;
  launch.table = NULL;
  launch.next_entry = 0;
  launch.count = count < PUMP_MAX_EXTENTS ? count : PUMP_MAX_EXTENTS;
  launch.pointers = pointers;
  launch.length_bytes = length_bytes;
  learner->now++;
  recall(&launch, function, signature);
  for (uint32_t i = 0; i < launch.count; i++) meet(&launch, i);
  uint64_t longest = 0;
  for (uint32_t i = 0; i < launch.count; i++) {
    if (launch.states[i] == STATE_OPEN) choose_end(&launch, i);
    if (launch.states[i] == STATE_SURE && length_bytes[i] > longest)
      longest = length_bytes[i];
  }
  uint32_t used = 0;
  for (uint32_t i = 0; i < launch.count; i++) {
    if (launch.states[i] == STATE_OPEN) guess(&launch, i, longest);
    used += length_bytes[i] != 0;
  }
  for (uint32_t i = 0; i < launch.count; i++)
    if (launch.states[i] == STATE_SURE)
      extents_start_length(learner, launch.segments[i], launch.starts[i],
                           pointers[i].offset_bytes, length_bytes[i]);
  return used;
}

EXPORT void pump_extents_name(struct pump_extents *learner, uint64_t function,
                              const char *name, uint32_t bytes) {
  uint64_t hash = 1;
  for (uint32_t i = 0; i < bytes; i++) hash = extents_mix(hash, (uint8_t)name[i]);
  struct extents_function *known =
      extents_cache_take(&learner->functions, extents_mix(function, 0), learner->now);
  if (known->name_hash == hash) return;
  if (known->name_hash != 0) { /* the handle now belongs to another kernel */
    known->salt++;
    memset(known->not_pointer, 0, sizeof(known->not_pointer));
  }
  known->name_hash = hash;
  extents_read_name(name, bytes, &known->named);
}

bool pump_extents_gathers(struct pump_extents *learner, uint64_t function) {
  const struct extents_function *known =
      extents_cache_find(&learner->functions, extents_mix(function, 0), learner->now);
  return known != NULL && known->named.gathers;
}

EXPORT void pump_extents_delete(struct pump_extents *learner) {
  if (learner == NULL) return;
  if (learner->segments != NULL)
    for (uint32_t slot = 0; slot < PUMP_MAX_RANGES; slot++)
      pump_extents_segment_gone(learner, slot);
  for (uint32_t i = 0; i < EXTENTS_PENDING; i++) free(learner->pending[i].parameters);
  extents_cache_free(&learner->functions);
  extents_cache_free(&learner->shapes);
  extents_cache_free(&learner->signatures);
  extents_cache_free(&learner->tables);
  extents_cache_free(&learner->small_tables);
  extents_cache_free(&learner->templates);
  extents_cache_free(&learner->votes);
  free(learner->spelled);
  free(learner->segments);
  free(learner);
}

EXPORT struct pump_extents *pump_extents_new(void) {
  struct pump_extents *learner = calloc(1, sizeof(*learner));
  if (learner == NULL) return NULL;
  learner->segments = calloc(PUMP_MAX_RANGES, sizeof(*learner->segments));
  learner->spelled = calloc(EXTENTS_SPELLED, sizeof(*learner->spelled));
  bool ready =
      learner->segments != NULL && learner->spelled != NULL &&
      extents_cache_init(&learner->functions, 2048, sizeof(struct extents_function)) &&
      extents_cache_init(&learner->shapes, 4096, sizeof(struct extents_shape)) &&
      extents_cache_init(&learner->signatures, 16384, sizeof(struct extents_signature)) &&
      extents_cache_init(&learner->tables, 512, sizeof(struct extents_table)) &&
      extents_cache_init(&learner->small_tables, 16384,
                         offsetof(struct extents_table, entries) +
                             EXTENTS_SMALL_TABLE * sizeof(struct extents_entry)) &&
      extents_cache_init(&learner->templates, 8192, sizeof(struct extents_template)) &&
      extents_cache_init(&learner->votes, 32768, sizeof(struct extents_vote));
  if (ready) return learner;
  pump_extents_delete(learner);
  return NULL;
}
