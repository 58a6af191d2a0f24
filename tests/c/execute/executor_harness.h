/* executor_harness.h - a fake driver and a test worker around the shim's executors.
 *
 * The sources are linked directly (no preload), so that sanitizers can watch. The
 * fake driver keeps the books that the tests are about: which memory is freed,
 * which context is destroyed, which context each stream and event belongs to; a call that
 * the real driver could not survive is a failed check. Everything the hooks would define is
 * defined here in its simplest form.
 */
#ifndef EXECUTOR_HARNESS_H
#define EXECUTOR_HARNESS_H

#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "harness_timed.h"
#include "shim/execute/executors.h"
#include "shim/life/life.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"
#include "shim/progress/markers.h"

/* Waits for a condition that other threads bring about; fails after 10 s. */
#define EVENTUALLY(condition)                                                              \
  do {                                                                                     \
    uint64_t until_ = pump_now_ns() + 10000000000u;                                        \
    while (!(condition)) {                                                                 \
      if (pump_now_ns() > until_) CHECK(condition);                                        \
      harness_sleep_us(200);                                                               \
    }                                                                                      \
  } while (0)

#define SCENARIO(name)                                                                     \
  static void run_##name(void);                                                            \
  __attribute__((constructor)) static void register_##name(void) {                         \
    harness_register(#name, run_##name);                                                   \
  }                                                                                        \
  static void run_##name(void)

void harness_register(const char *name, void (*run)(void));
void harness_sleep_us(uint64_t us);
/* All threads of device 0 have started, made what they make in advance, and wait. */
void harness_wait_until_idle(void);
uint32_t harness_random(void);
/* From this call on the system call fails with `error`, in this thread and those it starts.
 */
void harness_refuse(long call, uint32_t error);

/* ---- the fake driver --------------------------------------------------------- */

/* A record waits while a prefetch to the host is in the driver: in its context, in any. */
enum { FAKE_LOCK_NONE, FAKE_LOCK_CONTEXT, FAKE_LOCK_ALL };
#define FAKE_CONTEXT_BYTES (300u << 20)

/* What it does next; atomic words that tests set. */
extern struct fake {
  uint32_t prefetch_us;    /* a prefetch takes up to twice this long, at random */
  uint32_t prefetch_error; /* CUresult of every prefetch */
  uint32_t query_error;    /* CUresult of every cuEventQuery */
  uint32_t create_error;   /* CUresult of every creation of a stream and cuEventCreate */
  int greatest_priority;   /* of streams; 0: there is one */
  int last_priority;       /* of the stream made last */
  uint32_t capturing;      /* a stream is being captured */
  uint32_t hold;           /* 1: prefetches wait until it is 0 again */
  uint32_t slow_clock_us;  /* reading the clock takes a marker thread that long */
  uint32_t late;           /* 1: prefetches return, but arrive only when it is 0 again */
  uint32_t running;        /* prefetches in the driver at present */
  uint32_t running_peak;
  uint32_t prefetches; /* ever */
  uint32_t records;    /* events recorded on streams of the program */
  uint32_t events_alive, streams_alive;
  uint32_t not_relaxed; /* prefetches or records outside RELAXED capture mode */
  uint64_t to_gpu_bytes, to_host_bytes;
  uint64_t flight_bytes[PUMP_DIRECTIONS]; /* called for and not known to have arrived */
  uint64_t flight_bytes_peak[PUMP_DIRECTIONS];
  uint32_t busy_stream;      /* prefetches on a stream that had one in flight */
  uint64_t stopped_clock_ns; /* not 0: what every thread's clock shows */
  int node;                  /* of the card, plus 1; 0: the driver does not say */
  uint32_t lock;             /* FAKE_LOCK_*: what a prefetch to the host keeps waiting */
  uint32_t contexts_refused; /* 1: none can be made */
  CUcontext host_context;    /* of the newest prefetch to the host */
  uint64_t own_bytes;        /* of the device, that contexts made by us were said to take */
} fake;

/* A stream of the program: operations are issued and executed by the test. */
struct fake_stream {
  CUcontext context;
  bool executor; /* of the shim: events on it are complete unless fake.late */
  uint64_t issued, executed;
  uint64_t flight_address, flight_bytes; /* executor: the slice in flight */
  uint32_t flight_direction;
};

/* For scenarios that take operations' times: set in pump_real and pump_present. */
CUresult fake_event_elapsed(float *elapsed_ms, CUevent begin, CUevent end);

CUcontext fake_context_create(CUdevice device);
/* Fails the test if anything of the context is alive or in the driver. */
void fake_context_destroy(CUcontext context);
CUstream fake_stream_create(CUcontext context);
void fake_execute(CUstream stream, uint64_t operations);

/* ---- ranges, as the hooks would keep them ------------------------------------- */

/* A live converted range of `blocks` blocks; its slot. */
uint32_t harness_allocate(uint32_t device, uint64_t blocks);
/* Generation changes, pump_slot_wait, then the memory is freed in the driver. */
void harness_free(uint32_t slot);
uint32_t harness_generation(uint32_t slot);
extern uint64_t harness_least, harness_most;  /* budgets that device 0 has adopted */
extern uint64_t harness_need, harness_others; /* of device 0; what others need there */
extern uint8_t harness_card;                  /* the last byte of its UUID */
/* A command for blocks of it that nothing stands against. */
struct pump_command harness_slice(uint32_t slot, uint64_t block, uint64_t blocks);

/* ---- the worker's side --------------------------------------------------------- */

extern struct pump_shm *worker_shm; /* its own mapping; the region itself at first */
bool worker_submit(uint32_t device, uint32_t direction, struct pump_command command);
/* Result of the oldest unreaped command of the ring; waits for it, then frees it. */
uint32_t worker_reap(uint32_t device, uint32_t direction);
/* The same without waiting: -1 when it is not done yet. */
int worker_try_reap(uint32_t device, uint32_t direction, uint64_t *ticket);
void worker_forget(void); /* a new mapping: start at the beginning of its rings */

#endif
