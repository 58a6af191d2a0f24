/* limits.h - the bounds of the shim that more than one file keeps to, or that hold only
 * together, with what has to be true of them.
 *
 * A bound of one file alone stands in that file; those of the contract in pump_abi.h.
 */
#ifndef PUMP_LIMITS_H
#define PUMP_LIMITS_H

#include "pump_ring.h"

/* ---- in the driver ---------------------------------------------------------- */

/* One command or populate slice moves at most this much: a migration holds the
 * process's mmap lock, and a free waits for the slice that runs. */
#define PUMP_SLICE_BYTES (32u << 20)

/* What a device's executors have in the driver at most, in each direction, whatever the
 * worker asks for: on its way a block serves no kernel. Half of the budget where that is
 * less; a single slice may always go. */
#define PUMP_IN_FLIGHT_BYTES (128u << 20)
#define PUMP_OUT_FLIGHT_BYTES (64u << 20)
/* What is scheduled comes only while less is in the driver: commands, which may be more
 * urgent, do not wait for it. Enough to fill a link: the next goes as soon as one ends. */
#define PUMP_PREDICTED_BYTES (16u << 20)

#define PUMP_IN_THREADS_MOST 2
/* Slices that one in-thread keeps in the driver: a block that the driver knows to be on
 * its way is waited for by a kernel, one that still waits in our ring is faulted. Each
 * needs a stream; the second number holds where these share the program's priority. */
#define PUMP_IN_LANES 8
#define PUMP_IN_LANES_SHARED 4
#define PUMP_OUT_THREADS_MOST 4

/* Contexts of the program by small numbers; they are used again after an end. */
#define PUMP_MAX_CONTEXTS 64

/* ---- markers ------------------------------------------------------------------ */

/* Markers of a context: one for each operation of four launch queues. */
#define PUMP_MARKERS 4096
/* With fewer than that left, one in sixteen operations has to do. */
#define PUMP_MARKERS_FEW 64
#define PUMP_MARKERS_TIMED 256 /* of a context, which take the time of an operation */
#define PUMP_MARKERS_GROWTH 64
/* Free ones kept for a program that runs: one full launch queue. */
#define PUMP_MARKERS_AHEAD 1024
#define PUMP_MARKERS_FIRST 128 /* made for a context before anything is recorded there */

/* ---- sleeps of pump's own threads ------------------------------------------------ */

/* A marker thread polls that often, the more rarely the longer nothing executes. A program
 * that goes on within PUMP_LINGER_NS wakes no thread; a timed sleep ends at most the slack
 * late. */
#define PUMP_POLL_MIN_NS 50000u
#define PUMP_POLL_MAX_NS 100000u
#define PUMP_POLL_SLACK_NS 10000u
#define PUMP_LINGER_NS 5000000u
/* A mover with a slice in flight and nothing else to do sleeps until it is woken, so that a
 * command need not wait for the slice, and looks at the slice that often at least. */
#define PUMP_PEEK_NS 200000u
/* How long a mover sleeps without room, and without work, at most: it may miss a wake-up.
 */
#define PUMP_ROOM_NS 10000000u
#define PUMP_IDLE_NS 1000000000u

/* ---- the pool --------------------------------------------------------------------- */

#define POOL_ARENAS 64u
#define POOL_STREAMS 256u  /* of one arena; those beyond are served by the driver */
#define POOL_EVENTS 512u   /* of one stream, recorded and not complete */
#define POOL_DEAD_MOST 32u /* pieces in quarantine at once */
/* While one stream alone is in use an event is recorded after so many frees, or so long
 * after the last one. */
#define POOL_EVENT_FREES 16u
#define POOL_EVENT_NS 1000000u
/* Memory is dead for long when it was freed so long ago; looked for that often, or sooner
 * where dead memory is kept apart. */
#define POOL_LONG_NS 30000000u
#define POOL_TICK_NS 3000000u
#define POOL_TICK_SOON_NS 500000u
/* A request waits so often for so long before memory is refused. */
#define POOL_WAIT_NS 5000000u
#define POOL_WAITS 200u

/* Managed variables of the program's code that are tracked. */
#define PUMP_VARIABLES 64u

/* ---- parameters of a launch --------------------------------------------------- */

#define PUMP_SCAN_WORDS_MOST 512 /* different ones that may be pointers */
#define PUMP_SCAN_PLACES 1024

/* ---- waits of a thread of the program, and of the exit ------------------------- */

/* A stuck driver must not hang a free in our code. */
#define PUMP_FREE_WAIT_NS 5000000000u
#define PUMP_QUIESCE_NS 5000000000u
/* How long a marker thread that leaves a context waits for markers that threads hold. */
#define PUMP_COLLECT_NS 100000000u
#define PUMP_EXIT_NS 1000000000u
#define PUMP_RECORDER_NS 2000000000u
#define PUMP_RECORDER_MOST_NS 4000000000u
#define PUMP_RECORDED_NS 3000000000u

/* ---- the connection ------------------------------------------------------------ */

