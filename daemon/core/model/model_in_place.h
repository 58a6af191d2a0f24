/* model_in_place.h - ranges that kernels read on the host instead of migrating them. */
#ifndef PUMP_MODEL_IN_PLACE_H
#define PUMP_MODEL_IN_PLACE_H

#include "model_window.h"

/* Newest operations that lack much of a range. The launch queue holds fewer [guessed]. */
#define IN_PLACE_OPS 2048u
#define IN_PLACE_KNOWN 256u /* remembered functions [guessed] */

struct in_place {
  uint32_t mode;     /* PUMP_IN_PLACE_* */
  uint32_t changing; /* 1 + the slot whose advice changes; 0: none. One at a time */
  uint32_t ranges;   /* ranges that are read in place */
  uint32_t on_trial; /* those among them that are on trial */
  uint64_t bytes, bytes_peak; /* their bytes, and the most so far */
  uint64_t begun_ns;          /* when the first operation was read; 0: none */
  uint64_t trials_ns;         /* estimated cost of all trials, and measured losses */
  struct in_place_op {
    uint64_t seq, function;
    uint32_t slot, generation; /* of the range of which it lacks most when issued */
    struct model_run run;      /* blocks of that range that it reaches */
    uint64_t migrate_ns;       /* least time in which what it lacked when issued arrives */
    uint64_t elapsed_ns;       /* 0: not measured yet */
    uint64_t seen_ns;          /* when its end was seen */
    bool retired;
  } ops[IN_PLACE_OPS];
  struct in_place_known {
    uint64_t function;
    bool dense;            /* its trial was slower than migration */
  } known[IN_PLACE_KNOWN]; /* newest functions with a verdict */
  uint32_t known_count;
  int64_t
      block_us[PUMP_MAX_DEVICES]; /* least time per arriving block, us << 8; 0: unknown */
};

/* Returns whether kernels read the run's blocks in place, so that they are not needed. */
bool model_is_in_place(const struct pump_model *m, const struct model_run *run);
/* Notes the range of which an issued operation lacks most. */
void model_in_place_issued(struct pump_model *m, const struct pump_operation *issued,
                           const struct model_run *runs);
/* Notes that the operation has executed, and may ask for a range to be read in place. */
void model_in_place_retired(struct pump_model *m, uint64_t seq);
/* Judges reads in place by an operation's time. `seen_ns`: when its end was seen. */
void model_in_place_timed(struct pump_model *m, uint64_t seq, uint64_t elapsed_ns,
                          uint64_t seen_ns);
/* Returns the next blocks of the device whose advice must change, and marks them as asked:
 * their number, or 0. At most `most` blocks. */
int32_t model_in_place_take(struct pump_model *m, uint32_t device, int32_t most,
                            uint32_t *slot, int32_t *first_block);
/* Returns blocks that no executor has taken; the last taken ones first. */
void model_in_place_put_back(struct pump_model *m, uint32_t slot, int32_t blocks);
/* Returns the advice that a transfer of the range's blocks carries: PUMP_ADVICE_*. */
uint32_t model_in_place_advice(const struct pump_model *m, uint32_t slot);
/* Notes an executor's answer for blocks of a live range. */
void model_in_place_answered(struct pump_model *m, uint32_t slot, int32_t blocks,
                             bool done);
/* Notes that the program's allocator has freed memory of the range, whose next use may be
 * another one. */
void model_in_place_freed(struct pump_model *m, uint32_t slot);
/* Forgets a range that is removed. */
void model_in_place_gone(struct pump_model *m, uint32_t slot);

#endif
