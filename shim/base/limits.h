/* limits.h - bounds that several files of the shim use or that depend on each other, and
 * assertions of their relations.
 *
 * Bounds of a single file are in that file; bounds of the contract are in pump_abi.h.
 */
#ifndef PUMP_LIMITS_H
#define PUMP_LIMITS_H

#include "pump_ring.h"

/* ---- in the driver ---------------------------------------------------------- */

/* The most that one command or populate slice moves: a migration holds the process's mmap
 * lock, and a free waits for the slice in flight [measured: 0039]. */
#define PUMP_SLICE_BYTES (32u << 20)

/* The most that a device's executors have in flight in each direction, whatever the
 * worker asks for: a block in transit serves no kernel. Half of the budget applies if
 * that is less. A single slice may always go. The inward number is [measured: 0047], the
 * other one [guessed]. */
#define PUMP_IN_FLIGHT_BYTES (128u << 20)
#define PUMP_OUT_FLIGHT_BYTES (64u << 20)
/* Arrivals for predicted operations start only while less than this is in flight, so that
 * urgent commands need not wait. Enough to fill a link: the next starts when one ends
 * [measured: 0047]. */
#define PUMP_PREDICTED_BYTES (16u << 20)

/* Most threads of a device that move blocks to the GPU, and to the host
 * [measured: 0005]. */
#define PUMP_IN_THREADS_MOST 2
#define PUMP_OUT_THREADS_MOST 4
/* Slices that one inbound thread keeps in flight, each in its own stream. Kernels wait
 * for a block that the driver already moves, but fault on one that is still in our ring.
 * The second number applies if these streams share the program's priority. The first one
 * is [measured: 0038], the second [guessed]. */
#define PUMP_IN_LANES 8
#define PUMP_IN_LANES_SHARED 4

/* Bound of context numbers; a number is reused after its context ends [guessed]. */
#define PUMP_MAX_CONTEXTS 64

/* ---- markers ------------------------------------------------------------------ */

/* Markers per context: one for each operation in four full launch queues. Free markers
 * kept for a running program: one full launch queue [measured: 0004]. */
#define PUMP_MARKERS 4096
#define PUMP_MARKERS_AHEAD 1024
/* Numbers of markers [guessed]. */
#define PUMP_MARKERS_FEW 64    /* with fewer, one in sixteen operations gets one */
#define PUMP_MARKERS_TIMED 256 /* per context, with timing */
#define PUMP_MARKERS_GROWTH 64 /* made at once */
#define PUMP_MARKERS_FIRST 128 /* that a context has before its first record */

/* ---- sleeps of pump's own threads ------------------------------------------------ */

/* How often a marker thread polls; the interval doubles while nothing executes. A program
 * that continues within PUMP_LINGER_NS wakes no thread. A timed sleep overruns by at most
 * the slack [guessed]. */
#define PUMP_POLL_MIN_NS 50000u
#define PUMP_POLL_DORMANT_NS 1000000u /* while everything fits: only recordings need it */
#define PUMP_POLL_SLACK_NS 10000u
#define PUMP_LINGER_NS 5000000u
/* A mover with a slice in flight but no further work sleeps until a wake-up, so that a
 * new command need not wait for the slice. It checks the slice at least this often
 * [guessed]. */
#define PUMP_PEEK_NS 200000u
/* Longest sleep of a mover that waits for in-flight capacity (ROOM) or for work (IDLE),
 * because it may miss a wake-up [guessed]. */
#define PUMP_SPACE_NS 10000000u
#define PUMP_IDLE_NS 1000000000u

/* ---- the pool --------------------------------------------------------------------- */

/* Entries of tables [guessed]. */
#define POOL_ARENAS 64u
#define POOL_STREAMS 256u  /* per arena; the driver serves further streams */
#define POOL_EVENTS 512u   /* per stream: recorded and not complete */
#define POOL_DEAD_MOST 32u /* pieces in quarantine at once */
/* While only one stream is in use, an event is recorded after this many frees, or this
 * long after the previous event [guessed]. */
#define POOL_EVENT_FREES 16u
#define POOL_EVENT_NS 1000000u
/* Freed memory may be discarded after POOL_LONG_NS. The check runs every POOL_TICK_NS, or
 * sooner while dead memory is kept apart [guessed]. */
#define POOL_LONG_NS 30000000u
#define POOL_TICK_NS 3000000u
#define POOL_TICK_SOON_NS 500000u
/* A request waits POOL_WAITS times for POOL_WAIT_NS before memory is refused [guessed]. */
#define POOL_WAIT_NS 5000000u
#define POOL_WAITS 200u

