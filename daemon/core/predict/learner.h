/* learner.h - learns the sequence of operations that a program repeats, and predicts what
 * comes next: which operation, and which parts of which ranges it will reach.
 *
 * A prediction is a pointer into the past: "what happens is what happened from operation n
 * on". Each operation either confirms the pointer, which then moves on by one, or ends it;
 * then the place with the longest common past is searched anew. So nothing has to be known
 * of iterations beforehand, and no prediction outlives its first mistake. The rule is
 * described in learner.c, what it can and cannot do in docs/learner.md.
 *
 * It makes no system call, reads no clock, keeps bounded memory (about 400 bytes for each
 * operation that it remembers, touched as it is needed) and answers the same calls always
 * in the same way. One thread at a time.
 *
 * Words: the number of an operation counts those that the learner has seen, from 0; an
 * access is an extent with the range that it is in; a life is one life of a range
 * (slot, generation). Lost operations have no number.
 */
#ifndef PUMP_LEARNER_H
#define PUMP_LEARNER_H

#include <stdint.h>

/* cffi: begin */

/* Results of pump_learner_see. */
#define PUMP_LEARNER_UNKNOWN 0   /* nothing was predicted */
#define PUMP_LEARNER_CONFIRMED 1 /* it is what was predicted */
#define PUMP_LEARNER_DEVIATED 2  /* something else was predicted, and is void */

#define PUMP_LEARNER_MAX_ACCESSES 192 /* of an operation; those beyond are passed over */

struct pump_learner;

/* A part of a range that an operation reaches. `missing`: 0, or 1 in a prediction where
 * the range has not been allocated yet; slot, generation and offset are then those that
 * its predecessor had. */
struct pump_access {
  uint32_t slot;
  uint32_t generation;
  uint64_t offset_bytes;
  uint64_t length_bytes;
  uint32_t access; /* PUMP_ACCESS_* */
  uint32_t missing;
};

/* An operation as the shim reports it, in issue order. `accesses` is copied. */
struct pump_learner_operation {
  uint64_t function;  /* 0 for copies and memsets */
  uint64_t signature; /* of the launch, addresses masked; 0: none, the lengths of the
                         accesses stand for it */
  uint64_t tag;       /* the caller's: kept, and given back with predictions */
  uint32_t stream;
  uint32_t kind; /* PUMP_EVENT_* */
  uint32_t count;
  const struct pump_access *accesses;
};

/* An operation that will come. `accesses` belong to the learner, until its next call. */
struct pump_predicted {
  uint64_t number;                   /* of the earlier operation that it repeats */
  uint64_t signature, function, tag; /* of that one; a launch's signature may differ this
                                        time in parameters that change each iteration */
  uint64_t key;    /* what such operations have in common: of launches that were reported
                      (pump_learner_shape) identity, grid and block: pump_shape */
  uint32_t stream; /* on which it is expected */
  uint32_t kind;
  uint32_t count;
  uint32_t missing; /* how many of its accesses are not allocated yet */
  const struct pump_access *accesses;
};

/* A call that a learner was told something by, with the accesses of an operation in an
 * array of their own, in the order of the operations. */
#define PUMP_LEARNER_OPERATION 0
#define PUMP_LEARNER_ALLOC 1
#define PUMP_LEARNER_FREE 2
#define PUMP_LEARNER_LOST 3

struct pump_learner_step {
  uint64_t key;                 /* OPERATION: as in struct pump_predicted */
  uint64_t signature;           /* OPERATION */
  uint64_t length_bytes;        /* ALLOC */
  uint32_t slot, generation;    /* ALLOC, FREE */
  uint16_t what;                /* PUMP_LEARNER_OPERATION and so on */
  uint16_t stream, kind, count; /* OPERATION */
};

/* The beginning of what a learner was told. */
struct pump_learner_story {
  const struct pump_learner_step *steps;
  const struct pump_access *accesses;
  uint32_t step_count, access_count, operations;
};

#define PUMP_LEARNER_STEPS 65536 /* of a story */
#define PUMP_LEARNER_STORY_OPERATIONS 32768
#define PUMP_LEARNER_STORY_ACCESSES 262144

