/* timing.h - how long operations take by themselves, and what a run lost to memory.
 *
 * DESIGN. The shim takes the time of some operations (PUMP_EVENT_TIMED). Where the model
 * knows that all blocks of such an operation were on the GPU before it began, that is the
 * operation's own time. Operations of one key, which is the kernel, its grid, its blocks of
 * threads and how much it reaches, have the same own time: the lower end of what was
 * measured, because a wait that the model did not see can only make it longer. Beside other
 * processes it is longer by a factor: waits for their kernels are not lost
 * (timing_share.c).
 *
 * Operations of some kinds find blocks away each time they are timed. What a block costs
 * that a fault brings is learned from kinds of which both are known, and subtracted. A
 * shortest time that several took is their own, too. Where neither tells, such a kind is
 * believed to be as fast, by the byte, as the fastest known one.
 *
 * With these times the run is repeated without waits for memory (timing_replay.c): the
 * program's issues and waits in their order. What the real run took longer is the time
 * lost. It is repeated with times that are as short, and as long, as the samples allow,
 * too. The newest operations are repeated anew for each answer, because samples that come
 * later tell their times as well.
 *
 * Threads that issue may wait for a processor, above all because pump's own threads and the
 * driver's calls take them. What the worker reads of that (timing_delayed) makes issues
 * late, from the first block on that is away. Other programs may have had the processors,
 * too: at the least, the job's share of them is lost.
 *
 * The time in which the process was stopped is not lost: the run is repeated on a clock
 * that stands still then.
 *
 * No I/O, no clock. Times are CLOCK_MONOTONIC in ns.
 */
#ifndef PUMP_TIMING_H
#define PUMP_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "pump_abi.h"

#define TIMING_OPS 32768u     /* of which an operation is known; a power of two */
#define TIMING_AGAIN 16384u   /* of these the newest, repeated anew for each answer */
#define TIMING_WAITS 4096u    /* of the program's thread; a power of two */
#define TIMING_SHAPES 16384u  /* of launches, by signature; a power of two */
#define TIMING_KEYS 8192u     /* of own times; a power of two */
#define TIMING_SAMPLES 16u    /* of one key: the newest */
#define TIMING_FAULTS 64u     /* samples of what a block by fault costs: the newest */
#define TIMING_NEIGHBOURS 63u /* that count */
#define TIMING_STOPS 32u      /* of the process, by a signal or a debugger: the newest */
#define TIMING_DELAYED 256u   /* readings of how long threads waited: the newest */
#define TIMING_STREAMS 64u    /* told apart; 0: none of them, and all that come later */
#define TIMING_END_NS (1ll << 60) /* no moment is later, whatever a client reports */

/* An own time, in ns: as it is believed, the least and the most that it may be. */
enum { TIMING_LIKELY, TIMING_LEAST, TIMING_MOST, TIMING_WAYS };
/* The run is repeated with each of them, and once more with likely ones where no wait for a
 * processor is lost. */
enum { TIMING_STALLS = TIMING_WAYS, TIMING_RUNS };

static inline uint64_t timing_at_most(uint64_t value, uint64_t most) {
  return value < most ? value : most;
}

struct timing_op {
  uint64_t seq, key, shape;
  uint64_t issued_ns;
  uint64_t arrived_ns; /* when the last of its blocks had come; 0: long ago */
  uint64_t seen_ns;    /* when its end was seen; 0: its time was not taken */
  uint64_t elapsed_ns;
  uint64_t bytes; /* that it reaches; 0: none, or unknown */
  uint32_t stream;
  uint32_t faulted; /* blocks of a `faulting` one that faults brought */
  bool retired;
  bool clean;    /* no block of it came by fault or was on its way */
  bool faulting; /* some came by fault, none was on its way */
  bool ready;    /* all had come for certain before it was issued */
  bool deep;     /* many operations were in front of it when it was issued */
  bool inside;   /* of a graph, and not its last: it takes no time of its own */
};

/* What an operation met as it executed. */
struct timing_met {
  uint64_t arrived_ns; /* when the last of its blocks had come */
  uint32_t missed;     /* blocks that were not there */
  uint32_t doubted;    /* blocks that the driver may have evicted */
  uint32_t faulted;    /* blocks that faults brought from the host */
  bool known;          /* all its blocks are, and none was used for the first time */
};

struct timing_wait {
  uint64_t seq; /* newest operation that had been issued */
  uint64_t began_ns, ended_ns;
  uint32_t stream; /* 0: all */
};

/* What clean samples took beside other processes: their own times, as much as counts of
 * what they took, and at the least. */
struct timing_share {
  uint32_t count;     /* samples of the stretch that is not over */
  uint32_t stretches; /* in the sums */
  uint64_t own_ns, taken_ns, least_ns;
  uint64_t sum_own_ns, sum_taken_ns, sum_least_ns;
};

struct timing_own {
  uint64_t key; /* 0: free */
  uint32_t count;
  uint32_t near, beyond;          /* samples of the shortest time, and of a little more */
  uint32_t near_least, near_most; /* blocks by fault of the former */
  uint64_t shortest_ns;           /* of all samples, clean or not; 0: there is none */
  uint64_t faulting_ns;     /* the shortest of those with the fewest blocks by fault */
  uint32_t faulting_blocks; /* how many these were; 0: there is none */
  uint64_t clean_ns[TIMING_SAMPLES];
};