/* Bound of the tracked managed variables of the program's code [guessed]. */
#define PUMP_VARIABLES 64u

/* ---- parameters of a launch --------------------------------------------------- */

/* Entries of tables [guessed]. */
#define PUMP_SCAN_WORDS_MOST 512 /* distinct parameter words that may be pointers */
#define PUMP_SCAN_BUCKETS 1024

/* ---- waits of a thread of the program, and of the exit ------------------------- */

/* Waits for a driver that may be stuck: of a free for its slices in flight, and of the end
 * of a context for the executors [guessed]. */
#define PUMP_FREE_WAIT_NS 5000000000u
#define PUMP_QUIESCE_NS 5000000000u
/* How long a marker thread waits, before it leaves a context, for markers in use
 * [guessed]. */
#define PUMP_COLLECT_NS 100000000u
/* Waits of the exit for the executors [guessed]. */
#define PUMP_EXIT_NS 1000000000u
/* A recorded program waits for pumpd's answer, then for its worker [guessed]. */
#define PUMP_RECORDER_NS 2000000000u
#define PUMP_RECORDER_MOST_NS 4000000000u
/* Waits of the exit until the worker has read all events: usually, and for the end of a
 * recording [guessed]. */
#define PUMP_FINAL_NS 500000000u
#define PUMP_RECORDED_NS 3000000000u

/* ---- the connection ------------------------------------------------------------ */

/* Longest waits for an answer: of pumpd's supervisor, which answers at once, and of
 * `pumpd jobs`, which may first have to start, on busy CPU cores [guessed]. */
#define PUMP_ANSWER_MS 2000
#define PUMP_ACTIVATION_MS 10000
/* Bound of a rule's settings in the form that is sent [guessed]. */
#define PUMP_ACTIVATION_BYTES 16384
/* Time between two looks at the worker: usually, and during a drain (memory/drain.c)
 * [guessed]. */
#define PUMP_LINK_POLL_MS 500
#define PUMP_DRAIN_POLL_MS 5
#define PUMP_LINK_POLL_NS (PUMP_LINK_POLL_MS * 1000000ull)
/* If a poll is this late, the process was stopped [guessed]. */
#define PUMP_STOP_LEAST_NS 1000000000u
/* Longest drain. A worker waits longer for its budget to be adopted (ADOPT_S)
 * [guessed]. */
#define PUMP_DRAIN_MOST_NS 2500000000u
/* A job waits this long for its turn, unless its worker asks again (memory/drain.c). At
 * least 5 s: a worker waits 3.5 s for a budget, and asks for nothing then [derived]. */
#define PUMP_HOLD_MOST_NS 6000000000u
/* Gates before launches (progress/gates.c): longest shut time while nothing moves or
 * executes, longest in any case, and how long no gate is made after a forced opening
 * [guessed]. */
#define PUMP_GATE_STILL_NS 50000000u
#define PUMP_GATE_MOST_NS 1000000000u
#define PUMP_GATE_PAUSE_NS 1000000000u
/* Large launches touch more than 1 / PUMP_LARGE_SHARE of the budget [measured: 0088]. */
#define PUMP_LARGE_SHARE 10u
/* Their gates: none if the worker has been silent for so long; how often the pause doubles
 * at most [guessed]. */
#define PUMP_GATE_SILENT_NS 500000000u
#define PUMP_GATE_DOUBLED_MOST 12u
/* Our descriptors have at least this number: a program has at most 1,024 by default, and
 * opens the lowest [guessed]. */
#define PUMP_HIGH_DESCRIPTOR 900
/* Longest time between a worker's heartbeats, and until its first one: starting is slow if
 * many start at once [guessed]. */
#define PUMP_HEARTBEAT_NS 3000000000u
#define PUMP_FIRST_BEAT_NS 60000000000u
/* Pauses between attempts to connect, which double [guessed]. */
#define PUMP_BACKOFF_MIN_NS 50000000u
#define PUMP_BACKOFF_MAX_NS 2000000000u
/* A worker that served for less than this died young; longest pause after that
 * [guessed]. */
#define PUMP_YOUNG_NS 5000000000u
#define PUMP_YOUNG_BACKOFF_MAX_NS 5000000000u
/* After a pause this long, about 0.8 s of attempts, the silence is logged [guessed]. */
#define PUMP_SILENCE_NS 400000000u
/* Pause after an answer of another version of pumpd [guessed]. */
#define PUMP_BACKOFF_VERSION_NS 30000000000u

