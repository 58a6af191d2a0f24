/* learner_state.h - the learner's state; see learner.h and the DESIGN of learner.c. */
#ifndef PUMP_LEARNER_STATE_H
#define PUMP_LEARNER_STATE_H

#include <stdbool.h>

#include "learner.h"
#include "pump_ring.h"

#define EXPORT __attribute__((visibility("default")))

/* No operation has this number [derived]. */
#define NEVER UINT64_MAX

/* Contexts: hashes of a stream's newest 1, 4, 16 ... 1,024 keys [guessed]. */
#define LEVELS 6u
#define CONTEXT_LEAST(level) (1u << (2 * (level)))
#define LEVEL_BRANCH 1u /* its contexts name branch points */
#define LEVEL_SURE 2u   /* first level whose contexts are preferred to everything else */
/* Pseudo level of matches that resume an ended prediction [derived]. */
#define LEVEL_RESUME LEVELS

/* Numbers of operations [guessed]. */
#define STREAM_SPREAD 256u   /* maximum distance of streams that interleave differently */
#define TRIAL 16u            /* confirmations after which any match is trusted */
#define RESUME_AGE 16u       /* maximum age of an ended prediction that may resume */
#define RESUME_SKIP 16u      /* operations that a resumed prediction may skip */
#define BRANCH_HISTORY 8192u /* past operations that a new branch point examines */
/* Least success rates, as shares: of a level whose matches are trusted at once, and of a
 * branch point that predictions pass [guessed]. */
#define SHARE_TRUSTED 0.8f
#define BRANCH_TRUSTED 0.7f

/* Lookback n predicts the accesses of n repetitions ago; LOOKBACK_RELOCATED those of the
 * newest repetition, and follows moved tensors [guessed]. */
#define LOOKBACKS 13u
#define LOOKBACK_RELOCATED 0
#define LOOKBACK_SAMPLE 4 /* one in this many operations compares all lookbacks */
/* Compared operations in the mean of a share, and before a lookback may be selected
 * [guessed]. */
#define LOOKBACK_LATELY 128u
/* A new lookback must have less than this part of the current one's misses [guessed]. */
#define LOOKBACK_MISSES 0.8f

/* Repetitions astray after which an access is not predicted, and the most that count
 * [guessed]. */
#define ASTRAY_LEAST 3u
#define ASTRAY_MOST 8u
/* A repetition is of another loop (an iteration, not a layer) if it is this many times as
 * far back as the one before [guessed]. */
#define ASTRAY_PERIODS 32u

/* Entries of tables; powers of two. New entries replace old ones [guessed]. */
#define BRANCH_POINTS 4096u
#define ALLOCATIONS 32768u
#define RELOCATIONS 16384u
#define SHAPES 32768u
#define SHAPE_WAYS 8u /* entries of a set of shapes */

/* Replaces a context: operations were lost before. No name of a branch point is 0
 * [derived]. */
#define TORN 0

/* An operation in the history. */
struct history_entry {
  uint64_t key, signature;
  uint64_t first_access; /* position in the ring of accesses */
  uint64_t next;         /* next operation of its stream, or NEVER */
  uint32_t before;       /* LEVEL_BRANCH context before it, or TORN */
  uint16_t stream, kind;
  uint16_t count; /* number of accesses */
  uint16_t run;   /* hash of the preceding run at its branch point; 0: unknown */
  uint32_t back;  /* distance to the operation that it repeats; 0: none */
};

/* The context of a level: hash of `filled` keys, beginning with operation `tail`. */
struct context {
  uint64_t hash, tail;
  uint64_t filled;
};

/* State of a current stream. */
struct stream_state {
  struct context contexts[LEVELS];
  uint64_t last;  /* newest operation of the stream, or NEVER */
  uint64_t epoch; /* epoch of the match that `as` belongs to */
  uint32_t as;    /* stream of the history that it repeats */
};

/* Progress of a match in a stream of the history. */
struct cursor {
  uint64_t epoch;   /* epoch of the match that the cursor belongs to */
  uint64_t at;      /* first operation of the stream that was not repeated yet, or NEVER */
  uint32_t current; /* current stream that repeats it */
};

/* A position in the history that the program is believed to repeat. */
struct match {
  uint64_t epoch;
  uint64_t base;   /* operation where the match was found */
  uint64_t front;  /* first operation that was not repeated yet */
  uint64_t beyond; /* later operations that were repeated, on other streams */
  uint64_t from;   /* number of the first operation that agrees with the history */
  uint64_t since;  /* number of confirmations */
  uint32_t level;  /* level that found the match */
  bool on, judged; /* judged: the level's score includes the match */
};