/* Up to then the threads that issue had waited so long for a processor. */
struct timing_delay {
  uint64_t at_ns, sum_ns;
};

/* How far the run without waits is behind, a value for each way. */
#define TIMING_GAPS 256u
#define TIMING_DELAYS 64u
struct timing_replay {
  uint64_t seq, wait;           /* next operation, next wait */
  uint64_t begun_ns, at_ns;     /* first and newest moment of the program */
  struct timing_delay read;     /* newest reading that it has come to */
  uint32_t reading;             /* number of the one behind it */
  uint64_t claimed_ns;          /* of waits for a processor: what an issue has had */
  int64_t late_ns[TIMING_RUNS]; /* of the program's thread: real time less this one's */
  int64_t lost_ns[TIMING_RUNS]; /* at the newest operation whose end is known */
  int64_t free_ns[TIMING_RUNS][TIMING_STREAMS]; /* when the stream has executed all */
  uint32_t gaps[TIMING_GAPS];     /* ns between two issues that did not wait */
  uint32_t delays[TIMING_DELAYS]; /* ns from an execution's end to the end of the wait */
  uint32_t gap_count, delay_count;
  uint32_t ready_count; /* of delays: if any, only those of waits for `ready` ones */
  uint64_t unready;     /* streams with others since the last wait for them, a bit each */
  uint32_t usual_gap_ns, usual_delay_ns;
  bool missing; /* operations were not reported, since the newest known end */
};

struct timing_stop {
  uint64_t began_ns, ended_ns;
};

struct pump_timing {
  struct timing_stop stops[TIMING_STOPS];
  struct timing_delay delayed[TIMING_DELAYED], delayed_first;
  uint32_t delayed_count;
  uint64_t delayed_ns;  /* as it was read last */
  uint64_t waited_ns;   /* since then, for the GPU */
  double delayed_share; /* of it, what is lost at the least */
  uint32_t stop_count;
  uint64_t stopped_ns;          /* by stops that are not kept */
  uint64_t now_ns;              /* the caller's clock, as of its newest step */
  uint64_t first_seq, next_seq; /* of the operations that are kept */
  uint64_t wait_count;
  uint64_t graph_last, graph_key; /* of the newest launch of a graph */
  uint32_t neighbours; /* other processes that may compute on the GPUs, at the most */
  bool left;           /* a block has been away from the GPU: memory may cost time */
  uint32_t streams;    /* that have a number */
  uint8_t number[PUMP_MAX_STREAMS]; /* of a stream; 0: none yet */
  struct timing_replay replay, again;
  struct timing_op ops[TIMING_OPS];
  struct timing_wait waits[TIMING_WAITS];
  struct timing_own own[TIMING_KEYS];
  struct timing_share share;
  uint32_t fault_ns[TIMING_FAULTS]; /* what a block by fault cost, the newest */
  uint32_t fault_count;
  uint64_t pace_ns, pace_bytes; /* of the known kind that is fastest by the byte */
  struct timing_shape {
    uint64_t signature, shape;
  } shapes[TIMING_SHAPES];
};

static inline uint64_t timing_mix(uint64_t hash, uint64_t word) {
  __uint128_t product = (__uint128_t)(hash ^ word) * 0x9e3779b97f4a7c15u;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* ---- what is reported (timing.c) ---- */

void timing_params(struct pump_timing *timing, uint64_t signature,
                   const struct pump_params *head);
/* `depth`: operations that were issued before and have not executed. */
void timing_issued(struct pump_timing *timing, const struct timing_op *op, uint16_t kind,
                   uint64_t signature, uint64_t bytes, uint32_t depth);
void timing_graph(struct pump_timing *timing, uint64_t first, uint64_t count,
                  uint64_t executable);
void timing_retired(struct pump_timing *timing, uint64_t seq, const struct timing_met *met);
void timing_timed(struct pump_timing *timing, uint64_t seq, uint64_t elapsed_ns,
                  uint64_t seen_ns);
void timing_waited(struct pump_timing *timing, const struct timing_wait *wait);

/* ---- own times (timing_own.c) ---- */

void timing_sample(struct pump_timing *timing, uint64_t key, const struct timing_op *op);
/* `own_ns`: for each way. */
void timing_own_times(const struct pump_timing *timing, const struct timing_op *op,
                      int64_t *own_ns);

/* ---- beside other processes (timing_share.c) ---- */

/* Of a clean sample: the operation's own time, and what it took. */
void timing_share_sample(struct pump_timing *timing, uint64_t own_ns, uint64_t taken_ns);
/* What takes `alone_ns` takes so long beside them, in each way. */
void timing_shared(const struct pump_timing *timing, int64_t alone_ns, int64_t *own_ns);

/* ---- the run without waits (timing_replay.c) ---- */

/* The process was stopped from then to then. */
void timing_stopped(struct pump_timing *timing, uint64_t began_ns, uint64_t ended_ns);
/* Up to then the threads that issue have waited `sum_ns` for a processor, in all. */
void timing_delayed(struct pump_timing *timing, uint64_t at_ns, uint64_t sum_ns);

struct timing_op *timing_find(struct pump_timing *timing, uint64_t seq);
void timing_advance(struct pump_timing *timing, struct timing_replay *replay,
                    uint64_t until_seq);

#endif