#define PUMP_ANSWER_MS 2000 /* pumpd's supervisor answers at once */
/* `pumpd jobs` may have to start first, beside busy processors. */
#define PUMP_ACTIVATION_MS 10000
#define PUMP_ACTIVATION_BYTES 16384 /* a rule's settings, as they are sent */
#define PUMP_LINK_POLL_MS 500
#define PUMP_DRAIN_POLL_MS 5           /* while a drain lasts (memory/drain.c) */
#define PUMP_STOP_LEAST_NS 1000000000u /* a later wake-up was a stop of the process */
#define PUMP_LINK_POLL_NS (PUMP_LINK_POLL_MS * 1000000ull)
/* A drain lasts at most that long. A worker waits longer for the budget (ADOPT_S). */
#define PUMP_DRAIN_MOST_NS 2500000000u
/* A job waits for its turn no longer unless its worker asks again (memory/drain.c). */
#define PUMP_HOLD_MOST_NS 6000000000u
/* Shut gates in front of launches (progress/gates.c): while nothing moves or executes, in
 * all, and how long none is made once they were forced. */
#define PUMP_GATE_STILL_NS 50000000u
#define PUMP_GATE_MOST_NS 1000000000u
#define PUMP_GATE_PAUSE_NS 1000000000u
#define PUMP_HIGH_DESCRIPTOR 900 /* ours lie from there on, among the program's */
#define PUMP_HEARTBEAT_NS 3000000000u
/* A worker's start takes long where many start at once. */
#define PUMP_FIRST_BEAT_NS 60000000000u
#define PUMP_BACKOFF_MIN_NS 50000000u
#define PUMP_BACKOFF_MAX_NS 2000000000u
#define PUMP_YOUNG_NS 5000000000u /* a worker that dies sooner died young */
#define PUMP_YOUNG_BACKOFF_MAX_NS 5000000000u
#define PUMP_PATIENCE_NS 400000000u /* about 0.8 s of attempts */
#define PUMP_BACKOFF_VERSION_NS 30000000000u

/* ---- what has to be true of them ------------------------------------------------ */

_Static_assert(PUMP_SLICE_BYTES % PUMP_BLOCK_BYTES == 0, "slices are whole blocks");
_Static_assert(PUMP_SLICE_BYTES <= PUMP_IN_FLIGHT_BYTES &&
                   PUMP_SLICE_BYTES <= PUMP_OUT_FLIGHT_BYTES,
               "a slice fits into what may be in flight");
_Static_assert(PUMP_PREDICTED_BYTES < PUMP_IN_FLIGHT_BYTES &&
                   PUMP_PREDICTED_BYTES < PUMP_OUT_FLIGHT_BYTES,
               "what is scheduled leaves room for commands");
_Static_assert(PUMP_IN_LANES_SHARED <= PUMP_IN_LANES,
               "fewer streams where they are shared");
_Static_assert(PUMP_MARKERS_FEW < PUMP_MARKERS_FIRST &&
                   PUMP_MARKERS_FIRST < PUMP_MARKERS_AHEAD &&
                   PUMP_MARKERS_AHEAD < PUMP_MARKERS,
               "a pool grows from its first markers to those kept ahead");
_Static_assert(PUMP_MARKERS_FIRST % PUMP_MARKERS_GROWTH == 0 &&
                   PUMP_MARKERS_AHEAD % PUMP_MARKERS_GROWTH == 0,
               "markers are made in whole steps");
_Static_assert((PUMP_SCAN_PLACES & (PUMP_SCAN_PLACES - 1)) == 0 &&
                   PUMP_SCAN_PLACES >= 2 * PUMP_SCAN_WORDS_MOST,
               "a search among the words always ends, and soon");
_Static_assert(PUMP_COLLECT_NS < PUMP_QUIESCE_NS && PUMP_COLLECT_NS < PUMP_EXIT_NS,
               "a marker thread that collects is not taken for one that is stuck");
_Static_assert(PUMP_RECORDER_NS <= PUMP_RECORDER_MOST_NS, "the answer comes first");
_Static_assert(PUMP_HEARTBEAT_NS < PUMP_FIRST_BEAT_NS, "a start takes longer than a beat");
_Static_assert(PUMP_BACKOFF_MIN_NS < PUMP_BACKOFF_MAX_NS &&
                   PUMP_BACKOFF_MIN_NS < PUMP_YOUNG_BACKOFF_MAX_NS &&
                   PUMP_PATIENCE_NS < PUMP_BACKOFF_MAX_NS,
               "pauses grow, and pass the one after which silence is worth a word");
_Static_assert(PUMP_POLL_SLACK_NS < PUMP_POLL_MIN_NS &&
                   PUMP_POLL_MIN_NS < PUMP_POLL_MAX_NS &&
                   PUMP_POLL_MAX_NS < PUMP_LINGER_NS && PUMP_LINGER_NS < PUMP_IDLE_NS,
               "a marker thread slows down before it sleeps");
_Static_assert(PUMP_SPIN_NS < PUMP_PEEK_NS && PUMP_PEEK_NS < PUMP_ROOM_NS &&
                   PUMP_ROOM_NS < PUMP_IDLE_NS,
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