struct pump_learner_report {
  uint64_t seen;      /* operations; also the number of the next one */
  uint64_t confirmed; /* of them, as pump_learner_see returned */
  uint64_t deviated;
  uint64_t trusted;         /* of the confirmed: were predicted with confidence */
  uint64_t misled;          /* of the deviated: something else was, with confidence */
  uint64_t accesses_right;  /* accesses of confirmed operations that lay where predicted */
  uint64_t accesses_missed; /* ... that lay elsewhere: predicted by address, or missing */
  uint64_t lost;            /* times that operations were lost */
  uint64_t period;          /* operations since the one that the newest repeats; 0: none.
                               In a recalled story: the longest one that it repeated */
  uint64_t iterations;      /* whole ones seen */
  uint64_t position;        /* operations since the present iteration began */
  uint64_t epoch;           /* raised each time that a prediction became void */
  uint32_t kind;            /* of the last whole iteration: equal ones have equal numbers */
  uint32_t kinds;           /* distinguished so far */
  double confidence;        /* share of operations predicted with confidence, lately */
};

/* Remembers `capacity` operations (a power of two from 2^8 to 2^20) with eight times as
 * many accesses. NULL when memory is short or the capacity makes no sense. */
struct pump_learner *pump_learner_new(uint32_t capacity);
void pump_learner_delete(struct pump_learner *learner);

/* ---- what is reported ---- */

/* What launches with this signature have in common with those that differ in scalar
 * parameters only (a step count, a seed): the function's identity, grid and block. To be
 * reported before the first of them (PARAMS); may be repeated. */
void pump_learner_shape(struct pump_learner *learner, uint64_t signature, uint64_t identity,
                        const uint32_t grid[3], const uint32_t block[3]);

/* Learns the next operation that was issued. Returns PUMP_LEARNER_*. */
int pump_learner_see(struct pump_learner *learner,
                     const struct pump_learner_operation *operation);

/* A range appeared, or is gone. Ranges that were never reported are taken for
 * persistent. */
void pump_learner_alloc(struct pump_learner *learner, uint32_t slot, uint32_t generation,
                        uint64_t length_bytes);
void pump_learner_free(struct pump_learner *learner, uint32_t slot, uint32_t generation);

/* Operations were lost here: what follows does not continue what was seen. */
void pump_learner_lost(struct pump_learner *learner);

/* ---- from one run of a program to the next ---- */

/* Keeps the beginning of what it is told from now on, up to the bounds above. Returns 0, or
 * -ENOMEM. */
int pump_learner_keep(struct pump_learner *learner);

/* What was kept; it belongs to the learner, until its next call. */
void pump_learner_kept(const struct pump_learner *learner,
                       struct pump_learner_story *story);

/* Tells a learner that was told nothing yet what was kept in an earlier run, as its past.
 * Ranges of that run are gone; one of the same slot, generation and length is the
 * successor. The story may hold anything: what makes no sense is passed over. */
void pump_learner_recall(struct pump_learner *learner,
                         const struct pump_learner_story *story);

/* Tells it what another one was told and has kept, and takes that over. */
void pump_learner_take_over(struct pump_learner *learner, struct pump_learner *from);

/* ---- what is predicted ---- */

/* How many operations from here on are predicted with confidence, at most `most`. 0:
 * nothing is. They end before a place where the program went different ways lately, and
 * may be more than a period. Costs some 5 ns for each that had not been counted. */
uint32_t pump_learner_ahead(struct pump_learner *learner, uint32_t most);

/* The operation that is expected after `index` others (0: the next one), with accesses
 * where they will be today. Cheapest in ascending order. Returns 0, or -ENOENT
 * when nothing is predicted. pump_learner_ahead returns how far predictions are trusted. */
int pump_learner_next(struct pump_learner *learner, uint32_t index,
                      struct pump_predicted *predicted);

void pump_learner_report(const struct pump_learner *learner,
                         struct pump_learner_report *report);

/* cffi: end */

#endif
