/* limits.h - the bounds of the shim that more than one file keeps to, or that hold only
 * together, with what has to be true of them.
 *
 * A bound of one file alone stands in that file; those of the contract in pump_abi.h.
 */
#ifndef PUMP_LIMITS_H
#define PUMP_LIMITS_H

#include "pump_abi.h"

/* ---- in the driver ---------------------------------------------------------- */

/* One command or populate slice moves at most this much: a migration holds the
 * process's mmap lock, and a free waits for the slice that runs. */
#define PUMP_SLICE_BYTES (32u << 20)

/* What a device's executors have in the driver at most, in each direction, whatever the
 * worker asks for: on its way a block serves no kernel. Half of the budget where that is
 * less; a single slice may always go. */
#define PUMP_IN_FLIGHT_BYTES (128u << 20)
#define PUMP_OUT_FLIGHT_BYTES (64u << 20)
/* What is planned comes only while less is in the driver: commands, which may be more
 * urgent, do not wait for it. Enough to fill a link: the next goes as soon as one ends. */
#define PUMP_PLANNED_BYTES (16u << 20)

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

/* Of a context: one for each operation of four launch queues. */
#define PUMP_MARKERS 4096
/* With fewer than that left, one in sixteen operations has to do. */
#define PUMP_MARKERS_FEW 64
#define PUMP_MARKERS_GROWTH 64
/* Free ones kept for a program that runs: one full launch queue. */
#define PUMP_MARKERS_AHEAD 1024
#define PUMP_MARKERS_FIRST 128 /* made for a context before anything is recorded there */

/* ---- parameters of a launch --------------------------------------------------- */

#define PUMP_SCAN_WORDS_MOST 512 /* different ones that may be pointers */
#define PUMP_SCAN_PLACES 1024

/* ---- waits of a thread of the program, and of the exit ------------------------- */

/* A stuck driver must not hang a free in our code. */
#define PUMP_FREE_WAIT_NS 5000000000u
#define PUMP_QUIESCE_NS 5000000000u
/* Of a marker thread that leaves a context, for markers that threads hold. */
#define PUMP_COLLECT_NS 100000000u
#define PUMP_EXIT_NS 1000000000u
#define PUMP_RECORDER_NS 2000000000u
#define PUMP_RECORDER_MOST_NS 4000000000u
#define PUMP_RECORDED_NS 3000000000u

/* ---- the connection ------------------------------------------------------------ */

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
_Static_assert(PUMP_PLANNED_BYTES < PUMP_IN_FLIGHT_BYTES &&
                   PUMP_PLANNED_BYTES < PUMP_OUT_FLIGHT_BYTES,
               "what is planned leaves room for commands");
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

#endif
