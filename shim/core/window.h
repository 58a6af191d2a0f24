/* window.h - the window of issued operations over the block table (for Python).
 *
 * The block table is columns that Python owns (numpy); the window is a chain of
 * uses per block, kept here because it is touched for each block of each
 * operation. Nothing here decides: it answers "what does the window need next
 * that is not there" and "when is this block needed again".
 */
#ifndef PUMP_WINDOW_H
#define PUMP_WINDOW_H

#include <stdint.h>

/* cffi: begin */

/* Where a block is (column `state`). */
#define PUMP_BLOCK_FREE 0
#define PUMP_BLOCK_ABSENT 1
#define PUMP_BLOCK_HOST 2
#define PUMP_BLOCK_ARRIVING 3
#define PUMP_BLOCK_RESIDENT 4
#define PUMP_BLOCK_LEAVING 5
#define PUMP_BLOCK_DOUBTED 6 /* was resident; the driver may have evicted it since */
#define PUMP_BLOCK_STATES 7

/* Value of next_use for a block that the window does not need. */
#define PUMP_NOT_NEEDED 0x3fffffffffffffff

/* One row per block; arrays of `capacity` elements, owned by the caller, who may
 * read all of them and writes none. `counts` is [16 devices][PUMP_BLOCK_STATES]. */
struct pump_columns {
  uint32_t capacity;
  uint32_t reserved;
  uint8_t *state;
  uint8_t *device;
  int64_t *next_use; /* seq of the earliest issued, not yet executed use */
  int64_t *last_use; /* seq of the newest issued use; 0 if none */
  int64_t *migrated; /* order in which blocks last became resident */
  int64_t *counts;
};

/* What retiring found out about operations that have executed. */
struct pump_retired {
  uint64_t operations;
  uint64_t operations_hit; /* all blocks were resident */
  uint64_t blocks;         /* block uses */
  uint64_t blocks_hit;
  uint64_t blocks_late;    /* on their way */
  uint64_t blocks_missing; /* neither: came by fault */
};

struct pump_window;

/* NULL when memory is short. The columns must outlive the window. */
struct pump_window *pump_window_new(const struct pump_columns *columns);
void pump_window_delete(struct pump_window *window);

/* Adds operations in issue order. Operation i uses the runs
 * [use_begin[i], use_begin[i+1]) of (first[], count[]); runs with count 0 or
 * outside the table are passed over. When the window is full, the oldest
 * operations are retired unseen; returns how many. */
uint32_t pump_window_append(struct pump_window *window, uint32_t operations,
                            const uint64_t *seq, const uint32_t *stream,
                            const uint32_t *use_begin, const int64_t *first,
                            const int64_t *count);

/* Retires the operations of `stream` up to `executed_seq`. Blocks that were not
 * resident have come by fault: they are resident from now on. Adds to `*out`. */
void pump_window_retire(struct pump_window *window, uint32_t stream, uint64_t executed_seq,
                        struct pump_retired *out);

/* Blocks of `device` that the window needs and that are not surely there, nearest
 * to their stream's head first, each once. need[i] is the seq that needs it,
 * stream[i] that operation's stream. DOUBTED blocks are among them. Returns how many
 * of at most `max`. */
uint32_t pump_window_missing(struct pump_window *window, uint32_t device, uint32_t max,
                             int64_t *blocks, int64_t *need, uint32_t *stream);

/* How pump_window_leavers orders blocks. */
#define PUMP_BY_NEED 0
#define PUMP_BY_MIGRATION 1
#define PUMP_BY_MIGRATION_SURE 2

/* At most `max` (<= 256) resident or doubted blocks of `device`, in the order in which they
 * would leave. BY_NEED: needed last first; of those that nothing needs, the
 * longest unused first. BY_MIGRATION: the driver's own order, migrated longest
 * ago first; the SURE ones only: not the doubted. Returns how many. */
uint32_t pump_window_leavers(struct pump_window *window, uint32_t device, uint32_t by,
                             uint32_t max, int64_t *blocks);

/* Operations issued and not yet retired. */
uint32_t pump_window_depth(const struct pump_window *window);

/* State changes of single blocks and of a run. Becoming RESIDENT stamps `migrated`. */
void pump_window_set(struct pump_window *window, const int64_t *blocks, uint32_t count,
                     uint32_t state);
void pump_window_create(struct pump_window *window, int64_t first, int64_t count,
                        uint32_t device, uint32_t state);
/* The blocks' range was freed: pending uses of it are forgotten. */
void pump_window_destroy(struct pump_window *window, int64_t first, int64_t count);

/* cffi: end */

#endif
