/* extents_generator.c - feeds packed events to a learner of extents and measures the time.
 *
 * Not part of pump: the suite `extents` compiles it with the library. Each launch is
 * timed separately, because the suite selects launches by size. The cost of reading the
 * clock is measured and subtracted.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "extents.h"

/* cffi: begin */

#define FEED_SEGMENT 0
#define FEED_GONE 1
#define FEED_NAME 2
#define FEED_BYTES 3
#define FEED_LAUNCH 4

struct feed_event {
  uint32_t kind;
  uint32_t slot;
  uint32_t generation;
  uint32_t count; /* LAUNCH: number of pointers */
  uint64_t function;
  uint64_t signature;
  uint64_t offset_bytes; /* SEGMENT: base address */
  uint64_t length_bytes;
  uint64_t pointer_begin; /* index of the first pointer */
  uint64_t payload_begin; /* NAME: the name; LAUNCH: parameters, if any */
  uint32_t payload_bytes;
  uint32_t grid[3];
  uint32_t threads;
  uint32_t reserved;
};

/* Feeds events [begin, end). Sets time_ns[i] to the time of the i-th launch, including
 * its parameters; a NULL `time_ns` measures nothing. Returns the number of launches. */
uint32_t feed(struct pump_extents *learner, const struct feed_event *events, uint32_t begin,
              uint32_t end, const struct pump_pointer *pointers, const uint8_t *payload,
              uint32_t *time_ns);

/* cffi: end */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t clock_cost_ns(void) {
  uint64_t begin = now_ns();
  for (int i = 0; i < 1000; i++) now_ns();
  return (now_ns() - begin) / 1001;
}

static void launch(struct pump_extents *learner, const struct feed_event *event,
                   const struct pump_pointer *pointers, const uint8_t *payload) {
  uint64_t length_bytes[1024];
  uint32_t block[3] = {event->threads, 1, 1};
  uint32_t count = event->count < 1024 ? event->count : 1024;
  if (event->payload_bytes != 0)
    pump_extents_params(learner, event->function, event->signature, event->grid, block,
                        payload + event->payload_begin, event->payload_bytes);
  pump_extents_kernel(learner, event->function, event->signature, count,
                      pointers + event->pointer_begin, length_bytes);
}

__attribute__((visibility("default"))) uint32_t feed(struct pump_extents *learner,
                                                     const struct feed_event *events,
                                                     uint32_t begin, uint32_t end,
                                                     const struct pump_pointer *pointers,
                                                     const uint8_t *payload,
                                                     uint32_t *time_ns) {
  uint64_t clock_ns = clock_cost_ns();
  uint32_t launches = 0;
  for (uint32_t i = begin; i < end; i++) {
    const struct feed_event *event = &events[i];
    if (event->kind == FEED_SEGMENT) {
      pump_extents_segment(learner, event->slot, event->generation, event->offset_bytes,
                           event->length_bytes);
    } else if (event->kind == FEED_GONE) {
      pump_extents_segment_gone(learner, event->slot);
    } else if (event->kind == FEED_NAME) {
      pump_extents_name(learner, event->function,
                        (const char *)payload + event->payload_begin, event->payload_bytes);
    } else if (event->kind == FEED_BYTES) {
      pump_extents_bytes(learner, event->slot, event->generation, event->offset_bytes,
                         event->length_bytes);
    } else if (time_ns == NULL) {
      launch(learner, event, pointers, payload);
      launches++;
    } else {
      uint64_t start_ns = now_ns();
      launch(learner, event, pointers, payload);
      uint64_t took_ns = now_ns() - start_ns;
      time_ns[launches++] = (uint32_t)(took_ns > clock_ns ? took_ns - clock_ns : 0);
    }
  }
  return launches;
}