/* ---- what must be true of the bounds --------------------------------------------- */

_Static_assert(PUMP_SLICE_BYTES % PUMP_BLOCK_BYTES == 0, "slices are whole blocks");
_Static_assert(PUMP_SLICE_BYTES <= PUMP_IN_FLIGHT_BYTES &&
                   PUMP_SLICE_BYTES <= PUMP_OUT_FLIGHT_BYTES,
               "a slice fits into what may be in flight");
_Static_assert(PUMP_PREDICTED_BYTES < PUMP_IN_FLIGHT_BYTES &&
                   PUMP_PREDICTED_BYTES < PUMP_OUT_FLIGHT_BYTES,
               "what is predicted leaves memory in flight for issued operations");
_Static_assert(PUMP_IN_LANES_SHARED <= PUMP_IN_LANES,
               "fewer streams where they are shared");
_Static_assert(PUMP_MARKERS_FEW < PUMP_MARKERS_FIRST &&
                   PUMP_MARKERS_FIRST < PUMP_MARKERS_AHEAD &&
                   PUMP_MARKERS_AHEAD < PUMP_MARKERS,
               "a pool grows from its first markers to those kept ahead");
_Static_assert(PUMP_MARKERS_FIRST % PUMP_MARKERS_GROWTH == 0 &&
                   PUMP_MARKERS_AHEAD % PUMP_MARKERS_GROWTH == 0,
               "markers are made in whole steps");
_Static_assert((PUMP_SCAN_BUCKETS & (PUMP_SCAN_BUCKETS - 1)) == 0 &&
                   PUMP_SCAN_BUCKETS >= 2 * PUMP_SCAN_WORDS_MOST,
               "a search among the words always ends, and soon");
_Static_assert(PUMP_COLLECT_NS < PUMP_QUIESCE_NS && PUMP_COLLECT_NS < PUMP_EXIT_NS,
               "a marker thread that collects is not taken for one that is stuck");
_Static_assert(PUMP_RECORDER_NS <= PUMP_RECORDER_MOST_NS, "the answer comes first");
_Static_assert(PUMP_HEARTBEAT_NS < PUMP_FIRST_BEAT_NS, "a start takes longer than a beat");
_Static_assert(PUMP_BACKOFF_MIN_NS < PUMP_BACKOFF_MAX_NS &&
                   PUMP_BACKOFF_MIN_NS < PUMP_YOUNG_BACKOFF_MAX_NS &&
                   PUMP_SILENCE_NS < PUMP_BACKOFF_MAX_NS,
               "pauses grow, and pass the one after which silence is worth a word");
_Static_assert(PUMP_POLL_SLACK_NS < PUMP_POLL_MIN_NS &&
                   PUMP_POLL_MIN_NS < PUMP_POLL_DORMANT_NS &&
                   2 * PUMP_POLL_DORMANT_NS < PUMP_LINGER_NS &&
                   PUMP_LINGER_NS < PUMP_IDLE_NS,
               "a marker thread slows down before it sleeps");
_Static_assert(PUMP_SPIN_NS < PUMP_PEEK_NS && PUMP_PEEK_NS < PUMP_SPACE_NS &&
                   PUMP_SPACE_NS < PUMP_IDLE_NS,
               "the less an executor expects, the longer it sleeps");
_Static_assert(PUMP_IDLE_NS <= PUMP_EXIT_NS && PUMP_EXIT_NS < PUMP_QUIESCE_NS,
               "a thread that misses its wake-up still ends in time");
_Static_assert((POOL_EVENTS & (POOL_EVENTS - 1)) == 0 && POOL_EVENT_FREES < POOL_EVENTS,
               "events of a stream are a ring, which one stream alone does not fill");
_Static_assert(POOL_TICK_SOON_NS < POOL_TICK_NS && POOL_TICK_NS < POOL_LONG_NS,
               "dead memory is looked for before it is dead for long");
_Static_assert((uint64_t)POOL_WAIT_NS *POOL_WAITS < PUMP_FREE_WAIT_NS,
               "a request for memory is refused before a free gives up");
_Static_assert(PUMP_ANSWER_MS * 1000000ull <= PUMP_RECORDER_NS,
               "a recorded job waits as long as the link does");
_Static_assert(PUMP_LINK_POLL_NS < PUMP_HEARTBEAT_NS && PUMP_LINK_POLL_NS <= PUMP_EXIT_NS,
               "the link sees a missed beat and the end of the process");

#endif
