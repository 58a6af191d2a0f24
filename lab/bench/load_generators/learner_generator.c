/* learner_generator.c - feeds packed steps to a learner and records its results and CPU
 * time.
 *
 * Not part of pump: the suite `learner` compiles it with the library.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "learner.h"

/* cffi: begin */

#define FEED_OPERATION 0
#define FEED_SHAPE 1
#define FEED_ALLOC 2
#define FEED_FREE 3
#define FEED_LOST 4

struct feed_step {
  uint64_t function, signature;
  uint64_t first_access; /* OPERATION */
  uint64_t length_bytes; /* ALLOC */
  uint32_t what;         /* FEED_* */
  uint32_t slot, generation;
  uint32_t stream, kind, count;
  uint32_t grid[3], block[3]; /* SHAPE */
};

/* Feeds steps [begin, end). Sets `said[i]` to the result of the i-th operation:
 * PUMP_LEARNER_*, plus 16 if the learner had predicted an operation with confidence. A
 * NULL `said` records nothing. After every `asked` operations, asks for that many
 * predictions; 0: never. Returns the CPU time in nanoseconds. */
uint64_t feed(struct pump_learner *learner, const struct feed_step *steps, uint64_t begin,
              uint64_t end, const struct pump_access *accesses, uint32_t asked,
              uint8_t *said);

/* cffi: end */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int see(struct pump_learner *learner, const struct feed_step *step,
               const struct pump_access *accesses) {
  struct pump_operation operation = {.function = step->function,
                                     .signature = step->signature,
                                     .stream = step->stream,
                                     .kind = step->kind,
                                     .count = step->count,
                                     .accesses = &accesses[step->first_access]};
  return pump_learner_see(learner, &operation);
}

__attribute__((visibility("default"))) uint64_t feed(struct pump_learner *learner,
                                                     const struct feed_step *steps,
                                                     uint64_t begin, uint64_t end,
                                                     const struct pump_access *accesses,
                                                     uint32_t asked, uint8_t *said) {
  uint64_t began_ns = now_ns();
  uint32_t since = 0;
  for (uint64_t i = begin; i < end; i++) {
    const struct feed_step *step = &steps[i];
    if (step->what == FEED_SHAPE) {
      pump_learner_shape(learner, step->signature, step->function, step->grid, step->block);
    } else if (step->what == FEED_ALLOC) {
      pump_learner_alloc(learner, step->slot, step->generation, step->length_bytes);
    } else if (step->what == FEED_FREE) {
      pump_learner_free(learner, step->slot, step->generation);
    } else if (step->what == FEED_LOST) {
      pump_learner_lost(learner);
    } else {
      uint32_t offered = said != NULL ? pump_learner_ahead(learner, 1) : 0;
      int result = see(learner, step, accesses);
      if (said != NULL) *said++ = (uint8_t)(result + 16 * (offered != 0));
      if (asked == 0 || ++since < asked) continue;
      since = 0;
      struct pump_predicted predicted;
      uint32_t known = pump_learner_ahead(learner, asked);
      for (uint32_t k = 0; k < known; k++) pump_learner_next(learner, k, &predicted);
    }
  }
  return now_ns() - began_ns;
}
