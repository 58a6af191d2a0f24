/* learner_state.h - inside of the learner; see learner.h and the DESIGN of learner.c. */
#ifndef PUMP_LEARNER_STATE_H
#define PUMP_LEARNER_STATE_H

#include <stdbool.h>

#include "learner.h"
#include "pump_ring.h"

#define EXPORT __attribute__((visibility("default")))

#define NEVER UINT64_MAX

/* Contexts: the newest 1, 4, 16 ... keys of a stream, distinguished by a hash. */
#define LEVELS 6u
#define CONTEXT_LEAST(level) (1u << (2 * (level)))
#define LEVEL_FORK 1u       /* its context names the place where a program may fork */
#define LEVEL_SURE 2u       /* contexts from this one on are taken before anything else */
#define LEVEL_RESUME LEVELS /* going on where a prediction ended: scored like a level */

#define STREAM_SPREAD 256u /* operations by which streams may change places */
#define TRIAL 16u /* confirmations after which a pointer is trusted, whatever found it */
#define RESUME_AGE 16u  /* operations after which an ended prediction may resume */
#define RESUME_SKIP 16u /* operations that may be left out where it resumes */
#define SHARE_TRUSTED 0.8f
#define FORK_TRUSTED 0.7f
#define FORKS 4096u
#define FORK_PAST 8192u /* past operations that a new fork examines */
#define LIVES 32768u
#define PLACES 16384u
#define LAGS 12u
#define WAYS (LAGS + 1) /* way n: what operations n repetitions ago reached; and */
#define WAY_PLACES 0    /* what the newest one did, tensors followed */
#define WAY_SAMPLE 4    /* of so many operations one compares all ways */
#define WAY_LATELY 128u /* such operations over which a share is a mean */
#define WAY_LEAST 64u   /* that one has to be compared on before it is taken */
#define WAY_MISSES                                                                         \
  0.8f /* of the share that is missed: another way has less, to be taken                   \
        */
#define ALLOCATIONS 65536u
#define SHAPES 32768u
#define SHAPE_WAYS 8u
#define KINDS 64u
#define KEY_COUNTS 65536u

#define TORN 0 /* in place of a context: operations were lost in front */

/* An operation of the past; one cache line. */
struct past {
  uint64_t key;
  uint64_t signature, function, tag;
  uint64_t first_access; /* position in the ring of accesses */
  uint64_t next;         /* the next one of its stream, or NEVER */
  uint32_t before;       /* context of LEVEL_FORK in front of it, or TORN */
  uint16_t stream, kind;
  uint16_t count; /* accesses */
  uint16_t run;   /* the streak of others at its fork in front of it; 0: not known */
  uint32_t back; /* how many operations before it the one stands that it repeats; 0: none */
};
_Static_assert(sizeof(struct past) == 64, "one cache line");

/* The context of a level: hash of the keys from operation `tail` on, `filled` of them. */
struct context {
  uint64_t hash, tail;
  uint64_t filled;
};

/* A stream as it is today. */
struct lane {
  struct context contexts[LEVELS];
  uint64_t last;  /* its newest operation, or NEVER */
  uint64_t epoch; /* of the pointer for which `as` holds */
  uint32_t as;    /* the stream of the past that it repeats */
};

/* What has been repeated of a stream of the past. */
struct cursor {
  uint64_t epoch; /* of the pointer for which this holds */
  uint64_t at;    /* its next operation that was not seen again yet, or NEVER */
  uint32_t lane;  /* the stream that repeats it */
};

/* A pointer into the past. */
struct match {
  uint64_t epoch;
  uint64_t base;   /* the operation at which it was found */
  uint64_t front;  /* first operation that was not seen again */
  uint64_t beyond; /* operations behind `front` that were: other streams */
  uint64_t from;   /* number of the operation since which all was as in the past */
  uint64_t since;  /* confirmations */
  uint32_t level;  /* that found it */
  bool on, judged; /* judged: its level got its score */
};

/* Where a trusted prediction ended. */
struct resume {
  uint64_t front; /* NEVER: nowhere */
  uint64_t ended; /* number of the operation that ended it */
  uint64_t from;  /* of its pointer */
};

