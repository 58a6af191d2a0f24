/* executor_harness.h - a fake driver and a test worker around the shim's executors.
 *
 * The sources are linked directly (no preload), so that sanitizers can check them. The
 * fake driver tracks freed memory, destroyed contexts, and the context of each stream and
 * event. A call that the real driver could not survive is a failed check. Everything that
 * the hooks would define is defined here in its simplest form.
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

/* Waits for a condition caused by other threads; fails after 10 s. */
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
/* Waits until all threads of device 0 have started, prepared their objects, and wait. */
void harness_wait_until_idle(void);
uint32_t harness_random(void);
/* Makes the system call fail with `error` in this thread and in threads that it starts. */
void harness_refuse(long call, uint32_t error);

/* ---- the fake driver --------------------------------------------------------- */

/* Records that wait for a running prefetch to the host: none, in its context, or all. */
enum { FAKE_LOCK_NONE, FAKE_LOCK_CONTEXT, FAKE_LOCK_ALL };
#define FAKE_CONTEXT_BYTES (300u << 20)

/* The fake driver's behavior and counters; tests set the atomic words. */
extern struct fake {
  uint32_t prefetch_us;    /* a prefetch takes up to twice this long, at random */
  uint32_t prefetch_error; /* CUresult of every prefetch */
  uint32_t query_error;    /* CUresult of every cuEventQuery */
  uint32_t create_error;   /* CUresult of every creation of a stream and cuEventCreate */
  int greatest_priority;   /* greatest priority of streams; 0: there is only one */
  int last_priority;       /* priority of the newest stream */
  uint32_t capturing;      /* a stream is being captured */
  uint32_t hold;           /* 1: prefetches wait until it is 0 again */
  uint32_t slow_clock_us;  /* time that a marker thread needs to read the clock */
  uint32_t late;           /* 1: prefetches return, but arrive only when it is 0 again */
  uint32_t running;        /* prefetches that are now in the driver */
  uint32_t running_peak;
  uint32_t prefetches; /* total number of prefetches */
  uint32_t records;    /* events recorded on streams of the program */
  uint32_t events_alive, streams_alive;
  uint32_t not_relaxed; /* prefetches or records outside RELAXED capture mode */
  uint64_t to_gpu_bytes, to_host_bytes;
  uint64_t flight_bytes[PUMP_DIRECTIONS]; /* requested, not known to have arrived */
  uint64_t flight_bytes_peak[PUMP_DIRECTIONS];
  uint32_t busy_stream;      /* prefetches on a stream that had one in flight */
  uint64_t stopped_clock_ns; /* not 0: what every thread's clock shows */
  int node;                  /* the GPU's NUMA node + 1; 0: the driver reports none */
  uint32_t lock;             /* FAKE_LOCK_*: which records a prefetch to the host blocks */
  uint32_t contexts_refused; /* 1: no context can be created */
  CUcontext host_context;    /* context of the newest prefetch to the host */
  uint64_t own_bytes;        /* device memory attributed to the shim's own contexts */
} fake;

/* A stream of the program: operations are issued and executed by the test. */
struct fake_stream {
  CUcontext context;
  bool executor; /* a stream of the shim: its events are complete unless fake.late */
  uint64_t issued, executed;
  uint64_t flight_address, flight_bytes; /* executor: the slice in flight */
  uint32_t flight_direction;
};

/* For scenarios that use operations' times: set in pump_real and pump_present. */
CUresult fake_event_elapsed(float *elapsed_ms, CUevent begin, CUevent end);

CUcontext fake_context_create(CUdevice device);
/* Fails the test if anything of the context is alive or in the driver. */
void fake_context_destroy(CUcontext context);
CUstream fake_stream_create(CUcontext context);
void fake_execute(CUstream stream, uint64_t operations);

/* ---- ranges, as the hooks would keep them ------------------------------------- */

/* Creates a live converted range of `blocks` blocks; returns its slot. */
uint32_t harness_allocate(uint32_t device, uint64_t blocks);
/* Changes the generation, calls pump_slot_wait, then frees the memory in the driver. */
void harness_free(uint32_t slot);
uint32_t harness_generation(uint32_t slot);
extern uint64_t harness_least, harness_most;  /* budgets that device 0 has adopted */
extern uint64_t harness_need, harness_others; /* needs on device 0: ours, others' */
extern uint8_t harness_card;                  /* last byte of the GPU's UUID */
/* Returns a valid command for blocks of the range. */
struct pump_command harness_slice(uint32_t slot, uint64_t block, uint64_t blocks);

/* ---- the worker's side --------------------------------------------------------- */

extern struct pump_shm *worker_shm; /* its own mapping; initially the region itself */
/* Puts the command into the schedule as an entry without conditions; wakes an executor. */
bool worker_submit(uint32_t device, uint32_t direction, struct pump_command command);
/* Like worker_submit, but wakes no executor. */
bool worker_put(uint32_t device, uint32_t direction, struct pump_command command);
/* Waits for the end of the oldest command, forgets it and returns its result. */
uint32_t worker_reap(uint32_t device, uint32_t direction);
/* Returns the result without waiting; -1 if the command has not ended. */
int worker_try_reap(uint32_t device, uint32_t direction, uint64_t *ticket);
void worker_forget(void); /* for a new mapping: forgets all commands */

#endif
