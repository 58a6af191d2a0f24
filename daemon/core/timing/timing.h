/* timing.h - own times of operations, and the time that a run lost to memory.
 *
 * DESIGN. The shim measures the time of some operations (PUMP_EVENT_TIMED). If the model
 * knows that all blocks of such an operation were on the GPU before it began, the sample
 * is clean and shows the operation's own time. Operations with one key (kernel, grid,
 * block of threads, bytes reached) have the same own time. The lower end of their samples
 * counts, because an unseen wait can only make them longer. Next to other processes the
 * own time is longer by a factor, because waits for their kernels are not lost
 * (timing_share.c).
 *
 * Operations of some kinds find blocks absent each time they are timed. The cost of a
 * block that a fault fetches is learned from kinds with both sorts of samples, and
 * subtracted. A shortest time that several samples share is an own time, too. Otherwise
 * such a kind is assumed to be as fast per byte as the fastest known one.
 *
 * With these times the run is replayed without waits for memory (timing_replay.c): the
 * program's issues and waits in order. The lost time is the real run's time minus the
 * replay's. The replay also uses the shortest and the longest times that the samples
 * allow. The newest operations are replayed for each answer, because later samples
 * improve their times.
 *
 * Issuing threads may wait for a CPU core, mostly because pump's own threads and the
 * driver's calls use the cores. The worker's readings of these waits (timing_delayed)
 * delay issues, once a block has been absent. Other programs may have used the cores,
 * too: at least the job's own share of the waits is lost.
 *
 * Time in which the process was stopped is not lost: the replay's clock stops, too.
 *
 * No I/O, no clock. Times are CLOCK_MONOTONIC in ns.
 */
#ifndef PUMP_TIMING_H
#define PUMP_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/operation.h"
#include "pump_abi.h"

/* Entries of tables: the newest are kept, and the oldest are forgotten. Each answer replays
 * half of the remembered operations [guessed]. */
#define TIMING_OPS 32768u    /* operations that timing remembers; a power of two */
#define TIMING_WAITS 4096u   /* remembered waits of the thread; a power of two */
#define TIMING_SHAPES 16384u /* shapes of launches, by signature; a power of two */
#define TIMING_KEYS 8192u    /* own times, by key; a power of two */
#define TIMING_SAMPLES 16u   /* newest samples of one key */
#define TIMING_FAULTS 64u    /* newest samples of the cost of a faulted block */
#define TIMING_STOPS 32u     /* newest stops of the process, by a signal or a debugger */
#define TIMING_DELAYED 256u  /* newest readings of the waits for CPU cores */
/* Maximum number of other processes that count [guessed]. */
#define TIMING_NEIGHBOURS 63u
/* Streams have a bit each in a word; further ones share number 0 [derived]. */
#define TIMING_STREAMS 64u
/* Bound of all times: sums of a hostile client's times do not overflow [derived]. */
#define TIMING_END_NS (1ll << 60)

/* An own time in ns: the likely, the least and the greatest value. */
enum { TIMING_LIKELY, TIMING_LEAST, TIMING_MOST, TIMING_WAYS };
/* The replay runs once per value, and once more with likely times and no lost wait for a
 * CPU core. */
enum { TIMING_STALLS = TIMING_WAYS, TIMING_RUNS };

static inline uint64_t timing_at_most(uint64_t value, uint64_t most) {
  return value < most ? value : most;
}

struct timing_op {
  uint64_t seq, key, shape;
  uint64_t pair; /* hash of this operation's key and the previous one's */
  uint64_t issued_ns;
  uint64_t arrived_ns; /* when the last of its blocks arrived; 0: long ago */
  uint64_t seen_ns;    /* when its end was seen; 0: it was not timed */
  uint64_t elapsed_ns;
  uint64_t bytes; /* bytes that it reaches; 0: none, or unknown */
  uint32_t stream;
  uint32_t faulted; /* blocks that faults brought from the host */
  bool retired;
  bool clean;    /* no block came by fault or was in flight */
  bool faulting; /* some blocks came by fault, but no block was in flight */
  bool ready;    /* all blocks had certainly arrived before it was issued */
  bool deep;     /* many unexecuted operations preceded it when it was issued */
  bool inside;   /* in a graph, and not its last operation: has no time of its own */
};