/* See learner_forks.c. */
struct fork {
  uint32_t name;
  float right;      /* share of right predictions, lately */
  bool failed;      /* the last one was wrong */
  uint32_t streak;  /* operations like the newest that came one after the other */
  uint64_t came[3]; /* numbers of the newest, newest first, or NEVER */
  uint64_t turned;  /* number of the newest one that another one came behind */
};

/* A pointer that was compared at a fork and not replaced: so many operations in front of
 * both places are the same. */
struct aside {
  uint64_t number, to, common;
};

struct life {
  uint64_t name;         /* life_name(slot, generation); 0: unused */
  uint64_t allocated_at; /* number of the first operation after its allocation */
  uint64_t length_bytes;
  uint64_t
      successor; /* name of the life that took its part in a later iteration; 0: none */
  bool live, repeated; /* repeated: an earlier life had its part */
};

/* A tensor that moved inside its range, or to another offset of another one. */
struct place {
  uint64_t from_life, from_offset; /* from_life 0: unused */
  uint64_t to_life, to_offset;
};

struct allocation {
  uint64_t life, allocated_at;
};

struct shape {
  uint64_t signature, key;
  uint64_t used; /* number of the operation after its newest one; 0: never reported */
};

struct kind_of {
  uint64_t sum, count; /* of keys of the iteration; in which order streams took turns
                          makes no other kind */
};

struct iterations {
  uint64_t anchor; /* key of the operation that begins one; 0: none chosen */
  uint64_t began;  /* number of that operation; NEVER: not seen yet */
  uint64_t period; /* in which the anchor was found to be unique */
  uint64_t sum, whole;
  uint32_t kind, kinds;
  struct kind_of known[KINDS];
};

/* The beginning of what was told (learner_story.c). */
struct story {
  struct pump_learner_step *steps; /* NULL: it is not kept */
  struct pump_access *accesses;
  uint32_t step_count, access_count, operations;
  bool full;
};

struct pump_learner {
  uint32_t capacity, mask, access_mask, index_mask;
  uint64_t head;   /* number of the next operation */
  uint64_t oldest; /* operations below this one are forgotten */
  uint64_t access_head;
  struct past *pasts;
  struct pump_access *accesses;
  uint64_t *index[LEVELS]; /* by context: the newest operation that ended it */
  uint64_t powers[LEVELS]; /* by which the oldest key of a context has been multiplied */
  struct lane lanes[PUMP_MAX_STREAMS];
  struct cursor cursors[PUMP_MAX_STREAMS];
  struct match match;
  struct resume resume;
  uint64_t epochs;
  bool torn;                /* operations were lost in front of the next one */
  float scores[LEVELS + 1]; /* how often pointers that a level found went on */
  uint64_t clear_until;     /* operations that pump_learner_ahead has examined */
  uint64_t clear_epoch;
  struct fork forks[FORKS];
  struct aside aside;
  /* another place for what reaches something else (learner_accesses.c) */
  uint32_t
      misplaced; /* newest operations that reached something else than what they repeat */
  uint64_t replace_after, replace_wait;
  /* where accesses are (learner_places.c) */
  struct life lives[LIVES];
  struct place places[PLACES];
  uint32_t places_used;
  uint32_t successors_early; /* of lives that have not ended */
  uint32_t way;              /* by which accesses are predicted */
  float ways[WAYS];          /* share in which each was right, lately */
  uint32_t ways_seen[WAYS];  /* on how many operations it was compared */
  struct allocation allocations[ALLOCATIONS];
  uint64_t allocations_head;
  uint32_t allocations_now; /* since the newest operation */
  struct pump_access answer[PUMP_LEARNER_MAX_ACCESSES];
  struct shape shapes[SHAPES];
  struct iterations iterations;
  uint16_t key_counts[KEY_COUNTS];
  struct pump_learner_report totals;
  struct story story;
  uint64_t recalled;        /* operations below this one are another run's */
  uint64_t recalled_period; /* the longest that they repeated from end to end; 0: none */
};

static inline struct past *learner_past(const struct pump_learner *l, uint64_t number) {
  return &l->pasts[number & l->mask];
}

static inline struct pump_access *learner_access(const struct pump_learner *l,
                                                 const struct past *past, uint32_t i) {
  return &l->accesses[(past->first_access + i) & l->access_mask];
}

static inline uint64_t learner_mix(uint64_t x) {
  return pump_mix(x);
}