/* The end of a trusted prediction. */
struct resume {
  uint64_t front; /* front of the ended match; NEVER: none */
  uint64_t ended; /* number of the operation that ended it */
  uint64_t from;  /* `from` of the ended match */
};

/* A branch point. See learner_branches.c. */
struct branch_point {
  uint32_t name;
  float right;      /* recent share of right predictions */
  bool failed;      /* the last prediction was wrong */
  uint32_t streak;  /* length of the current run of equal operations */
  uint64_t came[3]; /* numbers of the last operations there, newest first, or NEVER */
  uint64_t changed; /* last operation before the newest change */
};

/* A match that was compared at a branch point and kept: `common` operations before
 * `number` and `to` are equal. */
struct aside {
  uint64_t number, to, common;
};

struct allocation {
  uint64_t name;         /* allocation_name(slot, generation); 0: unused */
  uint64_t allocated_at; /* number of the first operation after the allocation */
  uint64_t length_bytes;
  uint64_t successor;  /* allocation that took its role in a later iteration; 0: none */
  bool live, repeated; /* repeated: it is the successor of another allocation */
};

/* The relocation of a tensor, within its range or into another one. */
struct relocation {
  uint64_t from_allocation, from_offset; /* from_allocation 0: unused */
  uint64_t to_allocation, to_offset;
};

/* The newest operation that reached an address. */
struct reached {
  uint64_t address; /* hash of allocation and offset */
  uint64_t number;
};

struct allocation_event {
  uint64_t allocation, allocated_at;
};

struct shape {
  uint64_t signature, key;
  uint64_t used; /* one more than the number of its newest operation; 0: never reported */
};

/* The log of the learner's first inputs (learner_log.c). */
struct event_log {
  struct pump_learner_step *steps; /* NULL: there is no log */
  struct pump_access *accesses;
  uint32_t step_count, access_count, operations;
  bool full;
};

struct pump_learner {
  uint32_t capacity, mask, access_mask, index_mask;
  uint64_t head;   /* number of the next operation */
  uint64_t oldest; /* first operation that is not forgotten */
  uint64_t access_head;
  struct history_entry *history;
  struct pump_access *accesses; /* `missing`: for how many repetitions it was astray
                                   (learner_relocations.c) */
  uint64_t *index[LEVELS];      /* by context: newest operation at its end */
  uint64_t powers[LEVELS];      /* factor of the oldest key in a context's hash */
  struct stream_state streams[PUMP_MAX_STREAMS];
  struct cursor cursors[PUMP_MAX_STREAMS];
  struct match match;
  struct resume resume;
  uint64_t epochs;
  bool torn;                /* operations were lost before the next one */
  float scores[LEVELS + 1]; /* success rates of the matches that each level found */
  uint64_t clear_until; /* end of the predictions that pump_learner_ahead has examined */
  uint64_t clear_epoch;
  struct branch_point branch_points[BRANCH_POINTS];
  struct aside aside;
  /* search for another match if addresses differ (learner_accesses.c) */
  uint32_t misplaced; /* consecutive operations at other addresses than predicted */
  uint64_t replace_after, replace_wait;
  /* translation of accesses (learner_relocations.c) */
  struct allocation allocations[ALLOCATIONS];
  struct relocation relocations[RELOCATIONS];
  uint32_t relocations_used;
  struct reached reached[RELOCATIONS];
  uint32_t successors_early;  /* number of live ranges that already have a successor */
  uint32_t lookback;          /* the one that predicts accesses */
  float lookbacks[LOOKBACKS]; /* recent share of right accesses of each lookback */
  uint32_t lookbacks_seen[LOOKBACKS]; /* number of operations on which each lookback was
                                         compared */
  struct allocation_event allocation_events[ALLOCATIONS];
  uint64_t allocation_events_head;
  uint32_t allocations_now; /* allocations since the newest operation */
  struct pump_access answer[PUMP_MAX_EXTENTS];
  struct shape shapes[SHAPES];
  struct pump_learner_report totals;
  struct event_log event_log;
  uint64_t recalled;        /* operations below this number are from another run */
  uint64_t recalled_period; /* longest period that the recalled run repeated; 0: none */
};

static inline struct history_entry *learner_entry(const struct pump_learner *l,
                                                  uint64_t number) {
  return &l->history[number & l->mask];
}

static inline struct pump_access *learner_access(const struct pump_learner *l,
                                                 const struct history_entry *entry,
                                                 uint32_t i) {
  return &l->accesses[(entry->first_access + i) & l->access_mask];
}

static inline uint64_t learner_mix(uint64_t x) {
  return pump_mix(x);
}

static inline uint64_t allocation_name(uint32_t slot, uint32_t generation) {
  return ((uint64_t)slot << 32 | generation) + 1;
}

/* ---- handling of input, without the log ---- */

