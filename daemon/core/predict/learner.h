/* learner.h - learns the sequence of operations that a program repeats, and predicts the
 * next operations and the parts of ranges that they will reach.
 *
 * A prediction is a match: a position in the history that the program is believed to
 * repeat. Each operation either confirms the match, which then advances by one, or ends
 * it. Then the learner searches for the position with the longest common context. So it
 * needs no knowledge of iterations, and no prediction outlives its first mistake.
 * learner.c describes the rule, docs/learner.md its abilities and limits.
 *
 * The learner makes no system call, reads no clock and is deterministic. Its memory is
 * bounded: about 400 bytes per remembered operation, touched on demand. Not thread-safe.
 *
 * Words: an operation's number counts the operations that the learner has seen, from 0;
 * lost operations have none. An access is an extent and its range. An allocation is the
 * lifetime of a range (slot, generation).
 */
#ifndef PUMP_LEARNER_H
#define PUMP_LEARNER_H

#include "daemon/core/operation.h"

/* cffi: begin */

/* Results of pump_learner_see. */
#define PUMP_LEARNER_UNKNOWN 0   /* nothing was predicted */
#define PUMP_LEARNER_CONFIRMED 1 /* it was predicted */
#define PUMP_LEARNER_DEVIATED 2  /* another one was predicted; the prediction is void */

struct pump_learner;

/* Values of `missing` in struct pump_access. */
#define PUMP_LEARNER_NOT_ALLOCATED 1 /* its range does not exist yet */
#define PUMP_LEARNER_ASTRAY 2 /* it keeps reaching memory that nothing else predicts */

/* A predicted operation. `accesses` belongs to the learner and is valid until its next
 * call. */
struct pump_predicted {
  uint64_t number;    /* number of the earlier operation that it repeats */
  uint64_t signature; /* of that operation; parameters that change each iteration may
                         change it */
  uint64_t key;    /* equal at each repetition; for reported launches (pump_learner_shape)
                      the pump_shape of identity, grid and block */
  uint32_t stream; /* stream on which it is expected */
  uint32_t kind;
  uint32_t count;
  uint32_t missing; /* number of its accesses that are PUMP_LEARNER_NOT_ALLOCATED */
  const struct pump_access *accesses;
};

/* One input of the learner. The accesses of all operations are in a separate array, in
 * the order of the operations. */
#define PUMP_LEARNER_OPERATION 0
#define PUMP_LEARNER_ALLOC 1
#define PUMP_LEARNER_FREE 2
#define PUMP_LEARNER_LOST 3

struct pump_learner_step {
  uint64_t key;                 /* OPERATION: as in struct pump_predicted */
  uint64_t signature;           /* OPERATION */
  uint64_t length_bytes;        /* ALLOC */
  uint32_t slot, generation;    /* ALLOC, FREE */
  uint16_t what;                /* PUMP_LEARNER_OPERATION etc. */
  uint16_t stream, kind, count; /* OPERATION */
};

/* A log of the first inputs of a learner. */
struct pump_learner_log {
  const struct pump_learner_step *steps;
  const struct pump_access *accesses;
  uint32_t step_count, access_count, operations;
};

/* Most steps, operations and accesses of a log: a file of at most 10 MB [guessed]. */
#define PUMP_LEARNER_STEPS 65536
#define PUMP_LEARNER_LOG_OPERATIONS 32768
#define PUMP_LEARNER_LOG_ACCESSES 262144

struct pump_learner_report {
  uint64_t seen;      /* operations seen; also the number of the next one */
  uint64_t confirmed; /* operations for which pump_learner_see returned CONFIRMED */
  uint64_t deviated;
  uint64_t trusted;         /* confirmed operations that were predicted with confidence */
  uint64_t misled;          /* deviations from confident predictions */
  uint64_t accesses_right;  /* accesses of confirmed operations at predicted addresses */
  uint64_t accesses_missed; /* accesses of confirmed operations at other addresses, or
                               predicted as missing */
  uint64_t lost;            /* times that operations were lost */
  uint64_t period;   /* distance to the operation that the newest one repeats; 0: none. In a
                        recalled log: the longest period that it repeated */
  uint64_t epoch;    /* increased when a prediction becomes void */
  double confidence; /* recent share of operations that were predicted with confidence */
};

/* Creates a learner for `capacity` operations (a power of two from 2^8 to 2^20) and eight
 * times as many accesses. Returns NULL if memory is short or the capacity is invalid. */
struct pump_learner *pump_learner_new(uint32_t capacity);
void pump_learner_delete(struct pump_learner *learner);

/* ---- input ---- */

/* Reports the function's identity, grid and block of launches with this signature. They
 * share them with launches that differ only in scalar parameters (a step count, a seed).
 * Call before the first such launch (PARAMS); may be repeated. */
void pump_learner_shape(struct pump_learner *learner, uint64_t signature, uint64_t identity,
                        const uint32_t grid[3], const uint32_t block[3]);

/* Learns the next issued operation, and copies its accesses. Returns PUMP_LEARNER_*. */
int pump_learner_see(struct pump_learner *learner, const struct pump_operation *operation);

/* Reports a new range. Ranges that are never reported count as persistent. */
void pump_learner_alloc(struct pump_learner *learner, uint32_t slot, uint32_t generation,
                        uint64_t length_bytes);
/* Reports that a range is gone. */
void pump_learner_free(struct pump_learner *learner, uint32_t slot, uint32_t generation);

/* Reports lost operations: the next operation does not continue the history. */
void pump_learner_lost(struct pump_learner *learner);

/* ---- from one run of a program to the next ---- */

/* Starts to log the learner's input, up to the bounds above. Returns 0, or -ENOMEM. */
int pump_learner_keep(struct pump_learner *learner);

/* Returns the log, which belongs to the learner and is valid until its next call. */
void pump_learner_kept(const struct pump_learner *learner,
                       struct pump_learner_log *event_log);

/* Replays the log of an earlier run into a new learner, as its history. A new range is
 * the successor of that run's range with the same slot, generation and length. The log is
 * not trusted: the replay skips unknown steps, and stops at an invalid count. */
void pump_learner_recall(struct pump_learner *learner,
                         const struct pump_learner_log *event_log);

/* Replays the log of another learner and takes it over. */
void pump_learner_take_over(struct pump_learner *learner, struct pump_learner *from);

/* ---- predictions ---- */

/* Returns how many of the next operations are predicted with confidence, at most `most`.
 * They end before a branch point where the program recently varied, and may exceed a
 * period. Costs about 5 ns for each operation that was not counted before. */
uint32_t pump_learner_ahead(struct pump_learner *learner, uint32_t most);

/* Predicts the operation after `index` others (0: the next one), with accesses at current
 * addresses. Cheapest in ascending order. Returns 0, or -ENOENT without a prediction.
 * pump_learner_ahead returns how many predictions are trusted. */
int pump_learner_next(struct pump_learner *learner, uint32_t index,
                      struct pump_predicted *predicted);

void pump_learner_report(const struct pump_learner *learner,
                         struct pump_learner_report *report);

/* cffi: end */

#endif