static inline uint64_t life_name(uint32_t slot, uint32_t generation) {
  return ((uint64_t)slot << 32 | generation) + 1;
}

/* ---- what is told, but for the story ---- */

int learner_saw(struct pump_learner *l, const struct pump_learner_operation *op,
                uint64_t key);
void learner_allocated(struct pump_learner *l, uint32_t slot, uint32_t generation,
                       uint64_t length_bytes);
void learner_freed(struct pump_learner *l, uint32_t slot, uint32_t generation);
void learner_tear(struct pump_learner *l);

/* ---- the story (learner_story.c) ---- */

#define RECALLED_SLOT 0x80000000u /* beside the slot of a range of another run */

void learner_note(struct pump_learner *l, struct pump_learner_step step,
                  const struct pump_access *accesses);

/* ---- pointers into the past (learner_match.c) ---- */

/* The operation that `key` on `stream` repeats under the present pointer, or NEVER. */
uint64_t learner_expected(struct pump_learner *l, uint32_t stream, uint64_t key);
/* `found` was repeated on `stream`, by an operation that is in the history already. */
void learner_advance(struct pump_learner *l, uint32_t stream, uint64_t found);
/* The present pointer is void, with an operation on `stream` that is not in the history
 * yet: its level and the place where it ended get their scores. */
void learner_drop(struct pump_learner *l, uint32_t stream);
/* Searches the operation of the past that `number`, which is the newest and whose contexts
 * are not in the index yet, repeats. NEVER: none. */
uint64_t learner_find(struct pump_learner *l, uint32_t stream, uint64_t number);
/* Takes the contexts of the newest operation into the index. */
void learner_index(struct pump_learner *l, uint32_t stream, uint64_t number);
/* The context of four keys that the next operation of a stream comes after. */
uint32_t learner_fork_name(const struct lane *lane);
/* Whether an operation of the past, from the front on, was seen again. */
bool learner_was_seen(const struct pump_learner *l, uint64_t number);
bool learner_is_trusted(const struct pump_learner *l);
/* Operations between an operation and the one that it repeats. */
uint64_t learner_period(const struct pump_learner *l);
void learner_shift_share(float *share, bool right);

/* ---- forks (learner_forks.c) ---- */

/* What was predicted with confidence behind the context `name` came, or did not. To be
 * called before what came is in the history. */
void learner_fork_right(struct pump_learner *l, uint32_t name);
void learner_fork_wrong(struct pump_learner *l, uint32_t name);
/* Notes that `number` came behind the context. */
void learner_fork_came(struct pump_learner *l, uint32_t name, uint64_t number);
/* Whether `number`, which the pointer predicts, is at a fork where it may not come. */
bool learner_forks_here(const struct pump_learner *l, uint64_t number);
/* Replaces the pointer, if one agrees with it up to `number`, which is at a fork, and
 * continues as is usual there. Returns the operation that `number` has become, or NEVER. */
uint64_t learner_turn(struct pump_learner *l, uint64_t number);

/* ---- accesses (learner_accesses.c) ---- */

/* Replaces a pointer that claims that the newest operation, `number`, repeats `then`, if
 * the two keep reaching different places and elsewhere the same was reached. Returns which
 * operation `number` repeats by the new one, or NEVER. */
uint64_t learner_replace(struct pump_learner *l, uint32_t stream, uint64_t number,
                         uint64_t then);

/* ---- lives and places (learner_places.c) ---- */

/* All ranges are gone, and which way predicted best is open. */
void learner_end_lives(struct pump_learner *l);
/* `number` repeats `then`: learns where their accesses are. `count`: it was predicted. */
void learner_link(struct pump_learner *l, uint64_t then, uint64_t number, bool count);
/* The operation with the accesses that predict best what a repetition of `number` will
 * reach, after `rounds` more of the period that it is in. */
const struct past *learner_source(const struct pump_learner *l, uint64_t number,
                                  uint64_t rounds);
/* Where an access of a source lies today, or will lie after `rounds` more of the period. */
void learner_translate(const struct pump_learner *l, const struct pump_access *then,
                       uint64_t rounds, struct pump_access *today);

/* ---- iterations (learner_iterations.c) ---- */

void learner_iteration(struct pump_learner *l, uint64_t key);

#endif