/* State of an operation's blocks when it executed. */
struct timing_met {
  uint64_t arrived_ns; /* when the last of its blocks arrived */
  uint32_t missed;     /* blocks that were absent or in flight */
  uint32_t doubted;    /* blocks that the driver may have evicted */
  uint32_t faulted;    /* blocks that faults brought from the host */
  bool known;          /* all blocks are known and were used before */
};

struct timing_wait {
  uint64_t seq; /* newest operation issued before the wait */
  uint64_t began_ns, ended_ns;
  uint32_t stream; /* 0: all streams */
};

/* Sums over clean samples next to other processes: own times, times taken (bounded by
 * stretch), and times bounded by sample (the minimum). */
struct timing_share {
  uint32_t count;     /* samples in the current stretch */
  uint32_t stretches; /* stretches in the sums */
  uint64_t own_ns, taken_ns, least_ns;
  uint64_t sum_own_ns, sum_taken_ns, sum_least_ns;
};

struct timing_own {
  uint64_t key; /* 0: unused */
  uint32_t count;
  uint32_t near, beyond; /* samples near the shortest time; slightly longer samples */
  uint32_t near_least, near_most; /* fewest, most faulted blocks of a `near` sample */
  uint64_t shortest_ns;           /* shortest of all samples, clean or not; 0: none */
  uint64_t faulting_ns;     /* shortest of the samples with the fewest faulted blocks */
  uint32_t faulting_blocks; /* fewest faulted blocks of a sample; 0: none */
  uint64_t clean_ns[TIMING_SAMPLES];
};

/* A longer gap between two issues is a pause of the program: a thread keeps its core for
 * longer than this [measured: 0057]. */
#define TIMING_GAP_MOST_NS 500000

/* Newest gaps between the issues of two operations, by their keys. */
struct timing_pair {
  uint64_t key; /* 0: unused */
  uint32_t count;
  uint32_t gap_ns[TIMING_SAMPLES];
};

/* A reading: until `at_ns` the issuing threads had waited `sum_ns` for a CPU core. */
struct timing_delay {
  uint64_t at_ns, sum_ns;
};

/* Newest gaps between issues, and newest delays of waits, that show the usual ones
 * [guessed]. */
#define TIMING_GAPS 256u
#define TIMING_DELAYS 64u

/* The state of the replay; its arrays have one value per run. */
struct timing_replay {
  uint64_t seq, wait;           /* next operation, next wait */
  uint64_t begun_ns, at_ns;     /* first and newest time of the program */
  struct timing_delay read;     /* newest reading that the replay has reached */
  uint32_t reading;             /* number of the next reading */
  uint64_t claimed_ns;          /* waits for CPU cores that issues have claimed */
  uint64_t slowed_ns;           /* further time that issues took because of such waits */
  uint32_t moving;              /* further issues for which memory counts as moving */
  int64_t late_ns[TIMING_RUNS]; /* real time minus replayed time of the thread */
  int64_t lost_ns[TIMING_RUNS]; /* lost time at the newest known end */
  int64_t free_ns[TIMING_RUNS][TIMING_STREAMS]; /* end of the stream's execution */
  uint32_t gaps[TIMING_GAPS];                   /* ns between two issues without a wait */
  uint32_t delays[TIMING_DELAYS]; /* ns from the end of execution to the wait's end */
  uint32_t gap_count, delay_count;
  uint32_t ready_count; /* delays after `ready` operations; if any, only they count */
  uint64_t unready;     /* bit per stream: not `ready` operations since its last wait */
  uint32_t usual_gap_ns, usual_delay_ns;
  bool missing; /* unreported operations since the newest known end */
};

struct timing_stop {
  uint64_t began_ns, ended_ns;
};

