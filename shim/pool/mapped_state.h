/* mapped_state.h - shared by the files of mapped memory (mapped.h).
 *
 * HOST PAGES. The limit counts everything that may need a host page: the bytes of each
 * live handle, and blocks that were mapped once and belong to no handle now (`left`).
 * These count because managed memory gives its pages back only when all of it is freed. A
 * block is counted once: a handle that is mapped over such a block takes over its count.
 *
 * CONTENTS belong to the handle. While it is not mapped, they remain at its home, the
 * addresses of its last mapping. They are copied from there when it is mapped elsewhere,
 * or something else is mapped there. A reservation that the program frees lives until no
 * home is left in it.
 */
#ifndef PUMP_MAPPED_STATE_H
#define PUMP_MAPPED_STATE_H

#include "mapped.h"
#include "mapped_spans.h"

struct mapped_handle {
  uint64_t key; /* handle that the program sees */
  uint64_t bytes;
  CUmemAllocationProp properties;
  uint32_t device, references;
  bool mapped;                       /* at `home` */
  uint64_t home, home_bytes;         /* address of its contents; 0: it has none */
  CUmemGenericAllocationHandle real; /* handle of the driver that it has become */
};

struct mapped_reservation { /* a reservation of addresses */
  uint64_t base, bytes;
  CUdeviceptr managed; /* managed allocation; 0: ended with its context */
  CUcontext context;
  uint32_t device;
  uint32_t homes; /* handles with contents here, mapped or not */
  bool freed;     /* by the program */
  uint8_t *left;  /* per block, 1: may have pages, but belongs to no handle */
};

struct mapped_mapping {
  uint64_t base, bytes;
  uint64_t handle;
  uint32_t readers, writers; /* one bit for each device */
  bool in_range;
};

struct mapped_home { /* home of a handle, mapped or not */
  uint64_t base, bytes;
  uint64_t handle;
};

struct mapped_range { /* range table entry: mappings that became accessible in one call */
  uint64_t base, bytes;
  uint64_t mapped_bytes;
  uint32_t slot, generation;
};

/* All guarded by mapped_lock, which is held across every driver call except cuMemFree.
 * Taken before the locks of ranges and limit. */
extern pthread_mutex_t mapped_lock;
extern struct mapped_spans mapped_reservations, mapped_mappings, mapped_homes,
    mapped_ranges;

/* Held while it is undecided whether memory becomes the driver's. Taken before
 * mapped_lock. */
extern pthread_mutex_t mapped_real_lock;

/* ---- mapped_handles.c: under the lock ------------------------------ */

/* Returns the handle of that key, or NULL; `*ours`: the key is or was one of pump's. */
struct mapped_handle *mapped_handle_find(uint64_t key, bool *ours);
/* Ends the handle if the program has no reference and no mapping left. */
void mapped_handle_settle(struct mapped_handle *handle);
/* Removes the handle's contents from their home, and stops counting that with the handle.
 * Blocks that have pages there count as left; the rest is returned. */
void mapped_home_leave(struct mapped_handle *handle);
/* Backs the handle with memory that the real driver creates. Requires that pump holds no
 * contents of the handle (`home` is 0). */
CUresult mapped_handle_become_real(struct mapped_handle *handle);
/* Returns whether a handle of the driver is not mapped yet, and forgets that handle. */
bool mapped_take_waiting(void);
void mapped_forget_waiting(uint64_t real);
void mapped_handles_reset(void);
/* Logs one line, if the flag is 0: which call fails, why, and what to do. */
void mapped_explain(const char *call, const char *why, uint32_t *said);

/* ---- mapped_reservations.c: under the lock ------------------------------ */

/* Returns the reservation that the program may use at that address, or NULL. */
struct mapped_reservation *mapped_reservation_at(CUdeviceptr address);
/* Returns whether whole mappings fill [base, +bytes). */
bool mapped_is_filled(uint64_t base, uint64_t bytes);
/* Counts blocks as left, or not as left. Returns how many bytes have changed. */
uint64_t mapped_set_left(uint64_t base, uint64_t bytes, uint8_t left);
/* Ends a reservation that the program has freed, if it is not the home of a handle.
 * mapped_free_pending must follow, which frees its managed memory. */
void mapped_reservation_settle(struct mapped_reservation *reserved);
/* Frees the managed memory of ended reservations. Called without the lock. */
void mapped_free_pending(void);

/* ---- mapped_ranges.c: under the lock ------------------------------ */

/* Makes ranges of the accessible mappings in [base, +bytes) that have none. */
void mapped_ranges_add(uint64_t base, uint64_t bytes);
/* Removes an ended mapping from its range, which ends with its last mapping. */
void mapped_ranges_leave(const struct mapped_mapping *mapping);
/* Marks contents as worthless, so that nothing copies them. */
void mapped_contents_discard(const struct mapped_reservation *reserved, uint64_t base,
                             uint64_t bytes);
/* Forgets ranges that have ended with their context. */
void mapped_ranges_forget(uint64_t base, uint64_t bytes);
CUresult mapped_contents_copy(uint64_t to, uint64_t from, uint64_t bytes);

#endif