int learner_saw(struct pump_learner *l, const struct pump_operation *op, uint64_t key);
void learner_allocated(struct pump_learner *l, uint32_t slot, uint32_t generation,
                       uint64_t length_bytes);
void learner_freed(struct pump_learner *l, uint32_t slot, uint32_t generation);
void learner_tear(struct pump_learner *l);

/* ---- the log (learner_log.c) ---- */

/* Set in the slot numbers of an earlier run's ranges, above PUMP_MAX_RANGES [derived]. */
#define RECALLED_SLOT 0x80000000u

void learner_note(struct pump_learner *l, struct pump_learner_step step,
                  const struct pump_access *accesses);

/* ---- matches (learner_match.c) ---- */

/* Returns the past operation that `key` on `stream` repeats under the match, or NEVER. */
uint64_t learner_expected(struct pump_learner *l, uint32_t stream, uint64_t key);
/* Advances the match: `stream`'s newest operation, already in the history, repeats
 * `found`. */
void learner_advance(struct pump_learner *l, uint32_t stream, uint64_t found);
/* Ends the match because of an operation on `stream` that is not in the history yet.
 * Scores the match's level and the branch point. */
void learner_drop(struct pump_learner *l, uint32_t stream);
/* Searches for a match of the newest operation, `number`, whose contexts are not indexed
 * yet. Returns the operation that it repeats, or NEVER. */
uint64_t learner_find(struct pump_learner *l, uint32_t stream, uint64_t number);
/* Indexes the contexts of the newest operation. */
void learner_index(struct pump_learner *l, uint32_t stream, uint64_t number);
/* Returns the name of the next branch point of a stream: its context of four keys. */
uint32_t learner_branch_name(const struct stream_state *state);
/* Returns whether an operation at or after the front was already repeated. */
bool learner_was_seen(const struct pump_learner *l, uint64_t number);
bool learner_is_trusted(const struct pump_learner *l);
/* Returns the distance between an operation and the one that it repeats. */
uint64_t learner_period(const struct pump_learner *l);
void learner_shift_share(float *share, bool right);

/* ---- branch points (learner_branches.c) ---- */

/* Notes that a confident prediction after the context `name` was right. Call before the
 * operation is added to the history. */
void learner_branch_right(struct pump_learner *l, uint32_t name);
/* Notes that a confident prediction after the context `name` was wrong. Call before the
 * operation is added to the history. */
void learner_branch_wrong(struct pump_learner *l, uint32_t name);
/* Notes that `number` followed the context. */
void learner_branch_came(struct pump_learner *l, uint32_t name, uint64_t number);
/* Returns whether `number`, predicted by the match, is at a branch point where the match
 * lacks trust. */
bool learner_branches_here(const struct pump_learner *l, uint64_t number);
/* Replaces the match by one that agrees with it up to `number`, which is at a branch
 * point, and continues there as usual. Returns the operation that replaces `number`, or
 * NEVER. */
uint64_t learner_turn(struct pump_learner *l, uint64_t number);

/* ---- accesses (learner_accesses.c) ---- */

/* Replaces the match if the newest operation, `number`, and the repeated one, `then`,
 * keep reaching different addresses, and another operation reached the same ones. Returns
 * the operation that `number` now repeats, or NEVER. */
uint64_t learner_replace(struct pump_learner *l, uint32_t stream, uint64_t number,
                         uint64_t then);

/* ---- allocations and relocations (learner_relocations.c) ---- */

/* Ends all allocations and restarts the comparison of lookbacks. */
void learner_end_allocations(struct pump_learner *l);
/* Returns for how many repetitions an access was astray; 0 if these were of another loop
 * than one with this period. */
static inline uint32_t learner_astray(const struct pump_learner *l,
                                      const struct history_entry *entry, uint32_t i,
                                      uint64_t period) {
  bool same_loop = period <= (uint64_t)ASTRAY_PERIODS * entry->back;
  return same_loop && i < entry->count ? learner_access(l, entry, i)->missing : 0;
}
/* Notes that the operation reaches this access's address. */
void learner_reached(struct pump_learner *l, const struct pump_access *access,
                     uint64_t number);
/* Learns where the accesses of `then` are now, from `number`, which repeats it. `count`:
 * it was predicted. */
void learner_link(struct pump_learner *l, uint64_t then, uint64_t number, bool count);
/* Returns the operation whose accesses best predict a repetition of `number`, `rounds`
 * more periods later. */
const struct history_entry *learner_source(const struct pump_learner *l, uint64_t number,
                                           uint64_t rounds);
/* Translates an access of a source to its current address, or to the one `rounds` more
 * periods later. */
void learner_translate(const struct pump_learner *l, const struct pump_access *then,
                       uint64_t rounds, struct pump_access *today);

#endif