struct pump_timing {
  struct timing_stop stops[TIMING_STOPS];
  struct timing_delay delayed[TIMING_DELAYED], delayed_first;
  uint32_t delayed_count;
  uint64_t delayed_ns;  /* newest reading of the waits for CPU cores */
  uint64_t waited_ns;   /* waits for the GPU since the newest reading */
  double delayed_share; /* least lost share of the waits for CPU cores */
  uint32_t stop_count;
  uint64_t stopped_ns;          /* sum of the dropped stops */
  uint64_t now_ns;              /* the caller's clock at its newest step */
  uint64_t first_seq, next_seq; /* bounds of the remembered operations */
  uint64_t wait_count;
  uint64_t graph_last, graph_key; /* last operation and key of the newest graph launch */
  uint32_t neighbours; /* maximum number of other processes that compute on the GPUs */
  bool left;           /* a block has left the GPU, so memory may cost time */
  uint64_t unknown;    /* number of operations whose operands are all unknown */
  uint32_t streams;    /* streams with a number */
  uint8_t number[PUMP_MAX_STREAMS]; /* by stream; 0: none */
  struct timing_replay replay, again;
  struct timing_op ops[TIMING_OPS];
  struct timing_wait waits[TIMING_WAITS];
  struct timing_own own[TIMING_KEYS];
  struct timing_pair pairs[TIMING_KEYS];
  uint64_t issued_ns, issued_key; /* newest issue or end of a wait, newest operation */
  struct timing_share share;
  uint32_t fault_ns[TIMING_FAULTS]; /* newest samples of the cost of a faulted block */
  uint32_t fault_count;
  uint64_t pace_ns, pace_bytes; /* time and bytes of the kind that is fastest per byte */
  struct timing_shape {
    uint64_t signature, shape;
  } shapes[TIMING_SHAPES];
};

static inline uint64_t timing_mix(uint64_t hash, uint64_t word) {
  __uint128_t product = (__uint128_t)(hash ^ word) * 0x9e3779b97f4a7c15u;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* ---- input (timing.c) ---- */

void timing_params(struct pump_timing *timing, uint64_t signature,
                   const struct pump_params *head);
/* Notes an issued operation. `depth`: operations that have not executed, with this one. */
void timing_issued(struct pump_timing *timing, const struct pump_operation *issued,
                   uint32_t depth);
void timing_graph(struct pump_timing *timing, uint64_t first, uint64_t count,
                  uint64_t executable);
void timing_retired(struct pump_timing *timing, uint64_t seq, const struct timing_met *met);
void timing_timed(struct pump_timing *timing, uint64_t seq, uint64_t elapsed_ns,
                  uint64_t seen_ns);
void timing_waited(struct pump_timing *timing, const struct timing_wait *wait);

/* ---- own times (timing_own.c) ---- */

/* Notes the gap between the issues of two operations. */
void timing_pair_gap(struct pump_timing *timing, uint64_t pair, uint64_t gap_ns);
/* Returns the program's own time between the two issues, in ns; -1: unknown, or so long
 * that most gaps may contain waits for CPU cores. */
int64_t timing_own_gap(const struct pump_timing *timing, uint64_t pair);

void timing_sample(struct pump_timing *timing, uint64_t key, const struct timing_op *op);
/* Fills `own_ns` with the likely, the least and the greatest own time. */
void timing_own_times(const struct pump_timing *timing, const struct timing_op *op,
                      int64_t *own_ns);

/* ---- sharing with other processes (timing_share.c) ---- */

/* Adds a clean sample: the operation's own time and the time that it took. */
void timing_share_sample(struct pump_timing *timing, uint64_t own_ns, uint64_t taken_ns);
/* Fills `own_ns` with the times next to other processes of an operation that takes
 * `alone_ns` otherwise. */
void timing_shared(const struct pump_timing *timing, int64_t alone_ns, int64_t *own_ns);

/* ---- the replay (timing_replay.c) ---- */

/* Notes that the process was stopped in this interval. */
void timing_stopped(struct pump_timing *timing, uint64_t began_ns, uint64_t ended_ns);
/* Notes that until `at_ns` the issuing threads have waited `sum_ns` in total for CPU
 * cores. */
void timing_delayed(struct pump_timing *timing, uint64_t at_ns, uint64_t sum_ns);

struct timing_op *timing_find(struct pump_timing *timing, uint64_t seq);
void timing_advance(struct pump_timing *timing, struct timing_replay *replay,
                    uint64_t until_seq);

#endif
