/* mapped_state.h - what the files of mapped memory share (mapped.h).
 *
 * HOST PAGES. The limit counts what may need a page of the host: the bytes of each live
 * handle, and blocks that were mapped once and belong to no handle any more (`left`), for
 * managed memory gives its pages back only when all of it is freed. A block is counted
 * once: a handle that is mapped over such a block takes its count over.
 *
 * CONTENTS belong to the handle. While it is not mapped they stay where it was mapped last,
 * its home, and are copied from there when it is mapped elsewhere, or something else is
 * mapped there. A reservation that the program frees lives on until its last home is empty.
 */
#ifndef PUMP_MAPPED_STATE_H
#define PUMP_MAPPED_STATE_H

#include "mapped.h"
#include "mapped_spans.h"

struct mapped_handle {
  uint64_t key; /* what the program has */
  uint64_t bytes;
  CUmemAllocationProp properties;
  uint32_t device, references;
  bool mapped;                       /* at `home` */
  uint64_t home, home_bytes;         /* where its contents lie; 0: it has none */
  CUmemGenericAllocationHandle real; /* it has become the driver's */
};

struct mapped_place { /* a reservation */
  uint64_t base, bytes;
  CUdeviceptr managed; /* 0: it ended with its context */
  CUcontext context;
  uint32_t device;
  uint32_t homes; /* handles whose contents lie here, mapped or not */
  bool freed;     /* by the program */
  uint8_t *left;  /* of each block: 1: pages may be there that belong to no handle */
};

struct mapped_mapping {
  uint64_t base, bytes;
  uint64_t handle;
  uint32_t readers, writers; /* a bit for each device */
  bool in_range;
};

struct mapped_home { /* of a handle, mapped or not */
  uint64_t base, bytes;
  uint64_t handle;
};

struct mapped_range { /* of the range table: mappings that became accessible in one call */
  uint64_t base, bytes;
  uint64_t mapped_bytes;
  uint32_t slot, generation;
};

/* All under mapped_lock, which is held across the driver's calls but cuMemFree. Taken
 * before the locks of ranges and limit. */
extern pthread_mutex_t mapped_lock;
extern struct mapped_spans mapped_places, mapped_mappings, mapped_homes, mapped_ranges;

/* Held from before memory may become the driver's until that is decided. Taken before
 * mapped_lock. */
extern pthread_mutex_t mapped_yield_lock;

/* ---- mapped_handles.c: under the lock ------------------------------ */

/* The handle of that key, or NULL; `*ours`: it is or was one of ours. */
struct mapped_handle *mapped_handle_find(uint64_t key, bool *ours);
/* Ends it if the program has neither a reference nor a mapping left. */
void mapped_handle_settle(struct mapped_handle *handle);
/* Its contents leave their home, which is not counted with it any longer: blocks that have
 * pages there are counted as left, and the rest is returned. */
void mapped_home_leave(struct mapped_handle *handle);
/* Makes it memory of the driver's, as long as it has no contents here. */
CUresult mapped_handle_yield(struct mapped_handle *handle);
/* Whether a handle of the driver's is mapped nowhere yet. It is not asked about again. */
bool mapped_one_waits(void);
void mapped_waits_no_more(uint64_t real);
void mapped_handles_reset(void);
/* One line, if `said` is 0: that call fails, why, and what to do. */
void mapped_explain(const char *call, const char *why, uint32_t *said);

/* ---- mapped_places.c: under the lock ------------------------------ */

/* The reservation that the program may use at that address, or NULL. */
struct mapped_place *mapped_place_at(CUdeviceptr address);
/* Whether whole mappings fill [base, +bytes). */
bool mapped_filled(uint64_t base, uint64_t bytes);
/* Counts blocks as belonging to no handle, or no more. Returns how many bytes have
 * changed. */
uint64_t mapped_set_left(uint64_t base, uint64_t bytes, uint8_t left);
/* A reservation that the program has freed is over once nothing has its home there. Its
 * managed memory is to be freed by mapped_free_pending. */
void mapped_place_settle(struct mapped_place *place);
/* Without the lock: frees what is over. */
void mapped_free_pending(void);

/* ---- mapped_ranges.c: under the lock ------------------------------ */

/* Makes ranges of the mappings in [base, +bytes) that are accessible and have none. */
void mapped_ranges_add(uint64_t base, uint64_t bytes);
/* A mapping has ended; its range ends with its last one. */
void mapped_ranges_leave(const struct mapped_mapping *mapping);
/* The contents there are worthless: nothing needs to copy them. */
void mapped_contents_dead(const struct mapped_place *place, uint64_t base, uint64_t bytes);
/* The ranges there have ended with their context. */
void mapped_ranges_forget(uint64_t base, uint64_t bytes);
CUresult mapped_contents_copy(uint64_t to, uint64_t from, uint64_t bytes);

#endif
